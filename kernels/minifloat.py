"""Floats of four and eight bits that weights are stored as, and how they become float32 exactly.

Shifted to the place of a float16's sign, exponent and mantissa, the bits are the same number times
a power of two, subnormal numbers included; that conversion is one instruction. The power goes into
the group's scale. A code that is NaN in E4M3 (0x7F, 0xFF) counts as 480. (Formats: OCP FP8, 2023,
and OCP Microscaling, 2023.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Minifloat:
    """``bits`` a code, the sign highest. ``shift``: from a code's lowest bit to its place in a
    float16; ``exponent``: value = that float16 * 2^exponent."""

    bits: int
    shift: int
    exponent: int

    @property
    def magnitude_mask(self) -> int:
        """Of exponent and mantissa in a shifted code."""
        return ((1 << (self.bits - 1)) - 1) << self.shift

    @property
    def sign_bit(self) -> int:
        """Of a shifted code."""
        return 1 << (self.bits - 1 + self.shift)

    @property
    def sign_shift(self) -> int:
        """From there to a float16's sign."""
        return 15 - (self.bits - 1 + self.shift)

    @property
    def factor(self) -> float:
        return 2.0**self.exponent


MINIFLOATS = {"e4m3": Minifloat(8, 7, 8), "e2m1": Minifloat(4, 9, 14)}


def values(codes: torch.Tensor, kind: str) -> torch.Tensor:
    """float32 of integer codes, any shape."""
    form = MINIFLOATS[kind]
    shifted = codes.int() << form.shift
    bits = (shifted & form.magnitude_mask) | ((shifted & form.sign_bit) << form.sign_shift)
    halves = torch.where(bits >= 1 << 15, bits - (1 << 16), bits).short()
    return halves.view(torch.float16).float() * form.factor
