"""Full, read-only and forbidden disks: a sentence, and nothing that was saved is touched."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hearth.app.chats import failures
from hearth.app.chats.records import Status, TextPart
from hearth.app.chats.store import ChatStore
from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearth.app.chats.records import Message


def _fill_disk(place: Path) -> Path:
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(os.urandom(4096)):
            pass
    return filler


def _running_reply(store: ChatStore) -> tuple[Message, Message]:
    chat = store.create_chat(title="full")
    user = store.add_message(chat.id, None, "user", [TextPart("the question " * 50)])
    return user, store.begin_reply(chat.id, user.id, model_name="m", model_fingerprint="f")


def test_a_reply_survives_a_full_disk(mount: Callable[[str], Path]) -> None:
    place = mount("size=12m")
    store = ChatStore(place / "chats")
    user, reply = _running_reply(store)
    store.journal(reply.id, "first second ", [1])
    filler = _fill_disk(place)
    text = "first second "

    def stream() -> None:
        nonlocal text
        for number in range(2000):
            piece = f"piece {number} " * 500
            store.journal(reply.id, piece, [number] * 500)
            text += piece

    with pytest.raises(failures.DiskFullError, match="full") as caught:
        stream()
    assert caught.value.action is not None
    assert store.message(user.id) == user
    with pytest.raises(failures.DiskFullError):
        store.add_message(user.chat_id, reply.id, "user", [TextPart("x" * 3_000_000)])
    assert store.chat(user.chat_id).leaf_id == reply.id
    finished = store.finish_reply(  # in the space that the ballast held
        reply.id, status=Status.STOPPED, text=text, token_ids=range(1000)
    )
    assert finished.text == text
    assert not (place / "chats" / "ballast").exists()
    store.delete_chat(user.chat_id)
    assert store.verify() == []
    store.close()
    filler.unlink()
    store = ChatStore(place / "chats")
    assert store.message(reply.id).text == text
    assert (place / "chats" / "ballast").exists()
    store.close()


def test_a_full_disk_at_the_start_still_shows_the_chats(mount: Callable[[str], Path]) -> None:
    place = mount("size=12m")
    store = ChatStore(place / "chats")
    user, reply = _running_reply(store)
    store.journal(reply.id, "so far", [1])
    store.close()
    (place / "chats" / "ballast").unlink()
    _fill_disk(place)
    store = ChatStore(place / "chats")
    assert store.message(user.id) == user
    assert store.message(reply.id).text == "so far"
    assert store.recovery.read_only
    assert "full" in store.recovery.notices[0]
    with pytest.raises(MachineError):
        store.create_chat()
    store.close()


def test_a_large_attachment_on_a_full_disk_leaves_nothing(mount: Callable[[str], Path]) -> None:
    place = mount("size=12m")
    store = ChatStore(place / "chats")
    with pytest.raises(failures.DiskFullError):
        store.put_blob(os.urandom(20_000_000))
    assert [path for path in (place / "chats/blobs").rglob("*") if path.is_file()] == []
    assert store.verify() == []
    store.close()


def test_a_file_size_limit_is_a_sentence_too(store: ChatStore) -> None:
    user, _ = _running_reply(store)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 * 1024, hard))
    try:
        with pytest.raises(MachineError):
            store.add_message(user.chat_id, user.id, "user", [TextPart("x" * 1_000_000)])
        with pytest.raises(MachineError):
            store.put_blob(os.urandom(1_000_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.message(user.id) == user
    assert store.verify() == []


@pytest.mark.parametrize("is_live", [False, True])
def test_a_read_only_disk_is_read(
    folder: Path, mount: Callable[[str], Path], is_live: bool
) -> None:
    store = ChatStore(folder)
    user, reply = _running_reply(store)
    store.journal(reply.id, "so far", [1])
    if not is_live:
        store.close()
    place = mount("size=12m")
    shutil.copytree(folder, place / "chats")  # live: the newest messages are only in the log
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    if is_live:
        store.close()
    before = sorted(place.rglob("*"))
    reader = ChatStore(place / "chats")
    assert reader.recovery.read_only
    assert "HEARTH_HOME" in reader.recovery.notices[0]
    assert reader.message(user.id) == user
    assert reader.search("the question")[0].message_id == user.id
    assert reader.purge() == 0
    assert reader.verify() == []
    with pytest.raises(MachineError, match="reading only"):
        reader.create_chat()
    assert reader.message(reply.id).text == "so far"
    reader.close()
    assert sorted(place.rglob("*")) == before


def test_no_store_on_a_read_only_disk_is_a_sentence(mount: Callable[[str], Path]) -> None:
    place = mount("size=1m,ro")
    with pytest.raises(MachineError, match="cannot be written") as caught:
        ChatStore(place / "chats")
    assert "HEARTH_HOME" in str(caught.value.action)


@pytest.mark.skipif(os.geteuid() == 0, reason="permission bits do not bind root")
def test_a_forbidden_folder_is_a_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(MachineError):
        ChatStore(tmp_path / "chats")
    tmp_path.chmod(0o700)


def _sqlite_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("made up")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (sqlite3.SQLITE_FULL, "full"),
        (sqlite3.SQLITE_BUSY, "Another program"),
        (sqlite3.SQLITE_LOCKED_SHAREDCACHE, "Another program"),
        (sqlite3.SQLITE_READONLY_DBMOVED, "cannot be written"),
        (sqlite3.SQLITE_PERM, "may not open"),
        (sqlite3.SQLITE_CANTOPEN, "may not open"),
        (sqlite3.SQLITE_IOERR_SHMMAP, "network drive"),
        (sqlite3.SQLITE_CORRUPT, "is damaged"),
        (sqlite3.SQLITE_CORRUPT_VTAB, "search index"),
        (sqlite3.SQLITE_NOMEM, "memory"),
    ],
)
def test_sqlite_failures_have_sentences(code: int, words: str) -> None:
    with pytest.raises(MachineError, match=words) as caught, failures.guard(Path("/d/chats")):
        raise _sqlite_error(code)
    assert caught.value.action


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "full"),
        (errno.EDQUOT, "full"),
        (errno.EROFS, "cannot be written"),
        (errno.EACCES, "may not open"),
        (errno.EIO, "does not answer"),
    ],
)
def test_file_failures_have_sentences(number: int, words: str) -> None:
    with pytest.raises(MachineError, match=words), failures.guard(Path("/d/chats")):
        raise OSError(number, "made up")


@pytest.mark.parametrize(
    "bug", [_sqlite_error(sqlite3.SQLITE_MISUSE), sqlite3.ProgrammingError(), OSError(0, "")]
)
def test_bugs_stay_bugs(bug: Exception) -> None:
    with pytest.raises(type(bug)) as caught, failures.guard(Path("/d/chats")):
        raise bug
    assert caught.value is bug
