"""What a model is made of: the values of config.json (or of GGUF metadata under the same names)."""

from __future__ import annotations

import math
from dataclasses import dataclass

ARCHITECTURES = ("llama", "qwen2", "qwen3", "qwen3_5")
FULL, LINEAR = "full_attention", "linear_attention"  # kinds of layers, by config.json's names
ROPE_SCALINGS = ("linear", "llama3", "yarn")
# Far beyond any published model; they keep a hostile file from asking for endless work.
MAX_SIZE = 1 << 20
MAX_LAYERS = 1 << 10
MAX_CONTEXT = 1 << 26


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """A published way of stretching rotary positions: ``kind`` linear, llama3 or yarn.

    Raises ValueError with the reason when values are impossible (they come from files).
    """

    kind: str
    factor: float
    original_max_position_embeddings: int | None = None
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0

    def __post_init__(self) -> None:
        _require(self.kind in ROPE_SCALINGS, "the rope scaling is of a known kind")
        original = self.original_max_position_embeddings
        _require(
            original is None or 0 < original <= MAX_CONTEXT, "the original context is sensible"
        )
        _require(original is not None or self.kind != "llama3", "llama3 has an original context")
        _require(1.0 <= self.factor < math.inf, "the rope scaling factor is at least 1")
        low, high = self.low_freq_factor, self.high_freq_factor
        _require(0.0 < low < high < math.inf, "low_freq_factor is below high_freq_factor")
        slow, fast = self.beta_slow, self.beta_fast
        _require(0.0 < slow <= fast < math.inf, "beta_slow is at most beta_fast")


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Sizes of Gated DeltaNet layers; config.json's ``linear_…`` keys without that prefix.

    ``is_tiled``: value head j belongs to key head j % num_key_heads (GGUF's order) instead of
    j // (num_value_heads / num_key_heads). ValueError: see ``ModelConfig``.
    """

    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel_dim: int
    is_tiled: bool = False

    def __post_init__(self) -> None:
        heads = (self.num_key_heads, self.num_value_heads)
        dims = (self.key_head_dim, self.value_head_dim)
        _require(all(0 < size <= MAX_SIZE for size in heads + dims), "linear sizes are sensible")
        _require(heads[1] % heads[0] == 0, "value heads share key heads evenly")
        _require(all(dim % 16 == 0 for dim in dims), "linear head sizes are multiples of 16")
        _require(self.conv_dim <= MAX_SIZE, "linear heads are of a sensible size")
        _require(1 < self.conv_kernel_dim <= 16, "the convolution is of a sensible length")

    @property
    def key_size(self) -> int:
        return self.num_key_heads * self.key_head_dim

    @property
    def value_size(self) -> int:
        return self.num_value_heads * self.value_head_dim

    @property
    def conv_dim(self) -> int:
        """Channels of the convolution: q, k and v."""
        return 2 * self.key_size + self.value_size


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Names and meanings are those of config.json. ``layer_types`` is empty when all layers are
    full attention; ``linear`` belongs to the others.

    Raises ValueError with the reason when values are impossible (they come from files).
    """

    architecture: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int  # rows of the embedding matrix, padding included
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    tie_word_embeddings: bool = False
    layer_types: tuple[str, ...] = ()
    linear: LinearAttention | None = None
    rotary_dim: int | None = None  # of a head's first dimensions; None: all of them
    mrope_section: tuple[int, int, int] | None = None  # frequencies by time, height and width
    num_mtp_layers: int = 0

    def __post_init__(self) -> None:
        _require(self.architecture in ARCHITECTURES, "the architecture is known")
        sizes = (self.hidden_size, self.intermediate_size, self.head_dim, self.num_attention_heads)
        _require(all(0 < size <= MAX_SIZE for size in sizes), "sizes are positive and sensible")
        _require(0 < self.num_hidden_layers <= MAX_LAYERS, "the number of layers is sensible")
        _require(0 < self.vocab_size <= 16 * MAX_SIZE, "the vocabulary is of a sensible size")
        _require(0 < self.max_position_embeddings <= MAX_CONTEXT, "the context is sensible")
        _require(self.num_key_value_heads > 0, "there are key heads")
        shared_evenly = self.num_attention_heads % self.num_key_value_heads == 0
        _require(shared_evenly, "query heads share key heads evenly")
        _require(self.q_size <= MAX_SIZE, "heads are of a sensible size")
        _require(self.head_dim % 2 == 0, "rotary pairs need an even head size")
        _require(0.0 < self.rms_norm_eps < 1.0, "rms_norm_eps is a small number")
        _require(1.0 < self.rope_theta < math.inf, "rope_theta is above 1")
        self._check_layers()

    def _check_layers(self) -> None:
        kinds = self.layer_types
        _require(len(kinds) in (0, self.num_hidden_layers), "every layer has a kind")
        _require(set(kinds) <= {FULL, LINEAR}, "layers are of known kinds")
        _require((LINEAR in kinds) == (self.linear is not None), "linear layers have sizes")
        turned = self.rope_dim
        _require(turned % 2 == 0 and 0 < turned <= self.head_dim, "rotary pairs fit in a head")
        section = self.mrope_section or (turned // 2, 0, 0)
        _require(min(section) >= 0 and sum(section) == turned // 2, "mrope covers all frequencies")
        _require(0 <= self.num_mtp_layers <= 1, "there is at most one MTP layer")

    @property
    def attention_bias(self) -> bool:
        """Whether q, k and v have biases."""
        return self.architecture == "qwen2"

    @property
    def qk_norm(self) -> bool:
        """Whether q and k heads are normalised before the rotary embedding."""
        return self.architecture in ("qwen3", "qwen3_5")

    @property
    def attn_output_gate(self) -> bool:
        """Whether q_proj gives a gate behind each head's query."""
        return self.architecture == "qwen3_5"

    @property
    def zero_centred_norms(self) -> bool:
        """Whether published norm weights are w of (1 + w); GDN's own norm is not. GGUF files hold
        1 + w already."""
        return self.architecture == "qwen3_5"

    @property
    def rope_dim(self) -> int:
        """How many of a head's dimensions are rotated."""
        return self.rotary_dim or self.head_dim

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of every layer."""
        return self.layer_types or (FULL,) * self.num_hidden_layers

    @property
    def num_attention_layers(self) -> int:
        """Layers with keys and values, the MTP module's included."""
        return self.kinds.count(FULL) + self.num_mtp_layers

    @property
    def num_linear_layers(self) -> int:
        return self.kinds.count(LINEAR)

    @property
    def q_size(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_key_value_heads * self.head_dim


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(f"not so: {rule}")
