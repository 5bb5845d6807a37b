"""Planned memory as plain data: what crosses the border between the engine and the application.

``hearth.app`` may import this module beside ``hearth.engine.protocol``: it holds no arithmetic and
imports neither torch nor the rest of the engine. What computes it is ``hearth.engine.plan``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hearth.engine.errors import UserError

WEIGHT_PARTS = (
    "embedding", "head", "attention", "linear", "mlp", "norms", "mtp", "drafter",
)  # fmt: skip
# Pages last: they take what the others leave.
OTHER_PARTS = ("states", "snapshots", "scratch", "graphs", "driver", "desktop", "pages")
PARTS = WEIGHT_PARTS + OTHER_PARTS
REQUANTISED_PARTS = ("embedding", "head", "mtp")


def size_words(num_bytes: int) -> str:
    """In binary units: a card that is sold as 24 GB has 24 GiB."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(num_bytes) >= size:
            return f"{num_bytes / size:,.{2 if unit == 'GiB' else 1}f} {unit}"
    return f"{num_bytes} bytes"


class KvFormat(Enum):
    """What keys and values are kept as. float32 is the processor's only one."""

    FLOAT32 = "float32"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"


class StateFormat(Enum):
    """What recurrent states are kept as; the arithmetic is float32 for both."""

    FP32 = "fp32"
    FP16 = "fp16"


@dataclass(frozen=True, slots=True)
class Card:
    """A graphics card, or the machine's own memory (``is_host``).

    free_bytes: measured now; None for a card that is only imagined.
    """

    name: str
    total_bytes: int
    free_bytes: int | None = None
    is_host: bool = False

    def __post_init__(self) -> None:
        assert self.total_bytes > 0, "a card has memory"
        assert self.free_bytes is None or self.free_bytes >= 0, "free bytes are counted"
        assert not self.is_host or self.free_bytes is not None, "the own machine is measured"


@dataclass(frozen=True, slots=True)
class Drafter:
    """A drafter with weights of its own. cache_bytes: its keys and values, per request."""

    name: str
    weight_bytes: int
    cache_bytes: int


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Everything that memory depends on besides the model and the card.

    context: tokens of one request; None for as many as fit. prefill_chunk: rows of a pass that
    reads. max_depth: drafted tokens of a round, so a round has one row more. requantise: the parts
    whose float matrices become int8 on a card.
    """

    context: int | None = None
    kv: KvFormat = KvFormat.BF16
    state: StateFormat = StateFormat.FP32
    max_requests: int = 1
    prefill_chunk: int = 2048
    max_depth: int = 15
    use_mtp: bool = True
    requantise: tuple[str, ...] = REQUANTISED_PARTS
    snapshots_on_card: int = 2
    snapshots_on_host: int = 8
    drafter: Drafter | None = None

    def __post_init__(self) -> None:
        assert self.max_requests > 0, "somebody is served"
        assert self.prefill_chunk > 0, "a prompt is read"
        assert set(self.requantise) <= set(REQUANTISED_PARTS), "only these may be narrowed"
        assert self.max_depth >= 0, "a depth counts tokens"
        assert min(self.snapshots_on_card, self.snapshots_on_host) >= 0, "snapshots are counted"

    @property
    def verify_rows(self) -> int:
        """Rows of one request in a round: the anchor and the drafted tokens."""
        return self.max_depth + 1


@dataclass(frozen=True, slots=True)
class MemoryWish:
    """What a person asked for; None leaves the choice to the device."""

    context: int | None = None
    kv: KvFormat | None = None
    state: StateFormat | None = None
    max_requests: int | None = None
    use_mtp: bool = True
    requantise: tuple[str, ...] = REQUANTISED_PARTS


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One stretch of the card. ``id`` is one of ``PARTS``."""

    id: str
    num_bytes: int

    def __post_init__(self) -> None:
        assert self.id in PARTS, f"{self.id} is no part"
        assert self.num_bytes >= 0, f"{self.id} has a size"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a setting is impossible. ``largest_context`` is what would be possible, in tokens."""

    needed_bytes: int
    available_bytes: int
    largest_context: int
    message: str
    action: str

    @property
    def sentence(self) -> str:
        return f"{self.message} {self.action}"


@dataclass(frozen=True, slots=True)
class KvChoice:
    """One format of keys and values: bytes of a token in all layers, and how many tokens fit."""

    format: KvFormat
    bytes_per_token: int
    largest_context: int


@dataclass(frozen=True, slots=True)
class PlannedMemory:
    """What a model needs on a card. ``parts`` holds those that are not empty, in ``PARTS`` order.

    context: the tokens that ``parts`` is for. state_bytes: one copy of recurrent and convolution
    state. window_bytes: one window of rows that may still be given up. host_snapshot_bytes: the
    snapshots that are kept in the machine's memory, beside the card.
    """

    model: str
    card: Card
    settings: MemorySettings
    parts: tuple[MemoryPart, ...]
    available_bytes: int
    trained_context: int
    context: int
    largest_context: int
    kv_choices: tuple[KvChoice, ...]
    state_bytes: int
    window_bytes: int
    snapshot_bytes: int
    host_snapshot_bytes: int
    requantised: tuple[str, ...]
    refusal: Refusal | None

    @property
    def needed_bytes(self) -> int:
        return sum(part.num_bytes for part in self.parts)

    @property
    def free_bytes(self) -> int:
        """What is left; negative when the plan does not fit."""
        return self.available_bytes - self.needed_bytes

    @property
    def weight_bytes(self) -> int:
        return sum(part.num_bytes for part in self.parts if part.id in WEIGHT_PARTS)

    @property
    def bytes_per_token(self) -> int:
        return next(c.bytes_per_token for c in self.kv_choices if c.format is self.settings.kv)

    def part(self, name: str) -> int:
        """Bytes of one part, 0 when it is not there."""
        return next((part.num_bytes for part in self.parts if part.id == name), 0)

    def require(self) -> None:
        """Raises UserError with the numbers when the settings are impossible."""
        if self.refusal is not None:
            raise UserError(self.refusal.message, action=self.refusal.action)
