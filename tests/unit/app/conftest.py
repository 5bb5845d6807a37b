"""A store, and an engine that answers by script, for the tests of the application."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hearth.app.chats.store import ChatStore
from hearth.app.conversation import Conversations
from hearth.app.settings import Settings
from hearth.engine.protocol import (
    Event,
    Failed,
    Finished,
    FinishReason,
    Loaded,
    LoadFailed,
    ModelInfo,
    Reading,
    Request,
    Tokens,
    Unloaded,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

END_ID = 2


class ScriptedEngine:
    """Follows the protocol without a model: one id per character, a reply when told so.

    Attributes:
        requests: what was submitted, in order.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.events: list[Event] = []
        self.cancelled: list[str] = []
        self.context_length = 1000
        self.can_think = False
        self.on_submit: Callable[[Request], None] = lambda request: None
        self.is_closed = False
        self._is_open = False

    def load(self, path: Path, *, context_length: int | None = None) -> None:
        if self._is_open:
            self.events.append(Unloaded())
        self._is_open = path.exists()
        if not self._is_open:
            self.events.append(LoadFailed(f"{path.name} does not exist."))
            return
        self.events.append(
            Loaded(
                ModelInfo(
                    name=path.stem.title(),
                    path=str(path),
                    architecture="llama",
                    num_parameters=1,
                    weight_bytes=1,
                    context_length=context_length or self.context_length,
                    vocab_size=1 << 21,
                    device="CPU",
                    kernels="reference",
                    fingerprint=f"print-{path.stem}",
                    has_chat_template=True,
                    can_think=self.can_think,
                )
            )
        )

    def unload(self) -> None:
        self._is_open = False
        self.events.append(Unloaded())

    def submit(self, request: Request) -> None:
        self.requests.append(request)
        self.on_submit(request)

    def cancel(self, request_id: str) -> None:
        self.cancelled.append(request_id)

    def save(self) -> None:
        pass

    def count_tokens(self, text: str) -> int | None:
        return len(text) if self._is_open else None

    def token_texts(self, ids: Sequence[int]) -> list[tuple[int, str]]:
        return [(token, chr(token - 100)) for token in ids]

    def poll(self) -> Sequence[Event]:
        events, self.events = self.events, []
        return events

    def wait(self, timeout_s: float) -> Sequence[Event]:
        return self.poll()

    def close(self) -> None:
        self.is_closed = True

    # ------------------------------------------------------------------------ what the script does

    def read(self, request: Request) -> tuple[int, ...]:
        """Emit the prompt's ids: history as it is, then one id per character of each new turn."""
        ids = self.prompt_ids(request)
        self.events.append(Reading(request.id, 0, len(ids), 0, 0, prompt_ids=ids))
        return ids

    def prompt_ids(self, request: Request) -> tuple[int, ...]:
        ids = list(request.prompt.history_ids)
        for turn in request.prompt.turns[request.prompt.history_turns :]:
            ids += [100 + ord(c) for c in turn.text] + [END_ID]
        return tuple(ids)

    def write(self, request: Request, text: str, reasoning: str = "") -> None:
        ids = tuple(100 + ord(c) for c in reasoning + text)
        self.events.append(Tokens(request.id, text, ids, (False,) * len(ids), reasoning))

    def finish(
        self,
        request: Request,
        text: str,
        reason: FinishReason = FinishReason.END_OF_TURN,
        *,
        reasoning: str = "",
    ) -> None:
        ended = (END_ID,) if reason is FinishReason.END_OF_TURN else ()
        ids = tuple(100 + ord(c) for c in reasoning + text) + ended
        num_prompt = len(self.prompt_ids(request))
        usage = Usage(num_prompt, 0, 0, num_prompt, len(ids), 0.1, 0.1, 0.1, len(ids), 0, 0)
        self.events.append(Finished(request.id, reason, text, ids, usage, reasoning))

    def fail(self, request: Request, sentence: str) -> None:
        self.events.append(Failed(request.id, sentence))

    def answer(self, text: str) -> None:
        """Read, write and finish the latest request."""
        request = self.requests[-1]
        self.read(request)
        self.write(request, text)
        self.finish(request, text)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    store = ChatStore(tmp_path / "chats")
    yield store
    store.close()


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    path = tmp_path / "alpha.gguf"
    path.write_bytes(b"GGUF")
    return path


@pytest.fixture
def idle(store: ChatStore, engine: ScriptedEngine) -> Conversations:
    """Conversations without a model."""
    return Conversations(store, engine, Settings())


@pytest.fixture
def conversations(idle: Conversations, model_path: Path) -> Conversations:
    """Conversations with a model that is open."""
    idle.open_model(model_path)
    idle.pump()
    assert idle.model is not None
    return idle
