"""Profiles: private folders, one running instance, a second start that raises the first."""

from __future__ import annotations

import shutil
import signal
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from hearth.app import instance
from hearth.app.profile import Profile, default_paths
from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    from pathlib import Path

HOLD = """
import sys
from pathlib import Path
from hearth.app.profile import Profile
profile = Profile.open(Path(sys.argv[1]))
print(profile.claim(), flush=True)
profile.listen(lambda: print("raised", flush=True))
print("ready", flush=True)
sys.stdin.read()
"""


def _start(root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_folders_are_private_and_below_hearth_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEARTH_HOME", str(tmp_path / "home"))
    with Profile.open() as profile:
        assert profile.paths == default_paths()
        for folder in (tmp_path / "home", profile.paths.cache, profile.paths.logs):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert profile.paths.chats.parent == profile.paths.settings_file.parent == tmp_path / "home"
    monkeypatch.delenv("HEARTH_HOME")
    assert default_paths().data.name == "hearth"


def test_an_open_folder_is_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o755)
    Profile.open(tmp_path / "home").close()
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700


def test_a_temporary_profile_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEARTH_HOME", str(tmp_path / "home"))
    with Profile.open() as own, Profile.open(temporary=True) as profile:
        assert profile.paths.models == own.paths.models
        root = profile.paths.data
        assert root != own.paths.data
        assert profile.claim()
        profile.listen(lambda: None)
        profile.paths.settings_file.write_text("x")
    assert not root.exists()
    assert own.paths.models.exists()


@pytest.mark.parametrize("depth", [0, 6], ids=["local socket", "loopback port"])
def test_a_second_start_raises_the_first(tmp_path: Path, depth: int) -> None:
    root = tmp_path.joinpath(*["a folder with a long name"] * depth) / "home"
    first = _start(root)
    assert (_line(first), _line(first)) == ("True", "ready")
    second = Profile.open(root)
    assert not second.claim()
    assert second.ask_to_raise()
    assert _line(first) == "raised"
    _end(first)
    assert not second.ask_to_raise()  # killed: its socket is still there, and nobody answers
    assert second.claim()  # the lock went with the process
    raised = threading.Event()
    second.listen(raised.set)
    assert Profile.open(root).ask_to_raise()
    assert raised.wait(10)
    second.close()
    assert not [each for each in root.iterdir() if each.name.startswith("raise")]
    assert "hearth-raise" not in {thread.name for thread in threading.enumerate()}


def test_strangers_do_not_raise_the_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "MAX_SOCKET_PATH_BYTES", 0)
    monkeypatch.setattr(instance, "TIMEOUT_S", 0.05)
    calls: list[int] = []
    called = threading.Event()

    def raise_window() -> None:
        calls.append(1)
        called.set()

    with Profile.open(tmp_path) as profile:
        profile.claim()
        profile.listen(raise_window)
        address = (tmp_path / "raise.port").read_text()
        assert stat.S_IMODE((tmp_path / "raise.port").stat().st_mode) == 0o600
        port = int(address.split()[0])
        for words in (b"raise\n", b"", b"x" * 5000, b"\0" * 32 + b"raise\n"):
            with instance.socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(words)
        assert profile.ask_to_raise()
        assert called.wait(10)
        assert calls == [1]
        (tmp_path / "raise.port").write_text("nonsense")
        assert not instance.ring(tmp_path)
        (tmp_path / "raise.port").write_text(address)


def test_a_read_only_home_is_a_sentence_with_a_way_out(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(place)]
    if mount is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a disk needs root")
    try:
        with pytest.raises(MachineError, match="cannot use the folder") as caught:
            Profile.open(place / "home")
    finally:
        subprocess.run(["umount", str(place)], check=True)
    assert "HEARTH_HOME" in str(caught.value.action)
    assert "--temp-profile" in str(caught.value.action)


def test_a_file_where_the_home_should_be_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(MachineError, match="cannot use the folder"):
        Profile.open(tmp_path / "home")
