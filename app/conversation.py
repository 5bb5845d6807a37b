"""Turns what the user does into saved messages and requests, and the engine's events into updates.

The order of a send is the promise A1: the message is on the disk before the engine hears of it, and
the reply is journalled at most a second behind.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from hearth.app import history
from hearth.app.chats.records import AttachmentPart, Part, Status, TextPart
from hearth.app.updates import (
    ChatChanged,
    ModelClosed,
    ModelFailed,
    ModelLoading,
    ModelReady,
    Notice,
    ReplyFinished,
    ReplyReading,
    ReplyStarted,
    ReplyText,
    Update,
)
from hearth.engine.errors import MachineError, UserError
from hearth.engine.protocol import (
    Drafting,
    Failed,
    Finished,
    FinishReason,
    Loaded,
    LoadFailed,
    Loading,
    Reading,
    Request,
    SamplingParams,
    Tokens,
    Unloaded,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hearth.app.chats.records import ChatId, Message, MessageId
    from hearth.app.chats.store import ChatStore
    from hearth.app.settings import Settings
    from hearth.engine.protocol import EnginePort, Event, ModelInfo, Prompt

JOURNAL_EVERY_S = 1.0
TITLE_CHARS = 60
FULL_WARNING_SHARE = 0.85


@dataclass(slots=True)
class Running:
    """A reply that is being written. Its message id is the engine's request id."""

    chat_id: ChatId
    user_id: MessageId
    prompt: Prompt | None = None  # None while the model is not open yet
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    num_drafted: int = 0
    journalled_chars: int = 0
    journalled_ids: int = 0
    journalled_at: float = 0.0
    prompt_tokens: int = 0
    started: float = field(default_factory=time.monotonic)
    first_token_at: float | None = None
    is_stopping: bool = False


class Conversations:
    """Owned by one thread: the window's or the terminal's. ``pump`` is called at frame rate.

    Attributes:
        model: the model that is open, or None.
    """

    def __init__(self, store: ChatStore, engine: EnginePort, settings: Settings) -> None:
        self.store = store
        self.model: ModelInfo | None = None
        self._engine = engine
        self._settings = settings
        self._running: dict[MessageId, Running] = {}
        self._pending: list[Update] = [Notice(text) for text in store.recovery.notices]
        self._is_loading = False
        self._warned: set[ChatId] = set()
        self._disk_trouble = False

    # --------------------------------------------------------------------------------------- model

    def open_model(self, path: Path) -> None:
        """Start opening a model; ModelLoading, then ModelReady or ModelFailed follow."""
        self._is_loading = True
        self._engine.load(path, context_length=self._settings.model.context_length)

    def count_tokens(self, text: str) -> int | None:
        return self._engine.count_tokens(text)

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
        if chat.leaf_id in self._running:
            raise UserError("A reply is still being written here.", action="Stop it first.")
        parts: list[Part] = [*attachments]
        if text:
            parts.append(TextPart(text))
        message = self.store.add_message(chat_id, chat.leaf_id, "user", parts)
        if not chat.title:
            self.store.set_title(chat_id, title_from(text or attachments[0].name))
            self._pending.append(ChatChanged(chat_id))
        return self._reply_to(message)

    def regenerate(self, message_id: MessageId) -> MessageId:
        """Another version of a reply (or a first one, for a user's message without)."""
        message = self.store.message(message_id)
        self._refuse_while_running(message)
        if message.role == "user":
            return self._reply_to(message)
        if message.parent_id is None:
            raise UserError("This reply answers nothing.")
        return self._reply_to(self.store.message(message.parent_id))

    def edit(self, message_id: MessageId, text: str) -> MessageId:
        """A new version of the user's message as a branch of its own, and its reply. Attachments
        stay."""
        message = self.store.message(message_id)
        self._refuse_while_running(message)
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

    def _refuse_while_running(self, message: Message) -> None:
        if any(running.chat_id == message.chat_id for running in self._running.values()):
            raise UserError("A reply is still being written here.", action="Stop it first.")

    def _reply_to(self, user: Message) -> MessageId:
        name = self.model.name if self.model else ""
        fingerprint = self.model.fingerprint if self.model else ""
        reply = self.store.begin_reply(
            user.chat_id, user.id, model_name=name, model_fingerprint=fingerprint
        )
        self._running[reply.id] = Running(user.chat_id, user.id)
        self._pending.append(ReplyStarted(reply))
        if self.model is not None:
            self._submit(reply.id)
        elif not self._is_loading:
            self._fail(reply.id, "No model is open. Open one, then ask for the reply again.")
        return reply.id

    def _submit(self, reply_id: MessageId) -> None:
        assert self.model is not None, "a request needs a model"
        running = self._running[reply_id]
        chat = self.store.chat(running.chat_id)
        path = self.store.path(running.user_id)
        prompt = history.prompt_for(chat.system_prompt, path, self.model.fingerprint)
        running.prompt = prompt
        chosen = self._settings.sampling
        self._engine.submit(
            Request(
                id=reply_id,
                prompt=prompt,
                sampling=SamplingParams(
                    temperature=chosen.temperature,
                    top_k=chosen.top_k,
                    top_p=chosen.top_p,
                    min_p=chosen.min_p,
                    repetition_penalty=chosen.repetition_penalty,
                    seed=secrets.randbits(32) if chosen.seed is None else chosen.seed,
                ),
                max_tokens=chosen.max_tokens,
                drafting=Drafting(self._settings.speed.drafting),
            )
        )

    def stop(self, message_id: MessageId) -> None:
        """End a reply; its text stays. ReplyFinished follows when the engine has stopped."""
        running = self._running.get(message_id)
        if running is None:
            return
        running.is_stopping = True
        if running.prompt is None:
            self._finish(message_id, Status.STOPPED, finish_reason=FinishReason.CANCELLED.value)
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
        self._journal_due()
        updates, self._pending = self._pending, []
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
                if request_id in self._running:
                    stopped = self._running[request_id].is_stopping
                    if stopped:
                        self._finish(request_id, Status.STOPPED)
                    else:
                        self._fail(request_id, message)
            case _:
                pass

    def _model_ready(self, info: ModelInfo) -> None:
        self._is_loading = False
        self.model = info
        self._pending.append(ModelReady(info))
        for reply_id, running in list(self._running.items()):
            if running.prompt is None:
                self._submit(reply_id)

    def _model_failed(self, sentence: str) -> None:
        self._is_loading = False
        self._pending.append(ModelFailed(sentence))
        for reply_id, running in list(self._running.items()):
            if running.prompt is None:
                self._fail(reply_id, sentence)

    def _reading(self, event: Reading) -> None:
        running = self._running.get(event.request_id)
        if running is None:
            return
        running.prompt_tokens = event.total_tokens
        if event.prompt_ids is not None:
            self._keep_prompt_ids(running, event.prompt_ids)
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
        prompt, model = running.prompt, self.model
        assert prompt is not None, "it has been submitted"
        assert model is not None, "a request needs a model"
        added = prompt_ids[len(prompt.history_ids) :]
        path = history.spoken(self.store.path(running.user_id))
        head = len(prompt.turns) - len(path)  # the system prompt, when there is one
        covers = len(path) - 1 - max(prompt.history_turns - head, 0)
        self._guard_disk(
            lambda: self.store.set_token_ids(
                running.user_id, added, model.fingerprint, covers=covers
            )
        )

    def _tokens(self, event: Tokens) -> None:
        running = self._running.get(event.request_id)
        if running is None:
            return
        if running.first_token_at is None:
            running.first_token_at = time.monotonic()
        running.text += event.text
        running.token_ids += event.token_ids
        running.num_drafted += sum(event.drafted)
        self._pending.append(
            ReplyText(
                running.chat_id,
                event.request_id,
                event.text,
                len(event.token_ids),
                sum(event.drafted),
            )
        )

    def _finished(self, event: Finished) -> None:
        running = self._running.get(event.request_id)
        if running is None:
            return
        running.text, running.token_ids = event.text, list(event.token_ids)
        status = Status.STOPPED if event.reason is FinishReason.CANCELLED else Status.COMPLETE
        usage = {name: float(value) for name, value in asdict(event.usage).items()}
        self._finish(event.request_id, status, usage=usage, finish_reason=event.reason.value)
        self._warn_when_full(running.chat_id, event.usage.prompt_tokens + event.usage.output_tokens)

    def _fail(self, reply_id: MessageId, sentence: str) -> None:
        self._finish(reply_id, Status.FAILED, error=sentence)

    def _finish(
        self,
        reply_id: MessageId,
        status: Status,
        *,
        usage: dict[str, float] | None = None,
        finish_reason: str | None = None,
        error: str | None = None,
    ) -> None:
        running = self._running.pop(reply_id)
        saved: list[Message] = []

        def save() -> None:
            saved.append(
                self.store.finish_reply(
                    reply_id,
                    status=status,
                    text=running.text,
                    token_ids=running.token_ids,
                    usage=usage,
                    finish_reason=finish_reason,
                    error=error,
                )
            )

        if not self._guard_disk(save):
            self._guard_disk(save)  # the ballast may have made room
        if saved and saved[0].model_fingerprint == "" and self.model is not None:
            model = self.model  # the reply was created before the model was open
            self._guard_disk(
                lambda: self.store.set_token_ids(reply_id, running.token_ids, model.fingerprint)
            )
        message = saved[0] if saved else self.store.message(reply_id)
        self._pending.append(ReplyFinished(message))

    def _warn_when_full(self, chat_id: ChatId, num_tokens: int) -> None:
        assert self.model is not None, "a reply came from a model"
        share = num_tokens / self.model.context_length
        if share > FULL_WARNING_SHARE and chat_id not in self._warned:
            self._warned.add(chat_id)
            self._pending.append(
                Notice(
                    f"This chat fills {share:.0%} of the context. "
                    "Soon it will be full: start a new chat for another subject."
                )
            )

    # ------------------------------------------------------------------------------------- journal

    def _journal_due(self) -> None:
        now = time.monotonic()
        for reply_id, running in self._running.items():
            behind = len(running.text) > running.journalled_chars
            if behind and now - running.journalled_at >= JOURNAL_EVERY_S:
                running.journalled_at = now
                self._journal(reply_id, running)

    def _journal(self, reply_id: MessageId, running: Running) -> None:
        text = running.text[running.journalled_chars :]
        ids = running.token_ids[running.journalled_ids :]
        if self._guard_disk(lambda: self.store.journal(reply_id, text, ids)):
            running.journalled_chars = len(running.text)
            running.journalled_ids = len(running.token_ids)

    def _guard_disk(self, write: Callable[[], None]) -> bool:
        """Run a write; a failing disk is said once and does not end the conversation."""
        try:
            write()
        except MachineError as error:
            if not self._disk_trouble:
                self._pending.append(Notice(error.sentence))
            self._disk_trouble = True
            return False
        self._disk_trouble = False
        return True

    # ------------------------------------------------------------------------------------- looking

    def running_in(self, chat_id: ChatId) -> MessageId | None:
        """The reply that is being written in a chat, if any."""
        for reply_id, running in self._running.items():
            if running.chat_id == chat_id:
                return reply_id
        return None

    def running(self, message_id: MessageId) -> Running | None:
        return self._running.get(message_id)

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    def context_used(self, chat_id: ChatId) -> int:
        """Tokens of the branch in view, as far as they are known."""
        chat = self.store.chat(chat_id)
        if chat.leaf_id is None:
            return 0
        running = self._running.get(chat.leaf_id)
        if running is not None and running.prompt_tokens:
            return running.prompt_tokens + len(running.token_ids)
        path = self.store.path(chat.leaf_id)
        return sum(len(message.token_ids or ()) for message in path)

    def close(self) -> None:
        """Stop every reply and save it; then the engine, then the store."""
        for reply_id, running in list(self._running.items()):
            self._journal(reply_id, running)
            self._engine.cancel(reply_id)
        deadline = time.monotonic() + 2.0
        while self._running and time.monotonic() < deadline:
            for event in self._engine.wait(0.1):
                self._take(event)
        for reply_id in list(self._running):
            self._finish(reply_id, Status.STOPPED)
        self._engine.close()
        self.store.close()


def title_from(text: str) -> str:
    """The first line, cut at a word."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "New chat")
    if len(line) <= TITLE_CHARS:
        return line
    cut = line[:TITLE_CHARS].rsplit(" ", 1)[0]
    return cut + "…"
