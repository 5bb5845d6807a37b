"""The plain data that crosses the border between the application and the engine.

Everything here is frozen and built of plain Python values, so that the engine can live in a
thread today and in a child process tomorrow. This is the only engine module that ``hearth.app``
may import (besides ``hearth.engine.errors``); it imports neither torch nor anything of Hearth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


# ---------------------------------------------------------------- what the application asks for


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen. The definition of p is ``hearth.engine.sampling``.

    temperature 0 is greedy (ties: lowest id). top_k 0, top_p 1 and min_p 0 mean off.
    Penalties look at prompt and reply for ``repetition_penalty`` (1 = off) and at the reply only
    for presence and frequency (0 = off).
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.temperature >= 0.0, f"temperature {self.temperature} is negative"
        assert self.top_k >= 0, f"top_k {self.top_k} is negative"
        assert 0.0 < self.top_p <= 1.0, f"top_p {self.top_p} is outside (0, 1]"
        assert 0.0 <= self.min_p < 1.0, f"min_p {self.min_p} is outside [0, 1)"
        assert self.repetition_penalty > 0.0, "repetition_penalty must be positive"
        assert all(self.stop), "an empty stop string would end every reply at once"


@dataclass(frozen=True, slots=True)
class Turn:
    """One message as the user or the model wrote it; ``text`` is never trimmed or altered."""

    role: str  # "system" | "user" | "assistant"
    text: str
    reasoning: str = ""  # of an assistant turn: what it thought before ``text``

    def __post_init__(self) -> None:
        assert not self.reasoning or self.role == "assistant", "only the assistant reasons"


@dataclass(frozen=True, slots=True)
class Thinking:
    """How much the model is to think before it answers; None leaves it to its chat template.

    ``effort`` is a word that the template knows ("low", "medium", "xhigh"); it refuses others.
    ``preserve`` says whether the reasoning of earlier turns is rendered again.
    """

    enabled: bool = True
    effort: str | None = None
    preserve: bool | None = None

    def __post_init__(self) -> None:
        assert self.effort is None or self.effort.isalnum(), "templates print the effort"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model is to read.

    ``turns`` is the whole conversation, oldest first, ending with a user turn.
    ``history_ids`` are the token ids that were really run for the first ``history_turns`` turns
    (which end with an assistant turn): they are used as they are and never rendered again.
    ``raw_ids`` bypasses the chat template (benchmarks and tests): then ``turns`` is empty.
    ``thinking`` None leaves everything about it to the template. ``tools`` are JSON objects as
    texts, which the template gets parsed and otherwise as they are.
    """

    turns: tuple[Turn, ...] = ()
    history_ids: tuple[int, ...] = ()
    history_turns: int = 0
    raw_ids: tuple[int, ...] | None = None
    thinking: Thinking | None = None
    tools: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert bool(self.turns) != (self.raw_ids is not None), "either turns or raw_ids"
        assert 0 <= self.history_turns <= len(self.turns), "history_turns counts turns"
        assert bool(self.history_ids) == bool(self.history_turns), "history needs ids and turns"


class Drafting(Enum):
    """Where drafted tokens come from; the text is the same for every choice (decision D1)."""

    AUTO = "auto"
    OFF = "off"
    LOOKUP = "lookup"
    MTP = "mtp"  # the model's own module; refused when it has none


@dataclass(frozen=True, slots=True)
class Request:
    """One reply to be generated. ``id`` is chosen by the caller and unique per engine."""

    id: str
    prompt: Prompt
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int | None = None  # None: up to the end of the context
    drafting: Drafting = Drafting.AUTO
    ignore_end: bool = False  # benchmarks: do not stop at the end-of-turn token
    use_cache: bool = True  # False: neither look up nor keep a prefix (private, cold benchmarks)


# ----------------------------------------------------------------------- what the engine answers


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A loaded model, for display and for cache keys."""

    name: str
    path: str
    architecture: str
    num_parameters: int
    weight_bytes: int
    context_length: int  # tokens that fit here and now, at most what the model was trained for
    vocab_size: int
    device: str
    kernels: str  # what does the arithmetic: "llvm", "triton" or "reference"
    fingerprint: str  # hex; changes whenever the weights or the arithmetic change
    has_chat_template: bool
    has_mtp: bool = False  # whether ``Drafting.MTP`` is possible
    can_think: bool = False  # its chat template can switch thinking on and off
    thinks_by_default: bool = False  # thinks when nothing is chosen, or always
    requantised: str | None = None  # what is not as published: "head int8 g128 (made here)"


@dataclass(frozen=True, slots=True)
class Usage:
    """What one request cost. prompt = reused + restored + computed tokens."""

    prompt_tokens: int
    reused_tokens: int  # found in memory
    restored_tokens: int  # read back from disk
    computed_tokens: int
    output_tokens: int
    time_to_first_token_s: float
    prefill_s: float
    decode_s: float
    rounds: int
    drafted_tokens: int
    accepted_tokens: int

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Tokens after the first one per second of decoding; None before there is a second one."""
        if self.output_tokens < 2 or self.decode_s <= 0.0:
            return None
        return (self.output_tokens - 1) / self.decode_s

    @property
    def tokens_per_round(self) -> float | None:
        return self.output_tokens / self.rounds if self.rounds else None


@dataclass(frozen=True, slots=True)
class Loading:
    """A model is being opened. ``done`` and ``total`` are bytes."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Loaded:
    info: ModelInfo


@dataclass(frozen=True, slots=True)
class LoadFailed:
    message: str


@dataclass(frozen=True, slots=True)
class Unloaded:
    pass


@dataclass(frozen=True, slots=True)
class Reading:
    """The prompt is being read. The first one carries ``prompt_ids``, the exact token ids."""

    request_id: str
    done_tokens: int  # includes reused and restored
    total_tokens: int
    reused_tokens: int
    restored_tokens: int
    prompt_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """More of the reply. ``text`` (of the answer) and ``reasoning`` are complete UTF-8; both may be
    empty while ids arrive. Within one event the reasoning comes before the text.

    ``drafted`` says for each id whether it was drafted and accepted.
    """

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    drafted: tuple[bool, ...]
    reasoning: str = ""


class FinishReason(Enum):
    END_OF_TURN = "end of turn"
    STOP_STRING = "stop string"
    LENGTH = "length"
    CONTEXT_FULL = "context full"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Finished:
    """The reply is whole. ``text`` and ``reasoning`` equal the joined ones of Tokens; ``token_ids``
    are all ids that belong to the reply, reasoning included, with the end-of-turn id last when the
    model produced one."""

    request_id: str
    reason: FinishReason
    text: str
    token_ids: tuple[int, ...]
    usage: Usage
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """The request ended without a whole reply; what arrived before in Tokens stays valid."""

    request_id: str
    message: str


@dataclass(frozen=True, slots=True)
class Saved:
    """The cache's unsaved entries are on disk. ``bytes_written`` counts this save only."""

    entries: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """One sentence about something that goes on working worse (the disk tier is off)."""

    sentence: str


Event = (
    Trouble
    | Loading
    | Loaded
    | LoadFailed
    | Unloaded
    | Reading
    | Tokens
    | Finished
    | Failed
    | Saved
)


class EnginePort(Protocol):
    """The engine as the application sees it. Every call returns at once and may be made from any
    thread; answers come as events, in order, from ``poll`` or ``wait`` (one consumer)."""

    def load(self, path: Path, *, context_length: int | None = None) -> None: ...

    def unload(self) -> None: ...

    def submit(self, request: Request) -> None: ...

    def cancel(self, request_id: str) -> None: ...

    def save(self) -> None:
        """Write unsaved cache entries to disk (the engine also does so when idle)."""

    def count_tokens(self, text: str) -> int | None:
        """Tokens of ``text`` as ordinary text; None while no model is loaded. Thread-safe."""

    def token_texts(self, ids: Sequence[int]) -> list[tuple[int, str]]:
        """Each id with the text it stands for (control tokens by name); empty without a model."""

    def poll(self) -> Sequence[Event]:
        """Events since the last call, consecutive Tokens of one request joined."""

    def wait(self, timeout_s: float) -> Sequence[Event]:
        """Like ``poll``, but waits up to ``timeout_s`` for the first event."""

    def close(self) -> None:
        """Cancel, save for at most two seconds, stop the thread."""
