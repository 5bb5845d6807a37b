"""Replies that are being written: their text in memory, and how it reaches the disk.

A disk that refuses is said once and never ends a reply: what could not be written stays in memory
and is tried again every second.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hearth.app.chats.records import ReasoningPart, Status, reply_parts
from hearth.app.updates import Notice, ReplyFinished, ReplyStarted
from hearth.engine.errors import HearthError, MachineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearth.app.chats.records import ChatId, Message, MessageId
    from hearth.app.chats.store import ChatStore
    from hearth.app.updates import Update
    from hearth.engine.protocol import ModelInfo, Prompt

JOURNAL_EVERY_S = 1.0


@dataclass(slots=True)
class Running:
    """A reply that is being written. Its message id is the engine's request id.

    ``model`` and ``prompt`` are None as long as it waits for a model. ``covers`` counts the
    messages before the user's whose tokens this prompt gives anew.
    """

    chat_id: ChatId
    user_id: MessageId
    fingerprint: str
    model: ModelInfo | None = None
    prompt: Prompt | None = None
    covers: int = 0
    text: str = ""
    reasoning: str = ""
    token_ids: list[int] = field(default_factory=list)
    num_drafted: int = 0
    journalled_chars: int = 0
    journalled_reasoning_chars: int = 0
    journalled_ids: int = 0
    journalled_at: float = 0.0
    prompt_tokens: int = 0
    first_token_at: float | None = None
    reasoning_began_at: float | None = None
    reasoning_ended_at: float | None = None
    is_stopping: bool = False

    def add(self, text: str, reasoning: str) -> None:
        """More of the reply, now."""
        now = time.monotonic()
        if reasoning and self.reasoning_began_at is None:
            self.reasoning_began_at = now
        if text and self.reasoning_began_at is not None and self.reasoning_ended_at is None:
            self.reasoning_ended_at = now
        self.reasoning += reasoning
        self.text += text

    @property
    def reasoning_s(self) -> float:
        """How long it has been thinking, or did; 0 before it has begun."""
        if self.reasoning_began_at is None:
            return 0.0
        return (self.reasoning_ended_at or time.monotonic()) - self.reasoning_began_at

    def reasoning_from(self, char_start: int) -> ReasoningPart | None:
        """The reasoning behind ``char_start``; None when there is none."""
        text = self.reasoning[char_start:]
        return ReasoningPart(text, self.reasoning_s) if text else None

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens after the first per second so far; None before there are two."""
        if self.first_token_at is None or len(self.token_ids) < 2:
            return None
        passed = time.monotonic() - self.first_token_at
        return (len(self.token_ids) - 1) / passed if passed > 0.0 else None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a reply ended; what the store is told."""

    status: Status
    text: str = ""
    token_ids: tuple[int, ...] = ()
    reasoning: ReasoningPart | None = None
    usage: dict[str, float] | None = None
    finish_reason: str | None = None
    error: str | None = None

    def in_memory(self, message: Message) -> Message:
        """The finished message while the disk does not take it."""
        return replace(
            message,
            parts=reply_parts(self.text, self.reasoning, self.error),
            status=self.status,
            token_ids=self.token_ids,
            usage=self.usage,
            finish_reason=self.finish_reason,
        )


class Replies:
    """Belongs to the thread of Conversations, which is told of changes through ``publish``."""

    def __init__(
        self,
        store: ChatStore,
        publish: Callable[[Update], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._publish = publish
        self._clock = clock
        self._running: dict[MessageId, Running] = {}
        self._unsaved: dict[MessageId, Ending] = {}
        self._retried_at = 0.0
        self._disk_trouble = False

    # ------------------------------------------------------------------------------------- looking

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    def get(self, reply_id: MessageId) -> Running | None:
        return self._running.get(reply_id)

    def all(self) -> list[tuple[MessageId, Running]]:
        return list(self._running.items())

    def in_chat(self, chat_id: ChatId) -> MessageId | None:
        for reply_id, running in self._running.items():
            if running.chat_id == chat_id:
                return reply_id
        return None

    # ------------------------------------------------------------------------------ begin and end

    def begin(self, user: Message, *, model_name: str, fingerprint: str) -> MessageId:
        """An empty reply in the store. Raises MachineError when the disk refuses."""
        reply = self._store.begin_reply(
            user.chat_id, user.id, model_name=model_name, model_fingerprint=fingerprint
        )
        self._running[reply.id] = Running(user.chat_id, user.id, fingerprint)
        self._publish(ReplyStarted(reply))
        return reply.id

    def ran_with(self, reply_id: MessageId, fingerprint: str) -> None:
        """A reply that waited for its model is now being written in that model's ids."""
        running = self._running[reply_id]
        if running.fingerprint != fingerprint:
            running.fingerprint = fingerprint
            self.guard(lambda: self._store.set_token_ids(reply_id, (), fingerprint))

    def end(
        self,
        reply_id: MessageId,
        status: Status,
        *,
        usage: dict[str, float] | None = None,
        finish_reason: str | None = None,
        error: str | None = None,
    ) -> None:
        """Save the whole reply; ReplyFinished follows in any case."""
        running = self._running.pop(reply_id)
        ids = tuple(running.token_ids)
        reasoning = running.reasoning_from(0)
        ending = Ending(status, running.text, ids, reasoning, usage, finish_reason, error)
        if self._save(reply_id, ending):
            self._publish(ReplyFinished(self._store.message(reply_id)))
        else:
            self._unsaved[reply_id] = ending
            self._publish(ReplyFinished(ending.in_memory(self._store.message(reply_id))))

    def _save(self, reply_id: MessageId, ending: Ending) -> bool:
        def write() -> None:
            self._store.finish_reply(
                reply_id,
                status=ending.status,
                text=ending.text,
                token_ids=ending.token_ids,
                reasoning=ending.reasoning,
                usage=ending.usage,
                finish_reason=ending.finish_reason,
                error=ending.error,
            )

        return self.guard(write)

    # ------------------------------------------------------------------------------------- journal

    def write_due(self) -> None:
        """Journal what is a second behind, and retry what the disk refused before."""
        now = self._clock()
        for reply_id, running in self._running.items():
            behind = len(running.token_ids) > running.journalled_ids
            if behind and now - running.journalled_at >= JOURNAL_EVERY_S:
                running.journalled_at = now
                self.journal(reply_id)
        if self._unsaved and now - self._retried_at >= JOURNAL_EVERY_S:
            self._retried_at = now
            self.retry()

    def journal(self, reply_id: MessageId) -> None:
        running = self._running[reply_id]
        text = running.text[running.journalled_chars :]
        ids = running.token_ids[running.journalled_ids :]
        reasoning = running.reasoning_from(running.journalled_reasoning_chars)
        if self.guard(lambda: self._store.journal(reply_id, text, ids, reasoning)):
            running.journalled_chars = len(running.text)
            running.journalled_reasoning_chars = len(running.reasoning)
            running.journalled_ids = len(running.token_ids)

    def retry(self) -> None:
        """Save the endings that the disk refused; those that it refuses again are kept."""
        for reply_id, ending in list(self._unsaved.items()):
            if self._save(reply_id, ending):
                del self._unsaved[reply_id]

    def guard(self, write: Callable[[], None]) -> bool:
        """Run a write; a failing disk is said once and does not end the conversation."""
        try:
            write()
        except MachineError as error:
            if not self._disk_trouble:
                self._publish(Notice(error.sentence))
            self._disk_trouble = True
            return False
        except HearthError as error:  # the message is gone, or too large: no use to try again
            self._publish(Notice(error.sentence))
            return True
        self._disk_trouble = False
        return True
