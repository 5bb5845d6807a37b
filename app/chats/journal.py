"""The part of a reply that has arrived so far, appended at most once a second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.app.chats.codec import decode_ids, decode_text, encode_ids, encode_text, readable_text
from hearth.app.chats.records import Part, ReasoningPart, TextPart

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Journalled:
    """What of a reply was kept. The ids are None when an entry was damaged: text counts more."""

    parts: tuple[Part, ...]
    token_ids: tuple[int, ...] | None


def append(
    connection: sqlite3.Connection,
    message_id: str,
    text: str,
    token_ids: Sequence[int],
    reasoning: ReasoningPart | None = None,
) -> None:
    """``reasoning``: its new text, and its seconds from the beginning."""
    connection.execute(
        "INSERT INTO journal SELECT m.seq, (SELECT coalesce(max(position) + 1, 0) FROM journal"
        " WHERE message_seq = m.seq), ?, ? FROM messages m WHERE m.id = ?",
        (encode_text(text), encode_ids(token_ids), message_id),
    )
    if reasoning is not None:
        connection.execute(
            "INSERT INTO reasoning_journal SELECT m.seq, (SELECT coalesce(max(position) + 1, 0)"
            " FROM reasoning_journal WHERE message_seq = m.seq), ?, ? FROM messages m"
            " WHERE m.id = ?",
            (encode_text(reasoning.text), reasoning.seconds, message_id),
        )


def read(connection: sqlite3.Connection, message_seq: int) -> Journalled:
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
    parts = [*_reasoning(connection, message_seq)]
    if text := "".join(texts):
        parts.append(TextPart(text))
    return Journalled(tuple(parts), tuple(all_ids) if whole else None)


def _reasoning(connection: sqlite3.Connection, message_seq: int) -> list[Part]:
    """None or one. A file that could not be upgraded has no such table."""
    if not connection.execute(
        "SELECT 1 FROM sqlite_master WHERE name = 'reasoning_journal'"
    ).fetchone():
        return []
    rows = connection.execute(
        "SELECT body, seconds FROM reasoning_journal WHERE message_seq = ? ORDER BY position",
        (message_seq,),
    ).fetchall()
    text = "".join(readable_text(body) for body, _ in rows)
    return [ReasoningPart(text, rows[-1][1])] if text else []


def clear(connection: sqlite3.Connection, message_seq: int) -> None:
    connection.execute("DELETE FROM journal WHERE message_seq = ?", (message_seq,))
    connection.execute("DELETE FROM reasoning_journal WHERE message_seq = ?", (message_seq,))
