"""Turns what the user does into saved messages and requests, and the engine's events into updates.

The order of a send is the promise A1: the message is on the disk before the engine hears of it, and
the reply is journalled at most a second behind.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from hearth.app import history
from hearth.app.chats.records import AttachmentPart, Part, Status, TextPart
from hearth.app.replies import Replies
from hearth.app.request_settings import drafting, longest_reply, sampling_params, thinking
from hearth.app.titles import title_from
from hearth.app.updates import (
    ChatChanged,
    ModelClosed,
    ModelFailed,
    ModelLoading,
    ModelReady,
    Notice,
    ReplyReading,
    ReplyText,
    Update,
)
from hearth.engine.errors import UserError
from hearth.engine.protocol import (
    Failed,
    Finished,
    FinishReason,
    Loaded,
    LoadFailed,
    Loading,
    Reading,
    Request,
    Saved,
    Tokens,
    Trouble,
    Unloaded,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearth.app.chats.records import ChatId, Message, MessageId
    from hearth.app.chats.store import ChatStore
    from hearth.app.replies import Running
    from hearth.app.settings import Settings
    from hearth.engine.protocol import EnginePort, Event, ModelInfo, Thinking

FULL_WARNING_SHARE = 0.85
CLOSE_LIMIT_S = 2.0
WAYS_OUT = "Start a new chat, or open the model with more context."


class Conversations:
    """Owned by one thread: the window's or the terminal's. ``pump`` is called at frame rate.

    Attributes:
        model: the model that is open, or None.
        settings: what every request is made by, as it is then.
    """

    def __init__(self, store: ChatStore, engine: EnginePort, settings: Settings) -> None:
        self.store = store
        self.model: ModelInfo | None = None
        self._engine = engine
        self.settings = settings
        self._pending: list[Update] = [Notice(text) for text in store.recovery.notices]
        self._replies = Replies(store, self._pending.append)
        self._opening: Path | None = None
        self._warned: set[ChatId] = set()

    # --------------------------------------------------------------------------------------- model

    def open_model(self, path: Path) -> None:
        """Start opening a model; ModelLoading, then ModelReady or ModelFailed follow. Until then
        messages are saved and their replies wait."""
        self._opening = path
        self.model = None  # the engine closes it before it opens another
        self._engine.load(path, context_length=self.settings.model.context_length)

    def count_tokens(self, text: str) -> int | None:
        return self._engine.count_tokens(text)

    def token_texts(self, ids: Sequence[int]) -> list[tuple[int, str]]:
        """Each id with its text, in the open model's vocabulary."""
        return self._engine.token_texts(ids)

    # ------------------------------------------------------------------------------------- sending

    def send(
        self,
        chat_id: ChatId,
        text: str,
        attachments: Sequence[AttachmentPart] = (),
    ) -> MessageId:
        """Save the user's message as it is and ask for a reply; returns the reply's id.

        Raises UserError for an empty message and MachineError when it could not be saved.
        """
        if not text and not attachments:
            raise UserError("There is nothing to send yet.")
        chat = self.store.chat(chat_id)
        self._refuse_while_running(chat_id)
        parts: list[Part] = [*attachments]
        if text:
            parts.append(TextPart(text))
        message = self.store.add_message(chat_id, chat.leaf_id, "user", parts)
        if not chat.title:
            title = title_from(text or attachments[0].name)
            self._replies.guard(lambda: self.store.set_title(chat_id, title))
        self._pending.append(ChatChanged(chat_id))
        return self._reply_to(message)

    def regenerate(self, message_id: MessageId) -> MessageId:
        """Another version of a reply (or a first one, for a user's message without)."""
        message = self.store.message(message_id)
        self._refuse_while_running(message.chat_id)
        if message.role == "user":
            return self._reply_to(message)
        if message.parent_id is None:
            raise UserError("This reply answers nothing.")
        return self._reply_to(self.store.message(message.parent_id))

    def edit(self, message_id: MessageId, text: str) -> MessageId:
        """A new version of the user's message as a branch of its own, and its reply. Attachments
        stay."""
        message = self.store.message(message_id)
        self._refuse_while_running(message.chat_id)
        if message.role != "user":
            raise UserError("Only your own messages can be edited.")
        kept: list[Part] = [part for part in message.parts if isinstance(part, AttachmentPart)]
        if not text and not kept:
            raise UserError("There is nothing to send yet.")
        parts = [*kept, TextPart(text)] if text else kept
        edited = self.store.add_message(message.chat_id, message.parent_id, "user", parts)
        return self._reply_to(edited)

    def show_version(self, message_id: MessageId) -> None:
        """Bring another version, and the newest branch behind it, into view."""
        message = self.store.message(message_id)
        self.store.set_leaf(message.chat_id, self.store.leaf_below(message_id))
        self._pending.append(ChatChanged(message.chat_id))

    def _refuse_while_running(self, chat_id: ChatId) -> None:
        if self._replies.in_chat(chat_id) is not None:
            raise UserError("A reply is still being written here.", action="Stop it first.")

    def _reply_to(self, user: Message) -> MessageId:
        """The user's message is on the disk; from here on nothing can lose it."""
        name, fingerprint = "", ""
        if self.model is not None:
            name, fingerprint = self.model.name, self._key(user.chat_id, self.model)
        elif self._opening is not None:
            name = self._opening.stem
        reply_id = self._replies.begin(user, model_name=name, fingerprint=fingerprint)
        if self.model is not None:
            self._submit(reply_id, self.model)
        elif self._opening is None:
            self._fail(reply_id, "No model is open. Open one, then ask for the reply again.")
        return reply_id

    def _key(self, chat_id: ChatId, model: ModelInfo) -> str:
        chosen = self._thinking(model)
        effort = chosen.effort if chosen is not None else None
        return history.key(model.fingerprint, self.store.chat(chat_id).system_prompt, effort)

    def _thinking(self, model: ModelInfo) -> Thinking | None:
        return thinking(self.settings.thinking) if model.can_think else None

    def _submit(self, reply_id: MessageId, model: ModelInfo) -> None:
        running = self._replies.get(reply_id)
        assert running is not None, "it has begun"
        chat = self.store.chat(running.chat_id)
        key = self._key(running.chat_id, model)
        path = self.store.path(running.user_id)
        prompt = history.prompt_for(chat.system_prompt, path, key, self._thinking(model))
        self._replies.ran_with(reply_id, key)
        running.model, running.prompt = model, prompt
        running.covers = history.num_covered(prompt)
        settings = self.settings
        self._engine.submit(
            Request(
                id=reply_id,
                prompt=prompt,
                sampling=sampling_params(settings.sampling),
                max_tokens=longest_reply(settings, model),
                drafting=drafting(settings, model),
            )
        )

    def stop(self, message_id: MessageId) -> None:
        """End a reply; its text stays. ReplyFinished follows when the engine has stopped."""
        running = self._replies.get(message_id)
        if running is None:
            return
        running.is_stopping = True
        if running.prompt is None:
            self._replies.end(
                message_id, Status.STOPPED, finish_reason=FinishReason.CANCELLED.value
            )
        else:
            self._engine.cancel(message_id)

    # ------------------------------------------------------------------------------------- pumping

    def pump(self) -> list[Update]:
        """Updates since the last call; saves what has to be saved."""
        return self._digest(self._engine.poll())

    def wait(self, timeout_s: float) -> list[Update]:
        """Like ``pump``, but waits up to ``timeout_s`` for the engine (terminal only)."""
        return self._digest([] if self._pending else self._engine.wait(timeout_s))

    def _digest(self, events: Sequence[Event]) -> list[Update]:
        for event in events:
            self._take(event)
        self._replies.write_due()
        updates = list(self._pending)
        self._pending.clear()
        return updates

    def _take(self, event: Event) -> None:
        match event:
            case Loading(stage, done, total):
                self._pending.append(ModelLoading(stage, done, total))
            case Loaded(info):
                self._model_ready(info)
            case LoadFailed(message):
                self._model_failed(message)
            case Unloaded():
                self.model = None
                self._pending.append(ModelClosed())
            case Reading():
                self._reading(event)
            case Tokens():
                self._tokens(event)
            case Finished():
                self._finished(event)
            case Failed(request_id, message):
                self._failed(request_id, message)
            case Trouble(sentence):
                self._pending.append(Notice(sentence))
            case Saved():
                pass

    # ---------------------------------------------------------------------------- events: the model

    def _model_ready(self, info: ModelInfo) -> None:
        if self._opening is not None and not _is_same(Path(info.path), self._opening):
            return  # another model was asked for meanwhile: this one is closed again by the engine
        self._opening = None
        self.model = info
        self._pending.append(ModelReady(info))
        for reply_id, running in self._replies.all():
            if running.prompt is None:
                self._submit(reply_id, info)

    def _model_failed(self, sentence: str) -> None:
        self._opening = None
        self._pending.append(ModelFailed(sentence))
        for reply_id, running in self._replies.all():
            if running.prompt is None:
                self._fail(reply_id, sentence)

    # ------------------------------------------------------------------------------ events: replies

    def _reading(self, event: Reading) -> None:
        running = self._replies.get(event.request_id)
        if running is None:
            return
        running.prompt_tokens = event.total_tokens
        if event.prompt_ids is not None:
            self._keep_prompt_ids(running, event.prompt_ids)
            self._warn_when_full(running, event.total_tokens)
        self._pending.append(
            ReplyReading(
                running.chat_id,
                event.request_id,
                event.done_tokens,
                event.total_tokens,
                event.reused_tokens,
                event.restored_tokens,
            )
        )

    def _keep_prompt_ids(self, running: Running, prompt_ids: Sequence[int]) -> None:
        """Remember which ids the user's turn became, together with messages that had none."""
        assert running.prompt is not None, "it has been submitted"
        added = prompt_ids[len(running.prompt.history_ids) :]
        self._replies.guard(
            lambda: self.store.set_token_ids(
                running.user_id, added, running.fingerprint, covers=running.covers
            )
        )

    def _tokens(self, event: Tokens) -> None:
        running = self._replies.get(event.request_id)
        if running is None:
            return
        if running.first_token_at is None:
            running.first_token_at = time.monotonic()
        running.add(event.text, event.reasoning)
        running.token_ids += event.token_ids
        num_drafted = sum(event.drafted)
        running.num_drafted += num_drafted
        self._pending.append(
            ReplyText(
                running.chat_id,
                event.request_id,
                event.text,
                len(event.token_ids),
                num_drafted,
                event.reasoning,
            )
        )

    def _finished(self, event: Finished) -> None:
        running = self._replies.get(event.request_id)
        if running is None:
            return
        running.text, running.reasoning = event.text, event.reasoning
        running.token_ids = list(event.token_ids)
        status = Status.STOPPED if event.reason is FinishReason.CANCELLED else Status.COMPLETE
        usage = {name: float(value) for name, value in asdict(event.usage).items()}
        self._replies.end(event.request_id, status, usage=usage, finish_reason=event.reason.value)
        if event.reason is FinishReason.CONTEXT_FULL:
            self._warned.add(running.chat_id)
            self._pending.append(Notice(f"The context is full, so the answer ended. {WAYS_OUT}"))
        self._warn_when_full(running, event.usage.prompt_tokens + event.usage.output_tokens)

    def _failed(self, reply_id: MessageId, sentence: str) -> None:
        running = self._replies.get(reply_id)
        if running is None:
            return
        if running.is_stopping:
            self._replies.end(reply_id, Status.STOPPED, finish_reason=FinishReason.CANCELLED.value)
        else:
            self._fail(reply_id, sentence)

    def _fail(self, reply_id: MessageId, sentence: str) -> None:
        self._replies.end(reply_id, Status.FAILED, error=sentence)

    def _warn_when_full(self, running: Running, num_tokens: int) -> None:
        assert running.model is not None, "a reply came from a model"
        limit = running.model.context_length
        if num_tokens < FULL_WARNING_SHARE * limit or running.chat_id in self._warned:
            return
        self._warned.add(running.chat_id)
        self._pending.append(
            Notice(
                f"This chat fills {num_tokens / limit:.0%} of the context "
                f"({num_tokens:,} of {limit:,} tokens). {WAYS_OUT}"
            )
        )

    # ------------------------------------------------------------------------------------- looking

    def running_in(self, chat_id: ChatId) -> MessageId | None:
        """The reply that is being written in a chat, if any."""
        return self._replies.in_chat(chat_id)

    def running(self, message_id: MessageId) -> Running | None:
        return self._replies.get(message_id)

    @property
    def is_busy(self) -> bool:
        return self._replies.is_busy

    def context_used(self, chat_id: ChatId) -> int:
        """Tokens of the branch in view, as far as they are known."""
        chat = self.store.chat(chat_id)
        if chat.leaf_id is None:
            return 0
        running = self._replies.get(chat.leaf_id)
        if running is not None and running.prompt_tokens:
            return running.prompt_tokens + len(running.token_ids)
        return history.num_tokens(self.store.path(chat.leaf_id))

    def close(self) -> None:
        """Stop every reply and save it; then the engine, then the store."""
        for reply_id, _ in self._replies.all():
            self._replies.journal(reply_id)
            self.stop(reply_id)
        deadline = time.monotonic() + CLOSE_LIMIT_S
        while self._replies.is_busy and time.monotonic() < deadline:
            for event in self._engine.wait(0.1):
                self._take(event)
        for reply_id, _ in self._replies.all():
            self._replies.end(reply_id, Status.STOPPED)
        self._replies.retry()
        self._engine.close()
        self.store.close()


def _is_same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()
