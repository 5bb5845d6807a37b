"""What a model is made of: the values of config.json (or of GGUF metadata under the same names)."""

from __future__ import annotations

from dataclasses import dataclass

ARCHITECTURES = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """A published way of stretching rotary positions: ``kind`` linear, llama3 or yarn."""

    kind: str
    factor: float
    original_max_position_embeddings: int | None = None
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0

    def __post_init__(self) -> None:
        assert self.kind in ("linear", "llama3", "yarn"), f"rope scaling {self.kind}"
        assert self.factor > 0.0, "a rope scaling factor is positive"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Names and meanings are those of config.json."""

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

    def __post_init__(self) -> None:
        assert self.architecture in ARCHITECTURES, self.architecture
        sizes = (self.hidden_size, self.intermediate_size, self.num_hidden_layers, self.head_dim)
        assert min(*sizes, self.vocab_size, self.max_position_embeddings) > 0, "sizes are positive"
        assert self.num_key_value_heads > 0, "there are key heads"
        assert self.num_attention_heads % self.num_key_value_heads == 0, "heads share evenly"
        assert self.head_dim % 2 == 0, "rotary pairs need an even head size"
        assert 0.0 < self.rms_norm_eps < 1.0, "rms_norm_eps is a small number"
        assert self.rope_theta > 0.0, "rope_theta is positive"

    @property
    def attention_bias(self) -> bool:
        """Whether q, k and v have biases."""
        return self.architecture == "qwen2"

    @property
    def qk_norm(self) -> bool:
        """Whether q and k heads are normalised before the rotary embedding."""
        return self.architecture == "qwen3"

    @property
    def q_size(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_key_value_heads * self.head_dim
