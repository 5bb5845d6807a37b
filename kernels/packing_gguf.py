"""Packs decoded rows, slab by slab, in the narrowest format that holds them without loss."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import torch

from hearth.kernels import ggml_blocks, packing
from hearth.kernels.minifloat import MINIFLOATS
from hearth.kernels.packing import PackedLinear, WeightFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SIGNED_BIASES = (4, 8, 16, 32, 128)  # Q3_K; int4; int5; Q6_K; Q8_0, IQ4 and int8


def pack_gguf(
    raw: torch.Tensor,
    ggml_type: int,
    row_order: torch.Tensor | None = None,
    *,
    scale: float = 1.0,
) -> PackedLinear:
    """Pack ``raw`` uint8 [N, row bytes]; output n becomes row ``row_order[n]`` when given.

    ``scale`` multiplies the scales of the blocks, so floats have none.
    """
    if ggml_type in ggml_blocks.FLOAT_DTYPES:
        assert scale == 1.0, "floats are stored as they are"
        return packing.pack_float(
            raw.contiguous().view(ggml_blocks.FLOAT_DTYPES[ggml_type]), row_order
        )
    layout = ggml_blocks.LAYOUTS[ggml_type]
    shape = (raw.shape[0], raw.shape[1] // layout.num_bytes * layout.elements)

    def slabs() -> Iterator[ggml_blocks.Blocks]:
        for rows in packing.row_slabs(*shape, packing.SLAB_WEIGHTS):
            chosen = raw[rows if row_order is None else row_order[rows]]
            slab = ggml_blocks.decode_blocks(chosen, ggml_type)
            yield slab if scale == 1.0 else slab.times(scale)

    return pack_blocks(shape, slabs)


def pack_blocks(
    shape: tuple[int, int], slabs: Callable[[], Iterator[ggml_blocks.Blocks]]
) -> PackedLinear:
    """Pack decoded rows in the narrowest format that holds them. ``slabs`` starts a new pass.

    The format is the one that the first slab needs; when a later one needs a wider one, packing
    starts again. So rows are decoded once, and one slab at a time is held.
    """
    started = slabs()
    first = next(started)
    needs = _needs_of(first)
    checked: Iterator[ggml_blocks.Blocks] = chain((first,), _checked(started, needs))
    while True:
        try:
            return packing.pack_slabs(shape, needs.form, checked)
        except _TooNarrowError as error:
            needs = error.needs
            checked = _checked(slabs(), needs)


@dataclass(frozen=True, slots=True)
class _Needs:
    """What rows need of a format. ``offset_biases``: each b with offset = -b * scale everywhere
    (Q4_0: 8, Q5_0: 16); None without offsets."""

    lowest: int
    highest: int
    group: int
    is_signed: bool
    has_half_scales: bool
    has_half_offsets: bool
    offset_biases: frozenset[int] | None
    minifloat: str | None

    @property
    def form(self) -> WeightFormat:
        """The narrowest."""
        if self.minifloat is not None:
            bits, half = MINIFLOATS[self.minifloat].bits, self.has_half_scales
            return WeightFormat(bits, group=self.group, half_scales=half, minifloat=self.minifloat)
        return self._integer_form

    @property
    def _integer_form(self) -> WeightFormat:
        """The narrowest. A bias is added to signed codes, or stands for all offsets.

        One much larger than the codes would cost precision: sum(code * x) and bias * sum(x) cancel.
        """
        bias = min(self.offset_biases or (0,))
        if self.is_signed:
            bias = next(bias for bias in SIGNED_BIASES if self.lowest >= -bias)
        has_offsets = self.offset_biases is not None and bias == 0
        return WeightFormat(
            bits=4 if self.highest + (bias if self.is_signed else 0) < 16 else 8,
            bias=bias,
            group=self.group,
            half_scales=self.has_half_scales and (self.has_half_offsets or not has_offsets),
            has_offsets=has_offsets,
        )

    def joined(self, other: _Needs) -> _Needs:
        biases = None
        if self.offset_biases is not None and other.offset_biases is not None:
            biases = self.offset_biases & other.offset_biases
        return _Needs(
            min(self.lowest, other.lowest),
            max(self.highest, other.highest),
            self.group,
            self.is_signed,
            self.has_half_scales and other.has_half_scales,
            self.has_half_offsets and other.has_half_offsets,
            biases,
            self.minifloat,
        )


class _TooNarrowError(Exception):
    """A later slab needs a wider format than those before it."""

    def __init__(self, needs: _Needs) -> None:
        super().__init__()
        self.needs = needs


def _needs_of(slab: ggml_blocks.Blocks) -> _Needs:
    biases = None
    offsets = slab.offsets
    if offsets is not None:
        biases = frozenset(b for b in (8, 16) if torch.equal(offsets, slab.scales * -b))
    return _Needs(
        lowest=int(slab.codes.min()),
        highest=int(slab.codes.max()),
        group=slab.group,
        is_signed=slab.codes.dtype == torch.int8,
        has_half_scales=_are_halves(slab.scales),
        has_half_offsets=offsets is None or _are_halves(offsets),
        offset_biases=biases,
        minifloat=slab.minifloat,
    )


def _are_halves(values: torch.Tensor) -> bool:
    return torch.equal(values.half().float(), values)


def _checked(slabs: Iterable[ggml_blocks.Blocks], needs: _Needs) -> Iterator[ggml_blocks.Blocks]:
    for slab in slabs:
        joined = needs.joined(_needs_of(slab))
        if joined.form != needs.form:
            raise _TooNarrowError(joined)
        yield slab
