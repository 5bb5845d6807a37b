"""The store of truth: chats, messages, what was typed, what was answered.

A user's message is on the disk (WAL, synchronous=FULL) before this module returns. A reply that is
being written is journalled; after a crash it is rebuilt from the journal.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any

from hearth.app.chats import codec, database, tree
from hearth.app.chats.blobs import BlobStore
from hearth.app.chats.records import (
    AttachmentPart,
    Chat,
    ChatId,
    ErrorPart,
    Message,
    MessageId,
    Part,
    Recovery,
    Role,
    SearchHit,
    Status,
    TextPart,
)
from hearth.app.chats.search import Scope, search
from hearth.engine.errors import MachineError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PURGE_AFTER_S = 30 * 24 * 3600.0


class ChatStore:
    """Owns ``chats.sqlite3``, ``blobs/`` and ``backups/`` in one folder; used from one thread.

    Attributes:
        recovery: what opening found and mended, for one banner.
    """

    def __init__(self, folder: Path) -> None:
        self._owner = threading.get_ident()
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise MachineError(
                f"The folder {folder} cannot be used: {error.strerror}.",
                action="Set HEARTH_HOME to a folder you may write to, or use --temp-profile.",
            ) from error
        self._path = folder / "chats.sqlite3"
        opened = database.open_database(self._path)
        self._connection = opened.connection
        self._read_only = opened.read_only
        self._blobs = BlobStore(folder / "blobs", self._connection)
        interrupted: tuple[MessageId, ...] = ()
        if not self._read_only:
            database.keep_ballast(folder)
            interrupted = self._rebuild_interrupted()
        self.recovery = Recovery(interrupted, opened.notices, opened.read_only)

    def close(self) -> None:
        self._check_thread()
        self._connection.close()

    def _check_thread(self) -> None:
        assert threading.get_ident() == self._owner, "the store belongs to one thread"

    @contextlib.contextmanager
    def _write(self) -> Iterator[None]:
        """A transaction that is on the disk when it ends. A full disk gives up the ballast, so that
        the next, smaller write (finishing, deleting) can succeed."""
        self._check_thread()
        if self._read_only:
            raise MachineError("These chats can only be read here: a newer Hearth wrote them.")
        try:
            with database.machine_errors(), database.transaction(self._connection):
                yield
        except MachineError as error:
            if database.is_disk_full(error):
                database.drop_ballast(self._folder)
            raise

    # --------------------------------------------------------------------------------------- chats

    def create_chat(self, *, title: str = "", system_prompt: str = "") -> Chat:
        now = time.time()
        chat = Chat(_new_id(), title, now, now, None, system_prompt)
        with self._write():
            self._connection.execute(
                "INSERT INTO chat VALUES (?, ?, ?, ?, ?, NULL, 0, NULL)",
                (chat.id, codec.encode_text(title), codec.encode_text(system_prompt), now, now),
            )
        return chat

    def chat(self, chat_id: ChatId) -> Chat:
        """Raises UserError when there is no such chat."""
        self._check_thread()
        row = self._connection.execute(_CHATS + "WHERE id = ?", (chat_id,)).fetchone()
        if row is None:
            raise UserError("This chat does not exist any more.")
        return _chat(row)

    def chats(self, *, include_deleted: bool = False) -> list[Chat]:
        """Pinned first, then by last change, newest first."""
        self._check_thread()
        where = "" if include_deleted else "WHERE deleted_at IS NULL "
        rows = self._connection.execute(_CHATS + where + "ORDER BY pinned DESC, updated_at DESC")
        return [_chat(row) for row in rows]

    def _set(self, chat_id: ChatId, column: str, value: object) -> None:
        with self._write():
            statement = f"UPDATE chat SET {column} = ? WHERE id = ?"  # noqa: S608 - own names
            self._connection.execute(statement, (value, chat_id))

    def set_title(self, chat_id: ChatId, title: str) -> None:
        self._set(chat_id, "title", codec.encode_text(title))

    def set_system_prompt(self, chat_id: ChatId, text: str) -> None:
        self._set(chat_id, "system_prompt", codec.encode_text(text))

    def set_pinned(self, chat_id: ChatId, *, pinned: bool) -> None:
        self._set(chat_id, "pinned", int(pinned))

    def set_leaf(self, chat_id: ChatId, message_id: MessageId) -> None:
        self._set(chat_id, "leaf_id", message_id)

    def delete_chat(self, chat_id: ChatId) -> None:
        """Into the bin; ``restore_chat`` takes it back, ``purge`` empties it after 30 days."""
        self._set(chat_id, "deleted_at", time.time())

    def restore_chat(self, chat_id: ChatId) -> None:
        self._set(chat_id, "deleted_at", None)

    def purge(self, *, older_than_s: float = PURGE_AFTER_S) -> int:
        """Remove chats that were deleted long ago, and attachments nobody refers to."""
        limit = time.time() - older_than_s
        with self._write():
            cursor = self._connection.execute("DELETE FROM chat WHERE deleted_at < ?", (limit,))
        referred = {
            part.blob_sha256
            for (raw,) in self._connection.execute("SELECT data FROM part WHERE kind='attachment'")
            if isinstance(part := codec.decode_part("attachment", raw), AttachmentPart)
        }
        for digest in self._blobs.digests():
            if digest not in referred:
                self._blobs.drop(digest)
        return cursor.rowcount

    # ------------------------------------------------------------------------------------ messages

    def add_message(
        self,
        chat_id: ChatId,
        parent_id: MessageId | None,
        role: Role,
        parts: Sequence[Part],
        *,
        token_ids: Sequence[int] | None = None,
        model_fingerprint: str | None = None,
    ) -> Message:
        """Save a message durably; it becomes the end of the branch in view."""
        message = Message(
            id=_new_id(),
            chat_id=chat_id,
            parent_id=parent_id,
            role=role,
            parts=tuple(parts),
            status=Status.COMPLETE,
            created_at=time.time(),
            token_ids=None if token_ids is None else tuple(token_ids),
            model_fingerprint=model_fingerprint,
        )
        with self._write():
            self._insert(message)
        return message

    def begin_reply(
        self, chat_id: ChatId, parent_id: MessageId, *, model_name: str, model_fingerprint: str
    ) -> Message:
        """An empty reply that is being written."""
        message = Message(
            id=_new_id(),
            chat_id=chat_id,
            parent_id=parent_id,
            role="assistant",
            parts=(),
            status=Status.STREAMING,
            created_at=time.time(),
            model_fingerprint=model_fingerprint,
            model_name=model_name,
        )
        with self._write():
            self._insert(message)
        return message

    def _insert(self, message: Message) -> None:
        ids = None if message.token_ids is None else codec.encode_ids(message.token_ids)
        cursor = self._connection.execute(
            "INSERT INTO message (id, chat_id, parent_id, role, status, created_at, token_ids, "
            "model_fingerprint, model_name, search_text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                message.id,
                message.chat_id,
                message.parent_id,
                message.role,
                message.status.value,
                message.created_at,
                ids,
                message.model_fingerprint,
                message.model_name,
                codec.searchable(message.parts),
            ),
        )
        self._insert_parts(cursor.lastrowid, message.parts)
        self._connection.execute(
            "UPDATE chat SET leaf_id = ?, updated_at = ? WHERE id = ?",
            (message.id, message.created_at, message.chat_id),
        )

    def _insert_parts(self, number: int | None, parts: Sequence[Part]) -> None:
        assert number is not None, "the message has been inserted"
        rows = [(number, place, *codec.encode_part(part)) for place, part in enumerate(parts)]
        self._connection.executemany("INSERT INTO part VALUES (?, ?, ?, ?)", rows)

    def journal(
        self, message_id: MessageId, text_delta: str, token_ids_delta: Sequence[int]
    ) -> None:
        """Append to a reply's journal; does not wait for the disk (a crash of the program loses
        nothing, a power cut at most what the system had not written)."""
        self._connection.execute("PRAGMA synchronous = NORMAL")
        try:
            with self._write():
                self._connection.execute(
                    "INSERT INTO journal (message_id, text, token_ids) VALUES (?, ?, ?)",
                    (
                        message_id,
                        codec.encode_text(text_delta),
                        codec.encode_ids(token_ids_delta),
                    ),
                )
        finally:
            self._connection.execute("PRAGMA synchronous = FULL")

    def finish_reply(
        self,
        message_id: MessageId,
        *,
        status: Status,
        text: str,
        token_ids: Sequence[int],
        usage: dict[str, float] | None = None,
        finish_reason: str | None = None,
        error: str | None = None,
    ) -> Message:
        """The whole reply in one transaction; its journal is dropped."""
        parts: list[Part] = [TextPart(text)] if text else []
        if error is not None:
            parts.append(ErrorPart(error))
        with self._write():
            self._finish(message_id, status, parts, token_ids)
            self._connection.execute(
                "UPDATE message SET usage = ?, finish_reason = ? WHERE id = ?",
                (None if usage is None else json.dumps(usage), finish_reason, message_id),
            )
        return self.message(message_id)

    def _finish(
        self,
        message_id: MessageId,
        status: Status,
        parts: Sequence[Part],
        token_ids: Sequence[int],
    ) -> None:
        number = self._connection.execute(
            "SELECT number FROM message WHERE id = ?", (message_id,)
        ).fetchone()[0]
        self._connection.execute("DELETE FROM part WHERE message_number = ?", (number,))
        self._insert_parts(number, parts)
        self._connection.execute(
            "UPDATE message SET status = ?, token_ids = ?, search_text = ? WHERE number = ?",
            (status.value, codec.encode_ids(token_ids), codec.searchable(parts), number),
        )
        self._connection.execute("DELETE FROM journal WHERE message_id = ?", (message_id,))

    def _rebuild_interrupted(self) -> tuple[MessageId, ...]:
        """Replies that were being written when the program ended: text from the journal."""
        rows = self._connection.execute("SELECT id FROM message WHERE status = 'streaming'")
        interrupted = [row[0] for row in rows]
        for message_id in interrupted:
            pieces = self._connection.execute(
                "SELECT text, token_ids FROM journal WHERE message_id = ? ORDER BY number",
                (message_id,),
            ).fetchall()
            text = "".join(codec.decode_text(raw) for raw, _ in pieces)
            ids = [token for _, raw in pieces for token in codec.decode_ids(raw)]
            with self._write():
                parts = [TextPart(text)] if text else []
                self._finish(message_id, Status.INTERRUPTED, parts, ids)
        return tuple(interrupted)

    def set_token_ids(
        self,
        message_id: MessageId,
        token_ids: Sequence[int],
        model_fingerprint: str,
        *,
        covers: int = 0,
    ) -> None:
        """The ids that a message's turn and the ``covers`` messages before it became."""
        with self._write():
            self._connection.execute(
                "UPDATE message SET token_ids = ?, model_fingerprint = ?, covers = ? WHERE id = ?",
                (codec.encode_ids(token_ids), model_fingerprint, covers, message_id),
            )

    # ------------------------------------------------------------------------------------- reading

    def message(self, message_id: MessageId) -> Message:
        """Raises UserError when there is no such message."""
        found = self._messages("m.id = ?", (message_id,))
        if not found:
            raise UserError("This message does not exist any more.")
        return found[0]

    def path(self, leaf_id: MessageId) -> list[Message]:
        """The branch that ends with ``leaf_id``, root first."""
        order, parents = self._links(leaf_id)
        wanted = tree.path_to(leaf_id, parents)
        if not order:
            return []
        chat_id = self._chat_of(leaf_id)
        known = {message.id: message for message in self._messages("m.chat_id = ?", (chat_id,))}
        return [known[message_id] for message_id in wanted]

    def siblings(self, message_id: MessageId) -> list[MessageId]:
        """Versions of a message, oldest first, itself included."""
        order, parents = self._links(message_id)
        return tree.siblings_of(message_id, order, parents) if order else []

    def children(self, message_id: MessageId) -> list[MessageId]:
        order, parents = self._links(message_id)
        return tree.children_of(message_id, order, parents)

    def leaf_below(self, message_id: MessageId) -> MessageId:
        """The end of the newest branch through ``message_id``."""
        order, parents = self._links(message_id)
        return tree.newest_leaf_below(message_id, order, parents)

    def versions(self, chat_id: ChatId) -> dict[MessageId, list[MessageId]]:
        """For every message of a chat its versions; one query for a whole view."""
        order, parents = self._links_of_chat(chat_id)
        by_parent: dict[MessageId | None, list[MessageId]] = {}
        for message in order:
            parent = parents[message]
            by_parent.setdefault(parent if parent in parents else None, []).append(message)
        return {m: group for group in by_parent.values() for m in group}

    def _chat_of(self, message_id: MessageId) -> ChatId | None:
        row = self._connection.execute(
            "SELECT chat_id FROM message WHERE id = ?", (message_id,)
        ).fetchone()
        return None if row is None else str(row[0])

    def _links(
        self, message_id: MessageId
    ) -> tuple[list[MessageId], dict[MessageId, MessageId | None]]:
        self._check_thread()
        chat_id = self._chat_of(message_id)
        return ([], {}) if chat_id is None else self._links_of_chat(chat_id)

    def _links_of_chat(
        self, chat_id: ChatId
    ) -> tuple[list[MessageId], dict[MessageId, MessageId | None]]:
        rows = self._connection.execute(
            "SELECT id, parent_id FROM message WHERE chat_id = ? ORDER BY number", (chat_id,)
        ).fetchall()
        return [row[0] for row in rows], dict(rows)

    def _messages(self, condition: str, arguments: tuple[object, ...]) -> list[Message]:
        self._check_thread()
        rows = self._connection.execute(
            _MESSAGES + condition + " ORDER BY m.number", arguments
        ).fetchall()
        parts: dict[int, list[Part]] = {}
        statement = (
            "SELECT p.message_number, p.kind, p.data FROM part AS p JOIN message AS m "  # noqa: S608
            f"ON m.number = p.message_number WHERE {condition} ORDER BY p.message_number, p.place"
        )
        for number, kind, data in self._connection.execute(statement, arguments):
            parts.setdefault(number, []).append(codec.decode_part(kind, data))
        return [_message(row, parts.get(row[0], [])) for row in rows]

    def search(self, query: str, *, scope: Scope = "all", limit: int = 50) -> list[SearchHit]:
        self._check_thread()
        return search(self._connection, query, scope, limit)

    # ------------------------------------------------------------------------ blobs, backup, check

    def put_blob(self, data: bytes) -> str:
        with self._write():
            return self._blobs.put(data)

    def blob(self, sha256: str) -> bytes:
        return self._blobs.get(sha256)

    def back_up_daily(self) -> bool:
        """Make a backup when the newest is older than a day; True when one was made."""
        self._check_thread()
        if self._read_only or not database.needs_daily_backup(self._path):
            return False
        with database.machine_errors():
            database.back_up(self._connection, self._path, "daily")
        return True

    def verify(self) -> list[str]:
        """Problems as sentences; empty when all is well."""
        from hearth.app.chats.verify import problems

        self._check_thread()
        return problems(self._connection, self._blobs)


_CHATS = """
SELECT id, title, system_prompt, created_at, updated_at, leaf_id, pinned, deleted_at FROM chat
"""
_MESSAGES = (
    "SELECT m.number, m.id, m.chat_id, m.parent_id, m.role, m.status, m.created_at, m.token_ids, "
    "m.model_fingerprint, m.model_name, m.usage, m.finish_reason, m.covers FROM message AS m WHERE "
)


def _new_id() -> str:
    return secrets.token_hex(12)


def _chat(row: tuple[Any, ...]) -> Chat:
    return Chat(
        id=row[0],
        title=codec.decode_text(row[1]),
        system_prompt=codec.decode_text(row[2]),
        created_at=row[3],
        updated_at=row[4],
        leaf_id=row[5],
        pinned=bool(row[6]),
        deleted_at=row[7],
    )


def _message(row: tuple[Any, ...], parts: Sequence[Part]) -> Message:
    return Message(
        id=row[1],
        chat_id=row[2],
        parent_id=row[3],
        role=row[4],
        parts=tuple(parts),
        status=Status(row[5]),
        created_at=row[6],
        token_ids=None if row[7] is None else codec.decode_ids(row[7]),
        model_fingerprint=row[8],
        model_name=row[9],
        usage=None if row[10] is None else json.loads(row[10]),
        finish_reason=row[11],
        covers=row[12],
    )
