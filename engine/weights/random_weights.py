"""Random weights made in kernel layout, on their device: never a float copy of a matrix.

All bytes are random at first; masks then turn some of them into sensible floats and shorten codes
that have fewer bits than their place. A weight's mean is about 0 and its variance about 1/K, so
that activations neither grow nor vanish.
"""

from __future__ import annotations

import hashlib
import math
from functools import cache
from typing import TYPE_CHECKING

import torch

from hearth.kernels import minifloat
from hearth.kernels.packing import LANES, UNIT, PackedLinear

if TYPE_CHECKING:
    from hearth.engine.weights.stored_formats import StoredFormat

# 32 MiB of noise, repeated: drawing 13 GB takes 13 s on one core, copying them 2. The odd count
# keeps the repetition off the beat of rows. More than a last-level cache, so nothing is read twice.
NOISE_WORDS = (1 << 22) - 3
# Mantissa bits and exponent bias of each float format.
FLOATS = {torch.float16: (10, 15), torch.bfloat16: (7, 127), torch.float32: (23, 127)}
INTEGERS = {2: torch.int16, 4: torch.int32}
# Root mean square of floats spread evenly over the lower and the upper half of [1, 2).
HALF_RMS = (math.sqrt(19 / 12), math.sqrt(37 / 12))


@cache
def _noise(device: torch.device) -> torch.Tensor:
    """int64 [NOISE_WORDS], the same in every process."""
    generator = torch.Generator(device).manual_seed(0)
    words = torch.empty(NOISE_WORDS, dtype=torch.int64, device=device)
    return words.random_(-(1 << 63), None, generator=generator)


def seed_of(name: str, seed: int) -> int:
    """63 bits that differ for every tensor."""
    digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def random_bytes(num_bytes: int, seed: int, device: torch.device) -> torch.Tensor:
    """uint8 [num_bytes], a multiple of 8: the noise from a place on that ``seed`` chooses, xor
    ``seed``."""
    noise = _noise(device)
    words = torch.empty(num_bytes // 8, dtype=torch.int64, device=device)
    start, done = seed % NOISE_WORDS, 0
    while done < len(words):
        part = noise[start : start + len(words) - done]
        words[done : done + len(part)] = part
        start, done = 0, done + len(part)
    return words.bitwise_xor_(seed).view(torch.uint8)


def random_linear(
    shape: tuple[int, int], stored: StoredFormat, seed: int, device: torch.device
) -> PackedLinear:
    """A matrix [N, K] in the layout of ``stored.form``, as ``packing`` would have made it."""
    form = stored.form
    num_rows, columns = shape
    assert columns % form.group == 0, "rows are whole groups"
    num_tiles = -(-num_rows // UNIT) * UNIT // LANES
    data = random_bytes(num_tiles * (columns // form.group) * form.group_bytes, seed, device)
    groups = data.view(-1, form.group_bytes)
    if form.float_dtype is not None:
        shape_floats(groups, form.float_dtype, columns**-0.5)
    else:
        _shape_codes(groups, stored)
        _shape_scales(groups, stored, columns)
    return PackedLinear(shape, form, data)


def shape_floats(
    raw: torch.Tensor, dtype: torch.dtype, rms: float, *, is_signed: bool = True
) -> None:
    """Turn random bytes (uint8 [..., bytes], in place) into floats, of both signs or positive,
    whose root mean square is ``rms`` within a fifth: low mantissa bits stay, the exponent is set.
    """
    mantissa_bits, bias = FLOATS[dtype]
    exponent, upper = _half_binade(rms)
    assert exponent + bias > 0, "a normal number"
    sign = 1 << (dtype.itemsize * 8 - 1) if is_signed else 0
    kept = sign | ((1 << (mantissa_bits - 1)) - 1)
    wanted = (exponent + bias) << mantissa_bits | upper << (mantissa_bits - 1)
    integers = raw.view(INTEGERS[dtype.itemsize])
    integers.bitwise_and_(_signed(kept, dtype.itemsize)).bitwise_or_(wanted)


def _half_binade(rms: float) -> tuple[int, int]:
    """(exponent, 0 or 1): the half of [2^exponent, 2^(exponent + 1)) whose mean is nearest."""
    guess = math.floor(math.log2(rms))
    choices = [(e, upper) for e in (guess - 1, guess) for upper in (0, 1)]
    return min(choices, key=lambda half: abs(math.log2(HALF_RMS[half[1]] * 2.0 ** half[0] / rms)))


def _signed(bits: int, num_bytes: int) -> int:
    """``bits`` as the signed integer that torch's operators take."""
    return bits - (1 << (8 * num_bytes)) if bits >> (8 * num_bytes - 1) else bits


def _shape_codes(groups: torch.Tensor, stored: StoredFormat) -> None:
    """Clear the bits that codes do not use."""
    form = stored.form
    if stored.code_mask == (1 << form.bits) - 1:
        return
    start = LANES * form.scale_bytes * (2 if form.has_offsets else 1)
    mask = sum(stored.code_mask << place for place in range(0, 32, form.bits))
    groups[:, start:].view(torch.int32).bitwise_and_(_signed(mask, 4))


def _shape_scales(groups: torch.Tensor, stored: StoredFormat, columns: int) -> None:
    """Scales of both signs for integers, as published ones have; small floats have signs of their
    own. Offsets put the mean of the codes at 0."""
    form = stored.form
    width = LANES * form.scale_bytes
    plain = _plain_values(stored)
    centre = plain.mean() if form.has_offsets else torch.zeros(())
    mean_square = float((plain - centre).square().mean())
    dtype = torch.float16 if form.half_scales else torch.float32
    is_signed = form.minifloat is None
    shape_floats(groups[:, :width], dtype, (columns * mean_square) ** -0.5, is_signed=is_signed)
    if form.has_offsets:
        scales = groups[:, :width].view(dtype)
        groups[:, width : 2 * width].view(dtype).copy_(scales).mul_(-float(centre))


def _plain_values(stored: StoredFormat) -> torch.Tensor:
    """What every possible code stands for before it is scaled."""
    codes = torch.arange(1 << stored.form.bits) & stored.code_mask
    if stored.form.minifloat is not None:
        return minifloat.values(codes, stored.form.minifloat)
    return (codes - stored.form.bias).float()
