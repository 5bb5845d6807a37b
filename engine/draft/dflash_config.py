"""What a DFlash drafter is made of: the values of its own config.json.

DFlash2 adds local convolutions and a candidate selector to DFlash; nothing else differs, so both
are one configuration whose additions may be missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from hearth.engine.model.config import MAX_CONTEXT, MAX_LAYERS, MAX_SIZE

SLIDING, FULL = "sliding_attention", "full_attention"
MAX_BLOCK = 256  # published: 8 and 16
MAX_CANDIDATES = 1024  # published: 16


class UndeclaredCausality(Enum):
    """What the rows of a block see of later rows when a configuration does not say.

    Published engines disagree about such drafters; measured acceptance decides.
    """

    BY_KIND = "sliding layers are causal, full ones are not"
    NEVER = "all rows see each other"


@dataclass(frozen=True, slots=True)
class DynamicConv:
    """Local dynamic convolutions around attention and MLP."""

    kernel_size: int
    group_size: int

    def __post_init__(self) -> None:
        _require(1 <= self.kernel_size <= 16, "the convolution is of a sensible length")
        _require(1 <= self.group_size <= MAX_SIZE, "its groups are of a sensible size")


@dataclass(frozen=True, slots=True)
class Selector:
    """The candidate selector: rank of its codebooks, candidates of a row."""

    rank: int
    top_k: int

    def __post_init__(self) -> None:
        _require(1 <= self.rank <= MAX_SIZE, "the selector's rank is sensible")
        _require(1 <= self.top_k <= MAX_CANDIDATES, "the selector's candidates are few")


@dataclass(frozen=True, slots=True)
class DflashConfig:
    """Names and meanings are those of config.json. ``windows`` and ``is_causal``: one value a
    layer; a window counts the query itself, None sees everything.

    Raises ValueError with the reason when values are impossible (they come from files).
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    windows: tuple[int | None, ...]
    is_causal: tuple[bool, ...]
    num_target_layers: int | None = None
    conv: DynamicConv | None = None
    selector: Selector | None = None
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None

    def __post_init__(self) -> None:
        sizes = (self.hidden_size, self.intermediate_size, self.head_dim, self.num_attention_heads)
        _require(all(0 < size <= MAX_SIZE for size in sizes), "sizes are positive and sensible")
        _require(0 < self.num_hidden_layers <= MAX_LAYERS, "the number of layers is sensible")
        _require(0 < self.vocab_size <= 16 * MAX_SIZE, "the vocabulary is of a sensible size")
        _require(self.num_key_value_heads > 0, "there are key heads")
        shared_evenly = self.num_attention_heads % self.num_key_value_heads == 0
        _require(shared_evenly, "query heads share key heads evenly")
        _require(self.head_dim % 2 == 0, "rotary pairs need an even head size")
        _require(self.q_size <= MAX_SIZE, "heads are of a sensible size")
        _require(0.0 < self.rms_norm_eps < 1.0, "rms_norm_eps is a small number")
        _require(1.0 < self.rope_theta < math.inf, "rope_theta is above 1")
        self._check_drafting()

    def _check_drafting(self) -> None:
        _require(2 <= self.block_size <= MAX_BLOCK, "a block is of a sensible length")
        _require(0 <= self.mask_token_id < self.vocab_size, "the mask token is in the vocabulary")
        taps = self.target_layer_ids
        _require(0 < len(taps) <= MAX_LAYERS, "there are taps")
        _require(all(0 <= tap < MAX_LAYERS for tap in taps), "taps are layers")
        _require(len(self.windows) == self.num_hidden_layers, "every layer has a window or none")
        given = [window for window in self.windows if window is not None]
        _require(all(2 <= window <= MAX_CONTEXT for window in given), "windows are sensible")
        _require(len(self.is_causal) == self.num_hidden_layers, "every layer is causal or not")
        cap = self.final_logit_softcapping
        _require(cap is None or cap > 0.0, "the cap of the logits is positive")
        group = 1 if self.conv is None else self.conv.group_size
        _require(self.hidden_size % group == 0, "convolution groups share channels evenly")

    @property
    def q_size(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_key_value_heads * self.head_dim

    @property
    def max_depth(self) -> int:
        """Drafted tokens of a round: the block's first row is the anchor's."""
        return self.block_size - 1


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(f"not so: {rule}")
