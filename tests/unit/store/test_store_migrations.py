"""Upgrades: a copy first, one transaction, every text equal afterwards; newer files are read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from hearth.app.chats.migrations import STEPS, Step, Version, fingerprint, stored_version
from hearth.app.chats.records import TextPart
from hearth.app.chats.store import ChatStore
from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    from pathlib import Path


def add_colour(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE chats ADD COLUMN colour TEXT")


def index_roles(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE INDEX roles ON messages(role)")


def rename_titles(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE chats RENAME COLUMN title TO heading")


def lose_words(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE parts SET body = x'61'")


def fail_late(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM chats")
    raise ZeroDivisionError


def _later(version: tuple[int, int], *changes: object) -> tuple[Step, ...]:
    return (*STEPS, *(Step(Version(*version), change) for change in changes))  # type: ignore[arg-type]


@pytest.fixture
def old(folder: Path) -> Path:
    """The folder of a store that this version wrote and closed."""
    store = ChatStore(folder)
    chat = store.create_chat(title="kept")
    for number in range(5):
        store.add_message(chat.id, None, "user", [TextPart(f"text {number}\0\ud800")])
    store.close()
    return folder


def _fingerprint(path: Path) -> tuple[int, int, str]:
    with closing(sqlite3.connect(path)) as connection:
        return fingerprint(connection)


def test_an_older_file_is_upgraded_and_copied_before(old: Path) -> None:
    before = _fingerprint(old / "chats.sqlite3")
    steps = (
        *STEPS,
        Step(Version(1, 2), index_roles),
        Step(Version(2, 0), add_colour),
    )
    store = ChatStore(old, steps=steps)
    assert stored_version(store._database.connection) == Version(2, 0)
    assert store.chats()[0].title == "kept"
    assert store.recovery.notices == ()
    assert store.verify() == []
    store.close()
    assert _fingerprint(old / "chats.sqlite3") == before
    (copy,) = (old / "backups").glob("before-1.2-*.sqlite3")
    assert _fingerprint(copy) == before
    again = ChatStore(old, steps=steps)  # nothing left to do, no other copy
    again.close()
    assert len(list((old / "backups").iterdir())) == 1


@pytest.mark.parametrize(
    ("change", "error"), [(fail_late, ZeroDivisionError), (lose_words, AssertionError)]
)
def test_a_failed_upgrade_leaves_everything_as_it_was(
    old: Path, change: object, error: type[Exception]
) -> None:
    before = _fingerprint(old / "chats.sqlite3")
    with pytest.raises(error):
        ChatStore(old, steps=_later((2, 0), add_colour, change))
    assert _fingerprint(old / "chats.sqlite3") == before
    store = ChatStore(old)
    assert not store.recovery.read_only
    assert store.verify() == []
    store.close()


def test_a_newer_minor_version_opens(old: Path) -> None:
    ChatStore(old, steps=_later((1, 7), add_colour)).close()
    store = ChatStore(old)
    assert store.recovery.notices == ()
    store.create_chat(title="new")
    store.close()


def test_a_newer_major_version_is_read_and_never_written(old: Path) -> None:
    ChatStore(old, steps=_later((2, 0), add_colour)).close()
    before = (old / "chats.sqlite3").read_bytes()
    store = ChatStore(old)
    assert store.recovery.read_only
    assert "newer version" in store.recovery.notices[0]
    assert store.chats()[0].title == "kept"
    assert store.search("text 3")
    with pytest.raises(MachineError, match="reading only"):
        store.create_chat()
    store.close()
    assert (old / "chats.sqlite3").read_bytes() == before


def test_a_newer_file_with_other_tables_is_a_sentence(old: Path) -> None:
    ChatStore(old, steps=_later((2, 0), rename_titles)).close()
    with pytest.raises(MachineError, match="newer version"):
        ChatStore(old)
