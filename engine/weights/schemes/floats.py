"""Small floats with scales: FP8 by tensor, channel or block, NVFP4 and MXFP4 of two writers.

Scales of a block format are products of two stored numbers: rounded to float32 once, as the
formats' own libraries do. Activations stay as they are, so their scales are not used.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from hearth.engine.weights.schemes import codes
from hearth.engine.weights.schemes.entry import SchemeEntry, shared_group, spread_scales
from hearth.engine.weights.schemes.module import FLOATS
from hearth.kernels.ggml_blocks import Blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearth.engine.weights.schemes.module import Module

NVFP4_GROUP, MXFP4_GROUP, MXFP8_GROUP = 16, 32, 32
E8M0_BIAS = 127


def fp8(module: Module, scale_part: str, block: tuple[int, int]) -> SchemeEntry:
    """weight E4M3 [N, K] times ``scale_part``: one number, [N, 1], or one a block [N / b, K / b]
    (as [N / b, 1, K / b, 1] in some files). Despite its name, weight_scale_inv multiplies."""
    module.expect("weight", scale_part)
    weight = module.matrix("weight").view(torch.uint8)
    rows, columns = weight.shape
    module.require(module.has(scale_part, *FLOATS), f"{scale_part} holds floats")
    shape, count = module.parts[scale_part].shape, module.count(scale_part)
    blocks = (-(-rows // block[0]), -(-columns // block[1]))
    group = shared_group(module, columns)
    if count == 1:
        whole = module.scalar(scale_part)
        kind, scales_of = "tensor", _line_by_line(whole.view(1, 1).expand(rows, 1))
    elif count == rows == shape[0]:
        kind, scales_of = "channel", _line_by_line(module.floats(scale_part).view(rows, 1))
    elif shape in (blocks, (blocks[0], 1, blocks[1], 1)):
        kind = f"block {block[0]}x{block[1]}"
        group = shared_group(module, math.gcd(columns, block[1]))
        scales_of = _block_by_block(module.floats(scale_part).view(blocks), block, columns, group)
    elif len(shape) == 2 and shape[0] == rows and columns % shape[1] == 0:
        raise module.refused(f"as FP8 in groups of {columns // shape[1]}")
    else:
        raise module.damaged(f"has {scale_part} of shape {shape} for {rows} rows")

    def decode(part: slice) -> Blocks:
        spread = spread_scales(scales_of(part), columns, group)
        return Blocks(weight[part], spread, None, group, "e4m3")

    return SchemeEntry(module, (rows, columns), f"FP8 {kind}", decode)


def _line_by_line(scales: torch.Tensor) -> Callable[[slice], torch.Tensor]:
    return lambda part: scales[part]


def _block_by_block(
    grid: torch.Tensor, block: tuple[int, int], columns: int, group: int
) -> Callable[[slice], torch.Tensor]:
    """Scales of rows, one for every ``group`` inputs."""
    index = torch.arange(columns // group) * group // block[1]

    def scales_of(part: slice) -> torch.Tensor:
        return grid[torch.arange(part.start, part.stop) // block[0]][:, index]

    return scales_of


def mxfp8(module: Module) -> SchemeEntry:
    """weight E4M3 [N, K], weight_scale uint8 [N, K / 32] powers of two."""
    module.expect("weight", "weight_scale")
    weight = module.matrix("weight").view(torch.uint8)
    rows, columns = weight.shape
    exponents = _small_scales(module, "weight_scale", rows, columns, MXFP8_GROUP)

    def decode(part: slice) -> Blocks:
        return Blocks(weight[part], _powers(exponents[part]), None, MXFP8_GROUP, "e4m3")

    return SchemeEntry(module, (rows, columns), "MXFP8", decode)


def mxfp4(module: Module) -> SchemeEntry:
    """weight_packed uint8 [N, K / 2], weight_scale uint8 [N, K / 32] powers of two."""
    module.expect("weight_packed", "weight_scale")
    packed = module.matrix("weight_packed")
    rows, columns = packed.shape[0], packed.shape[1] * 2
    exponents = _small_scales(module, "weight_scale", rows, columns, MXFP4_GROUP)

    def decode(part: slice) -> Blocks:
        bits = codes.nibble_pairs(packed[part])
        return Blocks(bits, _powers(exponents[part]), None, MXFP4_GROUP, "e2m1")

    return SchemeEntry(module, (rows, columns), "MXFP4", decode)


def nvfp4(module: Module, packed_part: str, global_part: str, *, divides: bool) -> SchemeEntry:
    """Bytes of two E2M1 codes [N, K / 2], weight_scale E4M3 [N, K / 16] and one number that divides
    it (compressed-tensors' weight_global_scale) or multiplies it (ModelOpt's weight_scale_2)."""
    module.expect(packed_part, "weight_scale", global_part)
    if not module.has("weight_scale", "F8_E4M3"):
        raise module.refused(f"as NVFP4 with {module.parts['weight_scale'].dtype} scales")
    packed = module.matrix(packed_part)
    rows, columns = packed.shape[0], packed.shape[1] * 2
    local = _small_scales(module, "weight_scale", rows, columns, NVFP4_GROUP)
    whole = module.scalar(global_part)
    module.require(bool(torch.isfinite(whole).all()) and bool(whole != 0), "a scale of the tensor")

    def decode(part: slice) -> Blocks:
        scales = local[part].float()
        scales = scales / whole if divides else scales * whole
        return Blocks(codes.nibble_pairs(packed[part]), scales, None, NVFP4_GROUP, "e2m1")

    return SchemeEntry(module, (rows, columns), "NVFP4", decode)


def _small_scales(module: Module, part: str, rows: int, columns: int, group: int) -> torch.Tensor:
    scales = module.matrix(part)
    module.require(tuple(scales.shape) == (rows, columns // group), f"{part} for every {group}")
    module.require(columns % group == 0, f"inputs in groups of {group}")
    return scales


def _powers(exponents: torch.Tensor) -> torch.Tensor:
    """2^(e - 127) as float32, subnormal ones included."""
    return torch.pow(2.0, exponents.double() - E8M0_BIAS).float()
