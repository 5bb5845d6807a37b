"""Weights in the layout the linear kernels read: tiles of 16 outputs, groups along the input.

A tile holds 16 output rows. Per group of inputs (a multiple of 16): 16 scales, 16 offsets (when the
format has them), then the codes of the group, inputs ascending, 16 lanes wide: eight 4-bit or four
8-bit codes of one output in each 32-bit word. Codes are unsigned; a signed code is stored as code +
bias, a small float (kernels/minifloat.py) as its bits.
Nothing is rounded: scales are float16 only where that is exact. Float weights are stored as they
are, one 16-lane row per input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hearth.kernels.minifloat import MINIFLOATS, values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hearth.kernels import ggml_blocks

LANES = 16
TILES_PER_UNIT = 4  # outputs are padded to units of 64, what the one-row kernel takes at once
UNIT = LANES * TILES_PER_UNIT
SLAB_WEIGHTS = 1 << 21  # decoded at a time: bounds the memory that packing takes beside its result


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How one tile is stored: value = (code - bias) * scale + offset, or minifloat * scale; floats
    have no codes."""

    bits: int  # 4 or 8 a code, 16 or 32 a float
    bias: int = 0
    group: int = 32
    half_scales: bool = True
    has_offsets: bool = False
    float_dtype: torch.dtype | None = None
    minifloat: str | None = None

    def __post_init__(self) -> None:
        if self.minifloat is not None:
            assert self.bits == MINIFLOATS[self.minifloat].bits, "codes fill their place"
            assert self.bias == 0 and not self.has_offsets, "small floats are only scaled"  # noqa: PT018

    @property
    def name(self) -> str:
        if self.float_dtype is not None:
            return str(self.float_dtype).removeprefix("torch.")
        scale = "h" if self.half_scales else "f"
        offset = "o" if self.has_offsets else ""
        if self.minifloat is not None:
            return f"{self.minifloat}g{self.group}{scale}"
        return f"u{self.bits}b{self.bias}g{self.group}{scale}{offset}"

    @property
    def scale_bytes(self) -> int:
        return 2 if self.half_scales else 4

    @property
    def group_bytes(self) -> int:
        """Bytes of one group of one tile."""
        if self.float_dtype is not None:
            return self.group * LANES * self.bits // 8
        per_group = LANES * self.scale_bytes * (2 if self.has_offsets else 1)
        return per_group + self.group * LANES * self.bits // 8


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """A weight matrix of N outputs and K inputs. ``data``: uint8, tiles in order of outputs.
    ``input_order`` int32 [K]: column k of the tiles is input ``input_order[k]``; None: k."""

    shape: tuple[int, int]
    format: WeightFormat
    data: torch.Tensor
    input_order: torch.Tensor | None = None

    @property
    def num_bytes(self) -> int:
        return self.data.numel()

    @property
    def num_units(self) -> int:
        return -(-self.shape[0] // UNIT)

    @property
    def groups_per_row(self) -> int:
        return self.shape[1] // self.format.group

    @property
    def tile_bytes(self) -> int:
        return self.groups_per_row * self.format.group_bytes


def pack_slabs(
    shape: tuple[int, int], form: WeightFormat, slabs: Iterable[ggml_blocks.Blocks]
) -> PackedLinear:
    """Pack decoded rows of a known format as they come: one slab is held at a time. ``row_slabs``
    says how many rows each has."""
    packed = _unfilled(shape, form)
    done = 0
    for slab in slabs:
        tiles = _pack_slab(slab, form)
        packed.data[done : done + len(tiles)] = tiles
        done += len(tiles)
    assert done == packed.num_bytes, "slabs hold all rows, each but the last whole units"
    return packed


def row_slabs(num_rows: int, columns: int, max_weights: int) -> Iterator[slice]:
    """Rows in whole units of at most ``max_weights`` weights (but at least one unit)."""
    step = max(max_weights // columns // UNIT, 1) * UNIT
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))


def _pack_slab(slab: ggml_blocks.Blocks, form: WeightFormat) -> torch.Tensor:
    codes = _pad_rows(slab.codes)
    num_tiles, columns = codes.shape[0] // LANES, codes.shape[1]
    groups = columns // form.group
    words = _words(codes, form).view(num_tiles, LANES, groups, -1)
    pieces = [_tile_scales(slab.scales, form)]
    if form.has_offsets:
        assert slab.offsets is not None, "the format says so"
        pieces.append(_tile_scales(slab.offsets, form))
    lanes_last = words.permute(0, 2, 3, 1).contiguous()  # tile, group, word, lane
    pieces.append(lanes_last.view(torch.uint8).view(num_tiles, groups, -1))
    return torch.cat(pieces, dim=2).flatten()


def _words(codes: torch.Tensor, form: WeightFormat) -> torch.Tensor:
    """int32 [R, K * bits / 32]. Unsigned codes one behind the other are such words already, the
    first in the lowest bits; a signed code and its bias are added modulo 256."""
    unsigned = codes.view(torch.uint8) + (form.bias if codes.dtype == torch.int8 else 0)
    if form.bits == 4:
        pairs = unsigned.view(codes.shape[0], -1, 2)
        unsigned = pairs[..., 0] | (pairs[..., 1] << 4)
    return unsigned.contiguous().view(torch.int32)


def _tile_scales(scales: torch.Tensor, form: WeightFormat) -> torch.Tensor:
    """Bytes [tiles, groups, 16 * scale bytes] of [R, groups] scales."""
    tiled = _pad_rows(scales).view(-1, LANES, scales.shape[1]).transpose(1, 2).contiguous()
    stored = tiled.half() if form.half_scales else tiled
    return stored.view(torch.uint8).view(tiled.shape[0], tiled.shape[1], -1)


def _pad_rows(matrix: torch.Tensor) -> torch.Tensor:
    missing = -matrix.shape[0] % UNIT
    if missing == 0:
        return matrix
    padding = torch.zeros((missing, matrix.shape[1]), dtype=matrix.dtype)
    return torch.cat((matrix, padding))


def pack_float(weight: torch.Tensor, row_order: torch.Tensor | None = None) -> PackedLinear:
    """Pack float32, float16 or bfloat16 [N, K] without changing a value."""
    assert weight.dtype in (torch.float32, torch.float16, torch.bfloat16), "a float weight"
    num_rows, columns = weight.shape
    form = WeightFormat(bits=weight.element_size() * 8, group=1, float_dtype=weight.dtype)
    integers = torch.int32 if weight.dtype == torch.float32 else torch.int16
    packed = _unfilled((num_rows, columns), form)
    tiles = packed.data.view(integers).view(-1, columns, LANES)
    for rows in row_slabs(num_rows, columns, SLAB_WEIGHTS):
        chosen = weight[rows if row_order is None else row_order[rows]].contiguous()
        slab = _pad_rows(chosen.view(integers)).view(-1, LANES, columns).transpose(1, 2)
        tiles[rows.start // LANES : rows.start // LANES + len(slab)] = slab
    return packed


def _unfilled(shape: tuple[int, int], form: WeightFormat) -> PackedLinear:
    """Room for a matrix, outputs padded to whole units."""
    empty = PackedLinear(shape, form, torch.empty(0, dtype=torch.uint8))
    num_bytes = empty.num_units * TILES_PER_UNIT * empty.tile_bytes
    return PackedLinear(shape, form, torch.empty(num_bytes, dtype=torch.uint8))


def dequantise(weight: PackedLinear) -> torch.Tensor:
    """float32 [N, K]: the values the kernels compute with (tests, references)."""
    stored = _dequantised_tiles(weight)
    if weight.input_order is None:
        return stored
    ordered = torch.empty_like(stored)
    ordered[:, weight.input_order.long()] = stored
    return ordered


def _dequantised_tiles(weight: PackedLinear) -> torch.Tensor:
    form, (num_rows, columns) = weight.format, weight.shape
    groups = weight.groups_per_row
    tiles = weight.data.view(-1, groups, form.group_bytes)
    if form.float_dtype is not None:
        floats = tiles.contiguous().view(form.float_dtype).view(-1, columns, LANES)
        return floats.transpose(1, 2).reshape(-1, columns)[:num_rows].float()
    width = LANES * form.scale_bytes
    scales, rest = _scales_of(tiles, 0, form), width
    offsets = None
    if form.has_offsets:
        offsets, rest = _scales_of(tiles, width, form), 2 * width
    words = tiles[..., rest:].contiguous().view(torch.int32).view(-1, groups, 1, LANES)
    words = words.view(tiles.shape[0], groups, -1, LANES)
    shifts = torch.arange(0, 32, form.bits, device=words.device).view(-1, 1)
    codes = (words.unsqueeze(-2) >> shifts) & ((1 << form.bits) - 1)
    codes = codes.flatten(2, 3)  # tile, group, input, lane
    plain = (codes - form.bias).float()
    if form.minifloat is not None:
        plain = values(codes, form.minifloat)
    scaled = plain * scales.unsqueeze(2)
    if offsets is not None:
        scaled = scaled + offsets.unsqueeze(2)
    return scaled.permute(0, 3, 1, 2).reshape(-1, columns)[:num_rows]


def _scales_of(tiles: torch.Tensor, byte: int, form: WeightFormat) -> torch.Tensor:
    raw = tiles[..., byte : byte + LANES * form.scale_bytes].contiguous()
    return raw.view(torch.float16 if form.half_scales else torch.float32).float()


def concatenate(weights: Sequence[PackedLinear]) -> PackedLinear | None:
    """One matrix of all outputs in order; None when formats differ or rows do not fill units."""
    first = weights[0]
    alike = all(w.format == first.format and w.shape[1] == first.shape[1] for w in weights)
    has_order = any(w.input_order is not None for w in weights)
    if not alike or has_order or any(w.shape[0] % UNIT for w in weights[:-1]):
        return first if len(weights) == 1 else None
    num_rows = sum(w.shape[0] for w in weights)
    data = torch.cat([w.data for w in weights])
    return PackedLinear((num_rows, first.shape[1]), first.format, data)
