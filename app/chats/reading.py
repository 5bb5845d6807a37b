"""Rows of the database as records; what is damaged in one row does not spoil the others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from hearth.app.chats import journal
from hearth.app.chats.codec import decode_ids, readable_text
from hearth.app.chats.parts import decode
from hearth.app.chats.records import Chat, Message, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearth.app.chats.database import Database, Row
    from hearth.app.chats.records import Part, Role

_CHAT = "SELECT id, title, system_prompt, created_at, updated_at, leaf_id, pinned, deleted_at"
_MESSAGES = (
    "SELECT seq, id, chat_id, parent_id, role, status, created_at, token_ids,"
    " covers, model_fingerprint, model_name, usage, finish_reason FROM messages"
    " WHERE id IN (SELECT value FROM json_each(?))"
)


def chat(database: Database, chat_id: str) -> Chat | None:
    row = database.row(f"{_CHAT} FROM chats WHERE id = ?", (chat_id,))
    return None if row is None else _chat(row)


def chats(database: Database, *, include_deleted: bool) -> list[Chat]:
    rows = database.rows(
        f"{_CHAT} FROM chats WHERE ? OR deleted_at IS NULL"
        " ORDER BY pinned DESC, updated_at DESC, seq DESC",
        (include_deleted,),
    )
    return [_chat(row) for row in rows]


def links(database: Database, chat_id: str) -> dict[str, str | None]:
    """The tree of a chat for tree.py, oldest message first."""
    sql = "SELECT id, parent_id FROM messages WHERE chat_id = ? ORDER BY seq"
    return dict(database.rows(sql, (chat_id,)))


def messages(database: Database, message_ids: Sequence[str]) -> list[Message]:
    """The known ones of ``message_ids``, in that order."""
    wanted = json.dumps(list(message_ids))
    parts: dict[int, list[Part]] = {}
    part_rows = database.rows(
        "SELECT message_seq, kind, body, meta FROM parts WHERE message_seq IN"
        " (SELECT seq FROM messages WHERE id IN (SELECT value FROM json_each(?)))"
        " ORDER BY message_seq, position",
        (wanted,),
    )
    for message_seq, kind, body, meta in part_rows:
        parts.setdefault(message_seq, []).append(decode(kind, body, meta))
    rows = database.rows(_MESSAGES, (wanted,))
    if database.read_only:
        _add_journals(database, rows, parts)
    found = {row[1]: _message(row, tuple(parts.get(row[0], ()))) for row in rows}
    return [found[message_id] for message_id in message_ids if message_id in found]


def _add_journals(database: Database, rows: list[Row], parts: dict[int, list[Part]]) -> None:
    """Interrupted replies that could not be rebuilt are still read."""
    for message_seq, *_, status in (row[:6] for row in rows):
        if status == Status.STREAMING.value:
            kept = journal.read(database.connection, message_seq)
            parts.setdefault(message_seq, []).extend(kept.parts)


def _chat(row: Row) -> Chat:
    chat_id, title, system_prompt, created_at, updated_at, leaf_id, pinned, deleted_at = row
    return Chat(
        id=chat_id,
        title=readable_text(title),
        created_at=created_at,
        updated_at=updated_at,
        leaf_id=leaf_id,
        system_prompt=readable_text(system_prompt),
        pinned=bool(pinned),
        deleted_at=deleted_at,
    )


def _message(row: Row, parts: tuple[Part, ...]) -> Message:
    _, message_id, chat_id, parent_id, role, status, created_at, packed, *about = row
    covers, fingerprint, model_name, usage, finish_reason = about
    return Message(
        id=message_id,
        chat_id=chat_id,
        parent_id=parent_id,
        role=_role(role),
        parts=parts,
        status=_status(status),
        created_at=created_at,
        token_ids=None if packed is None else decode_ids(packed),
        covers=covers,
        model_fingerprint=fingerprint,
        model_name=None if model_name is None else readable_text(model_name),
        usage=_usage(usage),
        finish_reason=finish_reason,
    )


def _role(role: str) -> Role:
    known: dict[str, Literal["system", "user"]] = {"system": "system", "user": "user"}
    return known.get(role, "assistant")


def _status(status: str) -> Status:
    try:
        return Status(status)
    except ValueError:
        return Status.INTERRUPTED


def _usage(usage: str | None) -> dict[str, float] | None:
    try:
        fields = json.loads(usage) if usage else None
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None
