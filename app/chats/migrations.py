"""Brings a database of any earlier version to this one, in one transaction or not at all.

``user_version`` holds ``major << 16 | minor``. A newer minor version only adds things and opens
normally; a newer major version is opened for reading only.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hearth.app.chats.schema import (
    APPLICATION_ID,
    HAS_NUL,
    REASONING_JOURNAL,
    SEARCH_TABLES,
    TABLES,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence


class Version(NamedTuple):
    major: int
    minor: int

    @property
    def number(self) -> int:
        return self.major << 16 | self.minor

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, slots=True)
class Step:
    """One named change; ``apply`` runs inside the upgrade's transaction."""

    version: Version
    apply: Callable[[sqlite3.Connection], None]

    @property
    def name(self) -> str:
        return self.apply.__name__


def first_tables(connection: sqlite3.Connection) -> None:
    for statement in (*TABLES, *SEARCH_TABLES):
        connection.execute(statement)


def reasoning_journal(connection: sqlite3.Connection) -> None:
    """A table of its own, so that the first version can still write its journal."""
    connection.execute(REASONING_JOURNAL)


def find_texts_with_nul(connection: sqlite3.Connection) -> None:
    """The search tables read a text up to its first NUL; the few that have one are compared."""
    connection.execute(f"CREATE INDEX parts_with_nul ON parts(seq) WHERE {HAS_NUL}")


STEPS: tuple[Step, ...] = (
    Step(Version(1, 0), first_tables),
    Step(Version(1, 1), reasoning_journal),
    Step(Version(1, 2), find_texts_with_nul),
)
NEW = Version(0, 0)


def stored_version(connection: sqlite3.Connection) -> Version:
    number: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return Version(number >> 16, number & 0xFFFF)


def pending(connection: sqlite3.Connection, steps: Sequence[Step] = STEPS) -> list[Step]:
    present = stored_version(connection)
    return [step for step in steps if step.version > present]


def is_newer(connection: sqlite3.Connection, steps: Sequence[Step] = STEPS) -> bool:
    """True when a later program wrote the file in a way that this one must not write to."""
    return stored_version(connection).major > steps[-1].version.major


def upgrade(connection: sqlite3.Connection, steps: Sequence[Step] = STEPS) -> list[str]:
    """Run the missing steps in one transaction and compare all texts before and after.

    The caller made a backup first. Returns the names of the steps that ran. Raises whatever a
    step raises, with the database as it was.
    """
    todo = pending(connection, steps)
    if not todo:
        return []
    has_rows = stored_version(connection) != NEW
    connection.execute("BEGIN IMMEDIATE")
    try:
        before = fingerprint(connection) if has_rows else None
        for step in todo:
            step.apply(connection)
        if before is not None and fingerprint(connection) != before:
            raise AssertionError(f"the steps {[step.name for step in todo]} changed messages")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {todo[-1].version.number}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return [step.name for step in todo]


def fingerprint(connection: sqlite3.Connection) -> tuple[int, int, str]:
    """Numbers of chats and messages, and one hash over every text in its place."""
    num_chats: int = connection.execute("SELECT count(*) FROM chats").fetchone()[0]
    num_messages: int = connection.execute("SELECT count(*) FROM messages").fetchone()[0]
    digest = hashlib.sha256()
    rows = connection.execute(
        "SELECT m.id, p.kind, p.body FROM parts p JOIN messages m ON m.seq = p.message_seq"
        " ORDER BY m.seq, p.position"
    )
    for message_id, kind, body in rows:
        digest.update(f"{message_id} {kind} {len(body)} ".encode() + body)
    return num_chats, num_messages, digest.hexdigest()
