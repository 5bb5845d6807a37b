"""Decodes ggml's quantised blocks: raw bytes to integer codes with a scale (and offset) a group.

The layouts are those of the GGUF specification. ``value = code * scale + offset`` in float32 equals
the reference dequantiser's value for every format here (tests/oracle/test_block_formats.py), bit
for bit while scales are finite; only a zero of Q4_0 and Q5_0 may have the other sign. What a block
with an infinite scale is worth is not defined.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from hearth.kernels.minifloat import values

if TYPE_CHECKING:
    from collections.abc import Callable

F32, F16, BF16 = 0, 1, 30
Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 = 2, 3, 6, 7, 8
Q2_K, Q3_K, Q4_K, Q5_K, Q6_K = 10, 11, 12, 13, 14
IQ4_NL, IQ4_XS, MXFP4, NVFP4 = 20, 23, 39, 40


class Layout(NamedTuple):
    """Name and size of a block: ``elements`` weights in ``num_bytes`` bytes."""

    name: str
    elements: int
    num_bytes: int


LAYOUTS: dict[int, Layout] = {
    F32: Layout("F32", 1, 4),
    F16: Layout("F16", 1, 2),
    BF16: Layout("BF16", 1, 2),
    Q4_0: Layout("Q4_0", 32, 18),
    Q4_1: Layout("Q4_1", 32, 20),
    Q5_0: Layout("Q5_0", 32, 22),
    Q5_1: Layout("Q5_1", 32, 24),
    Q8_0: Layout("Q8_0", 32, 34),
    Q2_K: Layout("Q2_K", 256, 84),
    Q3_K: Layout("Q3_K", 256, 110),
    Q4_K: Layout("Q4_K", 256, 144),
    Q5_K: Layout("Q5_K", 256, 176),
    Q6_K: Layout("Q6_K", 256, 210),
    IQ4_NL: Layout("IQ4_NL", 32, 18),
    IQ4_XS: Layout("IQ4_XS", 256, 136),
    MXFP4: Layout("MXFP4", 32, 17),
    NVFP4: Layout("NVFP4", 64, 36),
}
FLOAT_DTYPES = {F32: torch.float32, F16: torch.float16, BF16: torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Blocks:
    """Decoded weights of R rows of K elements.

    codes: uint8 or int8 [R, K]; scales and offsets: float32 [R, K / group]; offsets None means 0.
    ``minifloat``: codes are the bits of such numbers (kernels/minifloat.py), not integers.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    offsets: torch.Tensor | None
    group: int
    minifloat: str | None = None

    def values(self) -> torch.Tensor:
        """float32 [R, K]."""
        rows, columns = self.codes.shape
        plain = self.codes.float() if self.minifloat is None else values(self.codes, self.minifloat)
        grouped = plain.view(rows, columns // self.group, self.group)
        grouped = grouped * self.scales.unsqueeze(-1)
        if self.offsets is not None:
            grouped = grouped + self.offsets.unsqueeze(-1)
        return grouped.reshape(rows, columns)

    def times(self, factor: float) -> Blocks:
        """All values times ``factor``, rounded in the scales and offsets."""
        offsets = None if self.offsets is None else self.offsets * factor
        return replace(self, scales=self.scales * factor, offsets=offsets)


def decode_blocks(raw: torch.Tensor, ggml_type: int) -> Blocks:
    """``raw``: uint8 [R, row bytes] of a quantised type (not F32, F16, BF16)."""
    layout = LAYOUTS[ggml_type]
    assert raw.dtype == torch.uint8, "raw blocks are bytes"
    assert raw.shape[1] % layout.num_bytes == 0, "rows are whole blocks"
    blocks = raw.reshape(raw.shape[0], -1, layout.num_bytes)
    codes, scales, offsets, group = _DECODERS[ggml_type](blocks)
    rows = raw.shape[0]
    return Blocks(
        codes.reshape(rows, -1).contiguous(),
        scales.reshape(rows, -1),
        None if offsets is None else offsets.reshape(rows, -1),
        group,
        "e2m1" if ggml_type in (MXFP4, NVFP4) else None,
    )


def dequantise(raw: torch.Tensor, ggml_type: int) -> torch.Tensor:
    """float32 [R, K] of any type in ``LAYOUTS``, equal to gguf's dequantiser (see the module)."""
    if ggml_type in FLOAT_DTYPES:
        return _aligned(raw).view(FLOAT_DTYPES[ggml_type]).float()
    return decode_blocks(raw, ggml_type).values()


# ------------------------------------------------------------------------------------- decoders
# Each takes blocks [R, B, bytes] and gives codes [R, B, elements], scales and offsets
# [R, B, groups] and the group size.

_Decoded = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, int]


def _aligned(part: torch.Tensor) -> torch.Tensor:
    """A copy that may be viewed as a wider type: a part of a single block is contiguous where it
    lies, often at an address that is no multiple of the type's size."""
    return part.clone(memory_format=torch.contiguous_format)


def _split_last(part: torch.Tensor, *sizes: int) -> torch.Tensor:
    """The last dimension as several."""
    return part.reshape(*part.shape[:-1], *sizes)


def _half(blocks: torch.Tensor, byte: int) -> torch.Tensor:
    """The float16 at ``byte`` of each block, as float32 [R, B, 1]."""
    return _aligned(blocks[..., byte : byte + 2]).view(torch.float16).float()


def _halves(codes: torch.Tensor) -> torch.Tensor:
    """Low nibbles of 16 bytes, then high nibbles: the order of 32-element blocks."""
    return torch.cat((codes & 15, codes >> 4), dim=-1)


def _fifth_bits(blocks: torch.Tensor, byte: int) -> torch.Tensor:
    """Bit i of the 32-bit word at ``byte``, moved to bit 4: [R, B, 32]."""
    word = _aligned(blocks[..., byte : byte + 4]).view(torch.int32)
    return (((word >> torch.arange(32)) & 1) << 4).to(torch.uint8)


def _q4_0(blocks: torch.Tensor) -> _Decoded:
    d = _half(blocks, 0)
    return _halves(blocks[..., 2:]), d, d * -8.0, 32


def _q4_1(blocks: torch.Tensor) -> _Decoded:
    return _halves(blocks[..., 4:]), _half(blocks, 0), _half(blocks, 2), 32


def _q5_0(blocks: torch.Tensor) -> _Decoded:
    d = _half(blocks, 0)
    return _halves(blocks[..., 6:]) | _fifth_bits(blocks, 2), d, d * -16.0, 32


def _q5_1(blocks: torch.Tensor) -> _Decoded:
    codes = _halves(blocks[..., 8:]) | _fifth_bits(blocks, 4)
    return codes, _half(blocks, 0), _half(blocks, 2), 32


def _q8_0(blocks: torch.Tensor) -> _Decoded:
    return blocks[..., 2:].contiguous().view(torch.int8), _half(blocks, 0), None, 32


def _crumbs(qs: torch.Tensor) -> torch.Tensor:
    """2-bit fields of 64 bytes in K-quant order: [R, B, 256] from [R, B, 64]."""
    halves = _split_last(qs, 2, 1, 32)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(4, 1)
    return ((halves >> shifts) & 3).flatten(-3)


def _q2_k(blocks: torch.Tensor) -> _Decoded:
    scales = blocks[..., :16]
    d, dmin = _half(blocks, 80), _half(blocks, 82)
    offsets = -(dmin * (scales >> 4).float())
    return _crumbs(blocks[..., 16:80]), d * (scales & 15).float(), offsets, 16


def _q3_k(blocks: torch.Tensor) -> _Decoded:
    high_bit = blocks[..., :32].unsqueeze(-2) >> torch.arange(8, dtype=torch.uint8).view(8, 1)
    codes = _crumbs(blocks[..., 32:96]).to(torch.int8) - 4
    codes += ((high_bit & 1) << 2).flatten(-2).to(torch.int8)
    packed = blocks[..., 96:108]
    low = torch.cat((packed[..., :8] & 15, packed[..., :8] >> 4), dim=-1)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(4, 1)
    high = ((packed[..., 8:].unsqueeze(-2) >> shifts) & 3).flatten(-2)
    scales = (low | (high << 4)).float() - 32.0
    return codes, _half(blocks, 108) * scales, None, 16


def _six_bit_pairs(packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales and minima of Q4_K and Q5_K: two [R, B, 8] from 12 bytes."""
    first, second, third = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = torch.cat((first & 63, (third & 15) | ((first >> 6) << 4)), dim=-1)
    minima = torch.cat((second & 63, (third >> 4) | ((second >> 6) << 4)), dim=-1)
    return scales, minima


def _k_nibbles(qs: torch.Tensor) -> torch.Tensor:
    """Nibbles of 128 bytes in groups of 32: low of bytes 0..31, high of 0..31, low of 32..63, …"""
    quarters = _split_last(qs, 4, 1, 32)
    shifts = torch.tensor([0, 4], dtype=torch.uint8).view(2, 1)
    return ((quarters >> shifts) & 15).flatten(-3)


def _k_scales(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scales, minima = _six_bit_pairs(blocks[..., 4:16])
    return _half(blocks, 0) * scales.float(), -(_half(blocks, 2) * minima.float())


def _q4_k(blocks: torch.Tensor) -> _Decoded:
    scales, offsets = _k_scales(blocks)
    return _k_nibbles(blocks[..., 16:]), scales, offsets, 32


def _q5_k(blocks: torch.Tensor) -> _Decoded:
    scales, offsets = _k_scales(blocks)
    high = blocks[..., 16:48].unsqueeze(-2) >> torch.arange(8, dtype=torch.uint8).view(8, 1)
    codes = _k_nibbles(blocks[..., 48:]) | ((high & 1) << 4).flatten(-2)
    return codes, scales, offsets, 32


def _q6_k(blocks: torch.Tensor) -> _Decoded:
    low = _split_last(blocks[..., :128], 2, 1, 64)
    shifts = torch.tensor([0, 4], dtype=torch.uint8).view(2, 1)
    low = ((low >> shifts) & 15).flatten(-3)
    codes = (low | (_crumbs(blocks[..., 128:192]) << 4)).to(torch.int8) - 32
    scales = blocks[..., 192:208].contiguous().view(torch.int8).float()
    return codes, _half(blocks, 208) * scales, None, 16


_IQ4_VALUES = torch.tensor(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=torch.int8
)


def _iq4_nl(blocks: torch.Tensor) -> _Decoded:
    return _IQ4_VALUES[_halves(blocks[..., 2:]).int()], _half(blocks, 0), None, 32


def _iq4_xs(blocks: torch.Tensor) -> _Decoded:
    high_word = _aligned(blocks[..., 2:4]).view(torch.int16).int() & 0xFFFF
    high = (high_word >> (2 * torch.arange(8))) & 3
    shifts = torch.tensor([0, 4], dtype=torch.uint8)
    low = ((blocks[..., 4:8].unsqueeze(-1) >> shifts) & 15).flatten(-2).int()
    scales = _half(blocks, 0) * ((low | (high << 4)).float() - 32.0)
    nibbles = _halves(_split_last(blocks[..., 8:], 8, 16)).flatten(-2)
    return _IQ4_VALUES[nibbles.int()], scales, None, 32


def _mxfp4(blocks: torch.Tensor) -> _Decoded:
    exponent = blocks[..., :1].double() - 127.0
    scales = torch.pow(torch.tensor(2.0, dtype=torch.float64), exponent).float()
    return _without_minus_zero(_halves(blocks[..., 1:])), scales, None, 32


def _without_minus_zero(codes: torch.Tensor) -> torch.Tensor:
    """ggml's table of these numbers has one zero."""
    return torch.where(codes == 8, torch.zeros_like(codes), codes)


def _nvfp4(blocks: torch.Tensor) -> _Decoded:
    raw = blocks[..., :4].int()
    exponent, mantissa = (raw >> 3) & 15, (raw & 7).float()
    normal = torch.ldexp(1.0 + mantissa / 8.0, exponent - 7)
    scales = torch.where(exponent == 0, mantissa * 2.0**-9, normal)
    scales = torch.where((raw == 0) | (raw == 0x7F), torch.zeros_like(scales), scales)
    codes = _split_last(blocks[..., 4:], 4, 8)
    codes = torch.cat((codes & 15, codes >> 4), dim=-1).flatten(-2)
    return _without_minus_zero(codes), scales, None, 16


_DECODERS: dict[int, Callable[[torch.Tensor], _Decoded]] = {
    Q4_0: _q4_0,
    Q4_1: _q4_1,
    Q5_0: _q5_0,
    Q5_1: _q5_1,
    Q8_0: _q8_0,
    Q2_K: _q2_k,
    Q3_K: _q3_k,
    Q4_K: _q4_k,
    Q5_K: _q5_k,
    Q6_K: _q6_k,
    IQ4_NL: _iq4_nl,
    IQ4_XS: _iq4_xs,
    MXFP4: _mxfp4,
    NVFP4: _nvfp4,
}
