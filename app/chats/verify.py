"""What ``hearth check store`` looks at: everything that can be recomputed is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearth.app.chats import search
from hearth.app.chats.failures import DamagedError
from hearth.app.chats.parts import StoredPart, decode
from hearth.app.chats.records import UnreadablePart
from hearth.engine.errors import HearthError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearth.app.chats.blobs import Blobs
    from hearth.app.chats.database import Database


def problems(database: Database, blobs: Blobs) -> list[str]:
    """One sentence per problem; empty when all is well."""
    checks: list[Callable[[], list[str]]] = [
        lambda: _sqlite(database),
        lambda: _references(database),
        lambda: _parts(database),
        blobs.problems,
    ]
    if not database.read_only:
        checks.append(lambda: _index(database))
    return [sentence for check in checks for sentence in _outcome(check)]


def _outcome(check: Callable[[], list[str]]) -> list[str]:
    """Damage that stops a check is what the check found."""
    try:
        return check()
    except DamagedError as error:
        return [error.sentence]


def _sqlite(database: Database) -> list[str]:
    rows = database.rows("PRAGMA integrity_check(20)")
    found = [message for (message,) in rows if message != "ok"]
    return [f"SQLite reports: {m}." for m in found if not search.is_about_index(m)]


def _references(database: Database) -> list[str]:
    dangling = database.rows(
        "SELECT m.id, m.parent_id FROM messages m WHERE m.parent_id IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM messages p WHERE p.id = m.parent_id AND p.chat_id = m.chat_id)"
    )
    leaves = database.rows(
        "SELECT c.id, c.leaf_id FROM chats c WHERE c.leaf_id IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM messages m WHERE m.id = c.leaf_id AND m.chat_id = c.id)"
    )
    orphans = database.rows("PRAGMA foreign_key_check")
    return [
        *(f"Message {mid} answers {parent}, which does not exist." for mid, parent in dangling),
        *(f"Chat {chat} ends in message {leaf}, which does not exist." for chat, leaf in leaves),
        *(f"Row {row} of {table} belongs to nothing." for table, row, *_ in orphans),
    ]


def _parts(database: Database) -> list[str]:
    found = []
    rows = database.rows(
        "SELECT m.id, p.position, p.kind, p.body, p.meta, p.checksum FROM parts p"
        " JOIN messages m ON m.seq = p.message_seq"
    )
    for message_id, position, kind, body, meta, checksum in rows:
        if StoredPart(kind, bytes(body), meta).checksum != checksum:
            found.append(f"Part {position} of message {message_id} was altered on the disk.")
        elif isinstance(decode(kind, body, meta), UnreadablePart):
            found.append(f"Part {position} of message {message_id} cannot be read; it is kept.")
    return found


def _index(database: Database) -> list[str]:
    try:
        search.index_pending(database)
        search.check(database)
    except HearthError:
        search.rebuild(database)
        return ["The search index did not match the messages; it has been made again."]
    return []
