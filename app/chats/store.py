"""The store of truth: chats, messages, what was typed, what was answered.

A user's message is on the disk (WAL, synchronous=FULL) before this module returns. A reply that is
being written is journalled; after a crash it is rebuilt from the journal.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, TypeVar

from hearth.app.chats import backup, journal, reading, search, tree, verify, writing
from hearth.app.chats.ballast import Ballast
from hearth.app.chats.blobs import Blobs
from hearth.app.chats.codec import encode_text
from hearth.app.chats.failures import DiskFullError, IndexDamagedError, guard
from hearth.app.chats.files import make_private_folder
from hearth.app.chats.migrations import STEPS
from hearth.app.chats.opening import open_database, open_to_read
from hearth.app.chats.records import (
    Chat,
    ChatId,
    Message,
    MessageId,
    Part,
    ReasoningPart,
    Recovery,
    Role,
    SearchHit,
    Status,
    reply_parts,
)
from hearth.engine.errors import MachineError, UserError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hearth.app.chats.migrations import Step
    from hearth.app.chats.search import Scope

PURGE_AFTER_S = 30 * 24 * 3600.0
Result = TypeVar("Result")


class ChatStore:
    """Owns ``chats.sqlite3``, ``blobs/``, ``backups/`` and ``ballast`` in one folder.

    It belongs to the thread that opens it. Every writing method either stores all it was given or
    raises MachineError (disk full, locked, read-only...) with the database as it was before.

    Attributes:
        recovery: what opening found and mended, for one banner.
    """

    def __init__(self, folder: Path, *, steps: Sequence[Step] = STEPS) -> None:
        _prepare(folder)
        self._backups = folder / "backups"
        opened = open_database(folder / "chats.sqlite3", self._backups, steps)
        self._database = opened.database
        self._blobs = Blobs(self._database, folder / "blobs")
        self._ballast = Ballast(folder / "ballast")
        interrupted, notices = self._mend_replies()
        notices = (*opened.notices, *notices)
        self.recovery = Recovery(interrupted, notices, self._database.read_only)

    def close(self) -> None:
        """Close the files. Nothing that matters is written: it has been already."""
        self._database.close()

    def _mend_replies(self) -> tuple[tuple[MessageId, ...], tuple[str, ...]]:
        """Rebuild interrupted replies; on a full disk the store turns to reading only."""
        if self._database.read_only:
            return (), ()
        try:
            interrupted = self._write(_rebuild_interrupted, is_essential=True)
            self._ballast.take()
        except DiskFullError as error:
            self._database.close()
            opened = open_to_read(self._database.path, error)
            self._database = self._blobs.database = opened.database
            return (), tuple(opened.notices)
        return interrupted, ()

    def _write(
        self,
        work: Callable[[sqlite3.Connection], Result],
        *,
        durable: bool = True,
        is_essential: bool = False,
    ) -> Result:
        """Run ``work`` in one transaction. On a full disk an essential write (one that finishes or
        deletes something) is tried again in the space that the ballast held."""
        try:
            return self._transact(work, durable=durable)
        except DiskFullError:
            if not is_essential or not self._ballast.release():
                raise
        except IndexDamagedError:
            search.rebuild(self._database)
        return self._transact(work, durable=durable)

    def _transact(self, work: Callable[[sqlite3.Connection], Result], *, durable: bool) -> Result:
        with self._database.writing(durable=durable) as connection:
            return work(connection)

    # --------------------------------------------------------------------------------------- chats

    def create_chat(self, *, title: str = "", system_prompt: str = "") -> Chat:
        now = time.time()
        chat = Chat(_new_id(), title, now, now, None, system_prompt)
        self._write(lambda connection: writing.insert_chat(connection, chat))
        return chat

    def chat(self, chat_id: ChatId) -> Chat:
        """Raises UserError when there is no such chat."""
        found = reading.chat(self._database, chat_id)
        if found is None:
            raise UserError("This chat does not exist any more.")
        return found

    def chats(self, *, include_deleted: bool = False) -> list[Chat]:
        """Pinned first, then by last change, newest first."""
        return reading.chats(self._database, include_deleted=include_deleted)

    def set_title(self, chat_id: ChatId, title: str) -> None:
        self._set(chat_id, "title", encode_text(title))

    def set_system_prompt(self, chat_id: ChatId, text: str) -> None:
        self._set(chat_id, "system_prompt", encode_text(text))

    def set_pinned(self, chat_id: ChatId, *, pinned: bool) -> None:
        self._set(chat_id, "pinned", int(pinned))

    def set_leaf(self, chat_id: ChatId, message_id: MessageId) -> None:
        """Choose the branch in view by its end."""
        self._set(chat_id, "leaf_id", message_id)

    def delete_chat(self, chat_id: ChatId) -> None:
        """Into the bin; ``restore_chat`` takes it back, ``purge`` empties it after 30 days."""
        self._set(chat_id, "deleted_at", time.time())

    def restore_chat(self, chat_id: ChatId) -> None:
        self._set(chat_id, "deleted_at", None)

    def _set(self, chat_id: ChatId, column: str, value: bytes | str | float | None) -> None:
        self._write(
            lambda connection: writing.set_chat(connection, chat_id, column, value),
            is_essential=True,
        )

    def purge(self, *, older_than_s: float = PURGE_AFTER_S) -> int:
        """Remove chats that were deleted long ago, and attachments that nothing names; how many
        chats. Called at the start; does nothing when reading only."""
        if self._database.read_only:
            return 0
        limit = time.time() - older_than_s
        sql = "DELETE FROM chats WHERE deleted_at <= ?"
        purged = self._write(
            lambda connection: connection.execute(sql, (limit,)).rowcount, is_essential=True
        )
        self._blobs.collect()
        self._ballast.take()
        return purged

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
        self._write(lambda connection: writing.insert_message(connection, message))
        return message

    def begin_reply(
        self, chat_id: ChatId, parent_id: MessageId, *, model_name: str, model_fingerprint: str
    ) -> Message:
        """An empty reply that is being written; it becomes the end of the branch in view."""
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
        self._write(lambda connection: writing.insert_message(connection, message))
        return message

    def journal(
        self,
        message_id: MessageId,
        text_delta: str,
        token_ids_delta: Sequence[int],
        reasoning_delta: ReasoningPart | None = None,
    ) -> None:
        """Keep the next piece of a running reply, at most once a second. The seconds of
        ``reasoning_delta`` count from the beginning of the reasoning.

        Survives the death of the program at once, and that of the machine when the system writes
        it. On MachineError (disk full) nothing of the piece was kept: go on, and pass it again
        together with the next one.
        """
        self._write(
            lambda connection: journal.append(
                connection, message_id, text_delta, token_ids_delta, reasoning_delta
            ),
            durable=False,
        )

    def finish_reply(
        self,
        message_id: MessageId,
        *,
        status: Status,
        text: str,
        token_ids: Sequence[int],
        reasoning: ReasoningPart | None = None,
        usage: dict[str, float] | None = None,
        finish_reason: str | None = None,
        error: str | None = None,
    ) -> Message:
        """The whole reply in one durable transaction; its journal is dropped.

        On MachineError the journal keeps what it had, and the call can be repeated.
        """
        parts = reply_parts(text, reasoning, error)

        def finish(connection: sqlite3.Connection) -> None:
            writing.finish(connection, message_id, status, parts, token_ids)
            writing.set_outcome(connection, message_id, usage, finish_reason)

        self._write(finish, is_essential=True)
        return self.message(message_id)

    def set_token_ids(
        self,
        message_id: MessageId,
        token_ids: Sequence[int],
        model_fingerprint: str,
        *,
        covers: int = 0,
    ) -> None:
        """The ids that a message's turn and the ``covers`` messages before it became."""
        self._write(
            lambda connection: writing.set_token_ids(
                connection, message_id, token_ids, model_fingerprint, covers
            )
        )

    # ------------------------------------------------------------------------------------- reading

    def message(self, message_id: MessageId) -> Message:
        """Raises UserError when there is no such message."""
        found = reading.messages(self._database, (message_id,))
        if not found:
            raise UserError("This message does not exist any more.")
        return found[0]

    def path(self, leaf_id: MessageId) -> list[Message]:
        """The branch that ends with ``leaf_id``, root first; empty for an unknown message."""
        return reading.messages(self._database, tree.path(self._links(leaf_id), leaf_id))

    def siblings(self, message_id: MessageId) -> list[MessageId]:
        """Versions of a message, oldest first, itself included."""
        return tree.siblings(self._links(message_id), message_id)

    def children(self, message_id: MessageId) -> list[MessageId]:
        return tree.children(self._links(message_id), message_id)

    def leaf_below(self, message_id: MessageId) -> MessageId:
        """The newest end of a branch through ``message_id``."""
        return tree.leaf_below(self._links(message_id), message_id)

    def versions(self, chat_id: ChatId) -> dict[MessageId, list[MessageId]]:
        """For every message of a chat its versions; one query for a whole view."""
        return tree.versions(reading.links(self._database, chat_id))

    def _links(self, message_id: MessageId) -> dict[MessageId, MessageId | None]:
        row = self._database.row("SELECT chat_id FROM messages WHERE id = ?", (message_id,))
        return {} if row is None else reading.links(self._database, row[0])

    # --------------------------------------------------------------------- search, blobs, upkeep

    def search(self, query: str, *, scope: Scope = "all", limit: int = 50) -> list[SearchHit]:
        """Newest first, one hit per message; any string is a valid query."""
        try:
            return search.search(self._database, query, scope=scope, limit=limit)
        except IndexDamagedError:
            search.rebuild(self._database)
        return search.search(self._database, query, scope=scope, limit=limit)

    def index(self, *, limit_s: float) -> bool:
        """Prepare the search for new messages while idle; True when nothing is left to do."""
        return search.index_pending(self._database, limit_s=limit_s)

    def put_blob(self, data: bytes) -> str:
        """Keep an attachment's bytes durably; returns their sha256."""
        return self._blobs.put(data)

    def blob(self, sha256: str) -> bytes:
        """The exact bytes. Raises MachineError when they are gone or were altered."""
        return self._blobs.get(sha256)

    def backup(self) -> Path:
        """Copy the database into ``backups/``, where the newest three are kept."""
        return backup.make(self._database, self._backups)

    def back_up_daily(self) -> bool:
        """Make a backup when the newest is older than a day; True when one was made."""
        if self._database.read_only or not backup.is_due(self._backups):
            return False
        self.backup()
        return True

    def verify(self) -> list[str]:
        """Problems as sentences; empty when all is well."""
        return verify.problems(self._database, self._blobs)


def _prepare(folder: Path) -> None:
    try:
        with guard(folder / "chats.sqlite3"):
            make_private_folder(folder)
            make_private_folder(folder / "blobs")
    except MachineError:
        if not folder.is_dir():  # else it can be read, and opening says what is wrong
            raise


def _rebuild_interrupted(connection: sqlite3.Connection) -> tuple[MessageId, ...]:
    """Replies that were being written when the program ended get their text from the journal."""
    sql = "SELECT seq, id FROM messages WHERE status = 'streaming' ORDER BY seq"
    running = connection.execute(sql).fetchall()
    for message_seq, message_id in running:
        kept = journal.read(connection, message_seq)
        writing.finish(connection, message_id, Status.INTERRUPTED, kept.parts, kept.token_ids)
    return tuple(message_id for _, message_id in running)


def _new_id() -> str:
    return secrets.token_hex(12)
