"""The part of a reply that has arrived so far, appended at most once a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearth.app.chats.codec import decode_ids, decode_text, encode_ids, encode_text, readable_text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence


def append(
    connection: sqlite3.Connection, message_id: str, text: str, token_ids: Sequence[int]
) -> None:
    connection.execute(
        "INSERT INTO journal SELECT m.seq, (SELECT coalesce(max(position) + 1, 0) FROM journal"
        " WHERE message_seq = m.seq), ?, ? FROM messages m WHERE m.id = ?",
        (encode_text(text), encode_ids(token_ids), message_id),
    )


def read(connection: sqlite3.Connection, message_seq: int) -> tuple[str, tuple[int, ...] | None]:
    """Text and ids so far. The ids are None when an entry was damaged: text counts more."""
    texts: list[str] = []
    all_ids: list[int] = []
    whole = True
    rows = connection.execute(
        "SELECT body, token_ids FROM journal WHERE message_seq = ? ORDER BY position",
        (message_seq,),
    )
    for body, packed in rows:
        token_ids = decode_ids(packed)
        try:
            texts.append(decode_text(body))
        except UnicodeDecodeError:
            texts.append(readable_text(body))
            whole = False
        whole = whole and token_ids is not None
        all_ids.extend(token_ids or ())
    return "".join(texts), tuple(all_ids) if whole else None


def clear(connection: sqlite3.Connection, message_seq: int) -> None:
    connection.execute("DELETE FROM journal WHERE message_seq = ?", (message_seq,))
