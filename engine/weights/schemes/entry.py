"""A quantised matrix as an entry: rows are decoded slab by slab, for packing and for values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hearth.kernels import packing
from hearth.kernels.packing_gguf import pack_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hearth.engine.weights.schemes.module import Module
    from hearth.kernels.ggml_blocks import Blocks

GROUPS = (128, 64, 32, 16)  # group sizes for scales that a whole row shares


@dataclass(frozen=True, slots=True)
class SchemeEntry:
    """Implements ``WeightEntry`` for a matrix [N, K]. ``decode``: rows to their blocks.

    ``group``: inputs that share a stored scale; None where a row or a block of rows does.
    ``input_order`` int64 [K]: the blocks' column k is input ``input_order[k]`` (activation order).
    """

    module: Module
    shape: tuple[int, int]
    format: str
    decode: Callable[[slice], Blocks]
    group: int | None = None
    input_order: torch.Tensor | None = None

    @property
    def name(self) -> str:
        return self.module.name

    @property
    def num_bytes(self) -> int:
        return self.module.num_bytes

    def packed(self) -> packing.PackedLinear:
        """In kernel layout; one slab of rows is decoded at a time."""
        result = pack_blocks(self.shape, self._slabs)
        if self.input_order is None:
            return result
        order = self.input_order.int()
        return packing.PackedLinear(result.shape, result.format, result.data, order)

    def values(self) -> torch.Tensor:
        """float32 [N, K]."""
        values = torch.cat([slab.values() for slab in self._slabs()])
        if self.input_order is None:
            return values
        ordered = torch.empty_like(values)
        ordered[:, self.input_order] = values
        return ordered

    def parts(self) -> Iterator[tuple[str, torch.Tensor]]:
        for part in sorted(self.module.parts):
            tensor = self.module.parts[part]
            yield f"{self.format} {part} {tensor.dtype}", tensor.raw()

    def _slabs(self) -> Iterator[Blocks]:
        for rows in packing.row_slabs(*self.shape, packing.SLAB_WEIGHTS):
            yield self.decode(rows)


def shared_group(module: Module, columns: int) -> int:
    """A group size for scales that do not change along a row. Raises UserError without one."""
    for group in GROUPS:
        if columns % group == 0:
            return group
    raise module.refused(f"with {columns} inputs, which are no multiple of 16")


def check_group(module: Module, columns: int, num_groups: int) -> int:
    """The group size that ``num_groups`` scales a row mean. Raises UserError for an odd one."""
    if columns % num_groups:
        raise module.refused(f"with {num_groups} scales for {columns} inputs")
    group = columns // num_groups
    if group % GROUPS[-1]:
        raise module.refused(f"in groups of {group}")
    return group


def spread_scales(scales: torch.Tensor, columns: int, group: int) -> torch.Tensor:
    """float32 [R, columns / group] from [R, G] with fewer, larger groups (or one)."""
    num_groups = columns // group
    index = torch.arange(num_groups) * scales.shape[1] // num_groups
    return scales.float()[:, index].contiguous()
