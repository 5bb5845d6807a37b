"""What ``hearth check store`` looks at: everything that can be recomputed is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearth.app.chats import codec
from hearth.app.chats.records import AttachmentPart, UnreadablePart
from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    import sqlite3

    from hearth.app.chats.blobs import BlobStore


def problems(connection: sqlite3.Connection, blobs: BlobStore) -> list[str]:
    """One sentence a problem."""
    found: list[str] = []
    check = connection.execute("PRAGMA integrity_check(10)").fetchall()
    found += [f"SQLite reports: {row[0]}." for row in check if row[0] != "ok"]
    found += _links(connection)
    found += _parts(connection, blobs)
    found += _search(connection)
    return found


def _links(connection: sqlite3.Connection) -> list[str]:
    dangling = connection.execute(
        "SELECT count(*) FROM message AS m WHERE parent_id IS NOT NULL AND NOT EXISTS "
        "(SELECT 1 FROM message AS p WHERE p.id = m.parent_id AND p.chat_id = m.chat_id)"
    ).fetchone()[0]
    leaves = connection.execute(
        "SELECT count(*) FROM chat WHERE leaf_id IS NOT NULL AND leaf_id NOT IN "
        "(SELECT id FROM message WHERE message.chat_id = chat.id)"
    ).fetchone()[0]
    result = []
    if dangling:
        result.append(f"{dangling} messages refer to a parent that is not there.")
    if leaves:
        result.append(f"{leaves} chats end in a message that is not there.")
    return result


def _parts(connection: sqlite3.Connection, blobs: BlobStore) -> list[str]:
    result = []
    unreadable = 0
    for kind, data in connection.execute("SELECT kind, data FROM part"):
        part = codec.decode_part(kind, data)
        unreadable += isinstance(part, UnreadablePart)
        if isinstance(part, AttachmentPart):
            try:
                blobs.get(part.blob_sha256)
            except MachineError as error:
                result.append(f"{part.name}: {error}")
    if unreadable:
        result.append(f"{unreadable} message parts cannot be read; their bytes are kept.")
    return result


def _search(connection: sqlite3.Connection) -> list[str]:
    import sqlite3

    result = []
    for table in ("words", "pieces"):
        try:
            command = f"INSERT INTO {table} ({table}) VALUES ('integrity-check')"  # noqa: S608
            connection.execute(command)
        except sqlite3.DatabaseError:
            result.append(f"The search index {table} does not match the messages.")
    return result
