"""What synthetic models may be called: named sizes of the hybrid family, and kinds of checkpoints.

A synthetic model has a name in place of a path, ``synthetic:SHAPE:FORMAT``: everything that takes a
model's path takes it too (``synthetic.py`` makes the weights). This module needs no torch.

Sizes of 2b and 9b come from a single published table; a real model's config.json says what is so.
``tiny`` and ``tiny-dense`` are for tests: every kind of layer in a second.
"""

from __future__ import annotations

from pathlib import Path

from hearth.engine.errors import UserError
from hearth.engine.model.config import FULL, LINEAR, LinearAttention, ModelConfig

SCHEME = "synthetic:"
FORMATS = ("w4a16", "fp8", "nvfp4-mixed", "q4_k_m", "q6_k", "bf16")
FULL_ATTENTION_INTERVAL = 4


def _layer_types(num_layers: int) -> tuple[str, ...]:
    """Every fourth layer is full attention."""
    indexes = range(1, num_layers + 1)
    return tuple(LINEAR if index % FULL_ATTENTION_INTERVAL else FULL for index in indexes)


def _hybrid(
    sizes: tuple[int, int, int], heads: tuple[int, int], value_heads: int, *, tied: bool
) -> ModelConfig:
    """A published size. sizes: hidden, intermediate, layers; heads: query, key and value."""
    hidden, intermediate, num_layers = sizes
    return ModelConfig(
        architecture="qwen3_5",
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=num_layers,
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
        head_dim=256,
        vocab_size=248320,
        max_position_embeddings=262144,
        rms_norm_eps=1e-6,
        rope_theta=1e7,
        tie_word_embeddings=tied,
        layer_types=_layer_types(num_layers),
        linear=LinearAttention(16, value_heads, 128, 128, 4),
        rotary_dim=64,
        mrope_section=(11, 11, 10),
        num_mtp_layers=1,
    )


def _tiny() -> ModelConfig:
    """Three linear layers to one of full attention, twice; value heads are twice the key heads.
    The vocabulary is no multiple of 64, so that padding of rows is met."""
    return ModelConfig(
        architecture="qwen3_5",
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        vocab_size=300,
        max_position_embeddings=4096,
        rms_norm_eps=1e-6,
        rope_theta=1e7,
        layer_types=_layer_types(8),
        linear=LinearAttention(2, 4, 64, 64, 4),
        rotary_dim=16,
        mrope_section=(3, 3, 2),
        num_mtp_layers=1,
    )


def _tiny_dense() -> ModelConfig:
    return ModelConfig(
        architecture="qwen3",
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        vocab_size=300,
        max_position_embeddings=4096,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        tie_word_embeddings=True,
    )


SHAPES = {
    "qwen3.8-27b": _hybrid((5120, 17408, 64), (24, 4), 48, tied=False),
    "qwen3.5-27b": _hybrid((5120, 17408, 64), (24, 4), 48, tied=False),
    "qwen3.5-9b": _hybrid((4096, 12288, 32), (16, 4), 32, tied=False),
    "qwen3.5-4b": _hybrid((2560, 9216, 32), (16, 4), 32, tied=True),
    "qwen3.5-2b": _hybrid((2048, 6144, 24), (8, 2), 16, tied=True),
    "qwen3.5-0.8b": _hybrid((1024, 3584, 24), (8, 2), 16, tied=True),
    "tiny": _tiny(),
    "tiny-dense": _tiny_dense(),
}


def is_synthetic(path: Path) -> bool:
    """Whether ``path`` is the name of a synthetic model and not a place on disk."""
    return str(path).startswith(SCHEME)


def synthetic_path(shape: str, checkpoint: str) -> Path:
    """The name of a model. Raises UserError that lists what there is."""
    _refuse_unknown("shape", shape, tuple(SHAPES))
    _refuse_unknown("format", checkpoint, FORMATS)
    return Path(f"{SCHEME}{shape}:{checkpoint}")


def split_name(path: Path) -> tuple[str, str]:
    """Shape and format of a synthetic model's name; UserError when there is no such model."""
    shape, _, checkpoint = str(path).removeprefix(SCHEME).partition(":")
    synthetic_path(shape, checkpoint)
    return shape, checkpoint


def _refuse_unknown(what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise UserError(
            f"There are no synthetic weights of {what} {name[:40]!r}.",
            action=f"Choose one of: {', '.join(known)}.",
        )
