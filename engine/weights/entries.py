"""One tensor of an opened model: what it is stored as, and the two forms the engine takes it in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from hearth.kernels import ggml_blocks, packing, packing_gguf

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


class WeightEntry(Protocol):
    """A tensor under its canonical name, read when asked for. ``shape`` is that of the values.

    Entries that a format's own scheme stores in several tensors implement this too.
    """

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def format(self) -> str:
        """The format's published name, for people: BF16, Q4_K, int4 g128, NVFP4."""

    @property
    def num_bytes(self) -> int:
        """In the file."""

    def packed(self) -> packing.PackedLinear:
        """In kernel layout, without loss to ``values``. Only for matrices."""

    def values(self) -> torch.Tensor:
        """float32 of ``shape``."""

    def parts(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The stored tensors as (description, uint8 view of the file), for the fingerprint."""


class Transform(Enum):
    """What a published vector becomes before the engine uses it."""

    PLUS_ONE = "1 + w"  # zero-centred norm weights
    MINUS_EXP = "-exp(w)"  # A_log


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor of one ggml type (floats are types too).

    ``raw`` is uint8 [rows, row bytes], a view of the mapped file. ``row_order`` int64 [rows]: the
    wanted order where the file has another.
    """

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    raw: torch.Tensor
    row_order: torch.Tensor | None = None
    transform: Transform | None = None

    @property
    def format(self) -> str:
        return ggml_blocks.LAYOUTS[self.ggml_type].name

    @property
    def num_bytes(self) -> int:
        return self.raw.numel()

    def packed(self) -> packing.PackedLinear:
        assert self.transform is None, "only vectors are transformed"
        return packing_gguf.pack_gguf(self.raw, self.ggml_type, self.row_order)

    def row_values(self, rows: slice) -> torch.Tensor:
        """float32 of some rows of a matrix, in the wanted order."""
        assert self.transform is None, "only vectors are transformed"
        chosen = self.raw[rows if self.row_order is None else self.row_order[rows]]
        return ggml_blocks.dequantise(chosen, self.ggml_type)

    def values(self) -> torch.Tensor:
        """float32 of ``shape``."""
        values = ggml_blocks.dequantise(self.raw, self.ggml_type)
        if self.row_order is not None:
            values = values[self.row_order]
        values = values.reshape(self.shape)
        if self.transform is Transform.PLUS_ONE:
            return values + 1.0
        if self.transform is Transform.MINUS_EXP:
            return -values.exp()
        return values

    def parts(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield str(self.ggml_type), self.raw
