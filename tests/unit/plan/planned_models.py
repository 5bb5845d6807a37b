"""Models of true shapes without data: what a plan is made from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hearth.engine.model.config import FULL, LINEAR, LinearAttention, ModelConfig
from hearth.engine.text.data import FolderText
from hearth.engine.weights.checks import expected_shapes
from hearth.engine.weights.model_files import ModelFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from hearth.kernels.packing import PackedLinear

INT4 = "int4 g128"
UNQUANTISED = ("token_embd", "output", "in_a", "in_b")


@dataclass(frozen=True)
class Shape:
    """A tensor that has everything but values."""

    name: str
    shape: tuple[int, ...]
    format: str

    @property
    def num_bytes(self) -> int:
        weights = math.prod(self.shape)
        return {"BF16": weights * 2, "F32": weights * 4, INT4: weights // 2 + weights // 64}[
            self.format
        ]

    def packed(self) -> PackedLinear:
        raise NotImplementedError("a plan reads no weights")

    def values(self) -> torch.Tensor:
        raise NotImplementedError("a plan reads no weights")

    def parts(self) -> Iterator[tuple[str, torch.Tensor]]:
        raise NotImplementedError("a plan reads no weights")


HYBRID_27B = ModelConfig(
    architecture="qwen3_5",
    hidden_size=5120,
    intermediate_size=17408,
    num_hidden_layers=64,
    num_attention_heads=24,
    num_key_value_heads=4,
    head_dim=256,
    vocab_size=248320,
    max_position_embeddings=262144,
    rms_norm_eps=1e-6,
    rope_theta=1e7,
    layer_types=((LINEAR,) * 3 + (FULL,)) * 16,
    linear=LinearAttention(16, 48, 128, 128, 4),
    rotary_dim=64,
    mrope_section=(11, 11, 10),
    num_mtp_layers=1,
)
DENSE = ModelConfig(
    architecture="llama",
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    head_dim=64,
    vocab_size=49152,
    max_position_embeddings=8192,
    rms_norm_eps=1e-5,
    rope_theta=1e5,
    tie_word_embeddings=True,
)


def model(config: ModelConfig = HYBRID_27B, *, layers: str = INT4) -> ModelFiles:
    """Matrices of layers in ``layers``, everything else in bf16, as checkpoints are published."""

    def form(name: str, shape: tuple[int, ...]) -> str:
        left = name.startswith("mtp.") or name.rsplit(".", 1)[-1] in UNQUANTISED
        return "BF16" if left or len(shape) != 2 or name.endswith(".conv") else layers

    shapes = expected_shapes(config)
    return ModelFiles(
        name="Tall",
        path=Path("tall"),
        config=config,
        tensors={name: Shape(name, shape, form(name, shape)) for name, shape in shapes.items()},
        text=FolderText(Path("tokenizer.json"), (), None, (), None),
        fingerprint="0",
    )
