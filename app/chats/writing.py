"""The statements that change rows; the caller holds the transaction."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hearth.app.chats import journal
from hearth.app.chats.codec import encode_ids, encode_text
from hearth.app.chats.parts import encode

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from hearth.app.chats.records import Chat, Message, Part, Status

CHAT_COLUMNS = frozenset({"title", "system_prompt", "pinned", "leaf_id", "deleted_at"})


def insert_chat(connection: sqlite3.Connection, chat: Chat) -> None:
    connection.execute(
        "INSERT INTO chats(id, title, system_prompt, created_at, updated_at)"
        " VALUES (?, ?, ?, ?, ?)",
        (
            chat.id,
            encode_text(chat.title),
            encode_text(chat.system_prompt),
            chat.created_at,
            chat.updated_at,
        ),
    )


def set_chat(
    connection: sqlite3.Connection, chat_id: str, column: str, value: bytes | str | float | None
) -> None:
    assert column in CHAT_COLUMNS, f"chats have no column {column}"
    connection.execute(f"UPDATE chats SET {column} = ? WHERE id = ?", (value, chat_id))  # noqa: S608


def insert_message(connection: sqlite3.Connection, message: Message) -> None:
    """Add a message with its parts and make it the end of the branch in view."""
    cursor = connection.execute(
        "INSERT INTO messages(id, chat_id, parent_id, role, status, created_at, token_ids,"
        " model_fingerprint, model_name) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            message.id,
            message.chat_id,
            message.parent_id,
            message.role,
            message.status.value,
            message.created_at,
            None if message.token_ids is None else encode_ids(message.token_ids),
            message.model_fingerprint,
            None if message.model_name is None else encode_text(message.model_name),
        ),
    )
    assert cursor.lastrowid is not None, "the message has just been inserted"
    insert_parts(connection, cursor.lastrowid, message.parts)
    connection.execute(
        "UPDATE chats SET leaf_id = ?, updated_at = ? WHERE id = ?",
        (message.id, message.created_at, message.chat_id),
    )


def insert_parts(connection: sqlite3.Connection, message_seq: int, parts: Sequence[Part]) -> None:
    for position, part in enumerate(parts):
        stored = encode(part)
        connection.execute(
            "INSERT INTO parts(message_seq, position, kind, body, meta, name, blob_sha256,"
            " checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                message_seq,
                position,
                stored.kind,
                stored.body,
                stored.meta,
                stored.name,
                stored.blob_sha256,
                stored.checksum,
            ),
        )


def finish(
    connection: sqlite3.Connection,
    message_id: str,
    status: Status,
    parts: Sequence[Part],
    token_ids: Sequence[int] | None,
) -> None:
    """Replace the journal of a reply by its parts. May be repeated: the last call counts."""
    message_seq: int = connection.execute(
        "SELECT seq FROM messages WHERE id = ?", (message_id,)
    ).fetchone()[0]
    connection.execute("DELETE FROM parts WHERE message_seq = ?", (message_seq,))
    insert_parts(connection, message_seq, parts)
    connection.execute(
        "UPDATE messages SET status = ?, token_ids = ? WHERE seq = ?",
        (status.value, None if token_ids is None else encode_ids(token_ids), message_seq),
    )
    journal.clear(connection, message_seq)


def set_outcome(
    connection: sqlite3.Connection,
    message_id: str,
    usage: dict[str, float] | None,
    finish_reason: str | None,
) -> None:
    connection.execute(
        "UPDATE messages SET usage = ?, finish_reason = ? WHERE id = ?",
        (None if usage is None else json.dumps(usage), finish_reason, message_id),
    )


def set_token_ids(
    connection: sqlite3.Connection,
    message_id: str,
    token_ids: Sequence[int],
    model_fingerprint: str,
    covers: int,
) -> None:
    connection.execute(
        "UPDATE messages SET token_ids = ?, model_fingerprint = ?, covers = ? WHERE id = ?",
        (encode_ids(token_ids), model_fingerprint, covers, message_id),
    )
