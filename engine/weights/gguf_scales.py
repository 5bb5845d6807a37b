"""NVFP4's second scale: one number for a whole tensor, stored beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.engine.weights.files import damaged, shown
from hearth.kernels import ggml_blocks, packing_gguf

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from hearth.engine.weights.entries import TensorEntry
    from hearth.engine.weights.gguf import GgufFile, GgufTensor
    from hearth.kernels.packing import PackedLinear

# .input_scale is for programs that quantise activations, which Hearth does not.
SUFFIXES = (".scale", ".input_scale")


@dataclass(frozen=True, slots=True)
class ScaledEntry:
    """A quantised tensor whose values are ``scale`` times what its blocks say."""

    blocks: TensorEntry
    scale: float
    stored: torch.Tensor  # uint8 [1, 4]: the scale in the file

    def __post_init__(self) -> None:
        assert self.blocks.ggml_type not in ggml_blocks.FLOAT_DTYPES, "blocks have scales"
        assert 0.0 < self.scale < math.inf, "the scale is a number"

    @property
    def name(self) -> str:
        return self.blocks.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.blocks.shape

    @property
    def format(self) -> str:
        return self.blocks.format

    @property
    def num_bytes(self) -> int:
        return self.blocks.num_bytes + self.stored.numel()

    def packed(self) -> PackedLinear:
        blocks = self.blocks
        return packing_gguf.pack_gguf(
            blocks.raw, blocks.ggml_type, blocks.row_order, scale=self.scale
        )

    def values(self) -> torch.Tensor:
        """float32 of ``shape``; as the kernels compute them, the scales multiplied first."""
        blocks = self.blocks
        decoded = ggml_blocks.decode_blocks(blocks.raw, blocks.ggml_type)
        values = decoded.times(self.scale).values()
        if blocks.row_order is not None:
            values = values[blocks.row_order]
        return values.reshape(self.shape)

    def parts(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self.blocks.parts()
        yield "scale", self.stored


def is_scale(gguf: GgufFile, name: str) -> bool:
    """Whether this tensor is a number that belongs to another one."""
    return any(
        name.endswith(suffix) and name.removesuffix(suffix) + ".weight" in gguf.tensors
        for suffix in SUFFIXES
    )


def with_scale(gguf: GgufFile, tensor: GgufTensor, entry: TensorEntry) -> TensorEntry | ScaledEntry:
    """``entry``, times the scale that the file holds for it. Raises UserError for no number."""
    stem = tensor.name.removesuffix(".weight")
    stored = gguf.tensors.get(stem + ".scale")
    if stored is None or stem == tensor.name:
        return entry
    if tensor.ggml_type in ggml_blocks.FLOAT_DTYPES:
        raise damaged(gguf.path, f"{shown(tensor.name)} is not quantised, but has a scale")
    if stored.ggml_type != ggml_blocks.F32 or stored.num_bytes != 4:
        raise damaged(gguf.path, f"{shown(stored.name)} is no single number")
    scale = float(ggml_blocks.dequantise(stored.raw(), ggml_blocks.F32))
    if not 0.0 < scale < math.inf:
        raise damaged(gguf.path, f"{shown(stored.name)} is {scale}")
    return ScaledEntry(entry, scale, stored.raw())
