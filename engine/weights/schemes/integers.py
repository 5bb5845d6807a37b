"""Integer codes with scales and zero points: compressed-tensors' pack-quantized and int-quantized,
GPTQ (which AutoRound writes too) and AWQ.

All of them mean ``(q - zero) * scale`` per group of inputs. With 16-bit scales that is exact as
``q * scale + (-zero * scale)``, which is what is packed; where every zero is the middle code, the
signed code and its scale are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hearth.engine.weights.schemes import codes
from hearth.engine.weights.schemes.entry import (
    SchemeEntry,
    check_group,
    shared_group,
    spread_scales,
)
from hearth.engine.weights.schemes.module import FLOATS
from hearth.kernels.ggml_blocks import Blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearth.engine.weights.schemes.module import Module

BITS = (4, 8)
WORD = 32


def pack_quantized(module: Module) -> SchemeEntry:
    """weight_packed int32 [N, K b / 32] offset binary, weight_scale [N, K / g], weight_shape, and
    where asymmetric weight_zero_point int32 [N b / 32, K / g], packed along N."""
    module.expect(
        "weight_packed", "weight_scale", "weight_shape", "weight_zero_point", "weight_g_idx"
    )
    rows, columns = _declared_shape(module)
    packed = module.matrix("weight_packed")
    module.require(packed.shape[0] == rows, "weight_packed has weight_shape's rows")
    bits = packed.shape[1] * WORD // columns
    if bits not in BITS or packed.shape[1] != -(-columns * bits // WORD):
        raise module.refused(f"with {packed.shape[1] * WORD / columns:.3g} bits a weight")
    scales = _scales(module, "weight_scale", rows)
    zeros = None
    if module.has("weight_zero_point"):
        zeros = _zeros_down(module, bits, rows, scales.shape[1])
    order = _input_order(module, "weight_g_idx", columns, scales.shape[1])

    def codes_of(part: slice) -> torch.Tensor:
        return codes.along_row(packed[part], bits, columns)

    return _entry(module, (rows, columns), bits, codes_of, scales, zeros, order)


def _declared_shape(module: Module) -> tuple[int, int]:
    are_integers = module.has("weight_shape", "I32", "I64")
    module.require(are_integers and module.count("weight_shape") == 2, "weight_shape is two sizes")
    rows, columns = module.vector("weight_shape").tolist()
    module.require(rows > 0 and columns > 0, "weight_shape is two sizes")
    return rows, columns


def int_quantized(module: Module) -> SchemeEntry:
    """weight int8 [N, K] in two's complement and weight_scale [N, K / g], [N, 1] or [1].

    Activations stay as they are: their scheme speeds up other machines' kernels."""
    module.expect("weight", "weight_scale")
    weight = module.matrix("weight")
    rows, columns = weight.shape
    scales = _scales(module, "weight_scale", rows)
    group = _group_of(module, columns, scales)

    def decode(part: slice) -> Blocks:
        return Blocks(weight[part], spread_scales(scales[part], columns, group), None, group)

    kind, stored_group = _kind(scales, group), _stored_group(scales, group)
    return SchemeEntry(module, (rows, columns), f"int8 {kind}", decode, stored_group)


def gptq(module: Module, *, adds_one: bool) -> SchemeEntry:
    """qweight int32 [K b / 32, N], qzeros int32 [K / g, N b / 32], scales [K / g, N], g_idx [K].
    ``adds_one``: zero points are stored less one, modulo 2^b (the first format)."""
    module.expect("qweight", "qzeros", "scales", "g_idx")
    _require_words(module)
    qweight, scales = module.matrix("qweight"), module.matrix("scales")
    num_groups, rows = scales.shape
    qzeros = module.matrix("qzeros")
    bits = qzeros.shape[1] * WORD // rows
    module.require(qzeros.shape[0] == num_groups, "zero points for every group")
    if bits not in BITS or qzeros.shape[1] != -(-rows * bits // WORD):
        raise module.refused(f"with {qzeros.shape[1] * WORD / rows:.3g} bits a weight")
    module.require(qweight.shape[1] == rows, "a column for every output")
    columns = qweight.shape[0] * WORD // bits
    zeros = codes.along_row(qzeros, bits, rows).t()
    if adds_one:
        zeros = (zeros + 1) & ((1 << bits) - 1)
    order = _input_order(module, "g_idx", columns, num_groups)

    def codes_of(part: slice) -> torch.Tensor:
        return codes.down_column(qweight[:, part], bits, columns)

    return _entry(module, (rows, columns), bits, codes_of, scales.t(), zeros, order)


def awq(module: Module) -> SchemeEntry:
    """qweight int32 [K, N / 8] and qzeros int32 [K / g, N / 8] in AWQ's order of nibbles, scales
    [K / g, N]."""
    module.expect("qweight", "qzeros", "scales")
    _require_words(module)
    qweight, scales = module.matrix("qweight"), module.matrix("scales")
    (columns, words), (num_groups, rows) = qweight.shape, scales.shape
    qzeros = module.matrix("qzeros")
    module.require(words * 8 == rows, "eight codes a word")
    module.require(tuple(qzeros.shape) == (num_groups, words), "zero points for every group")
    zeros = codes.awq(qzeros).t()

    def codes_of(part: slice) -> torch.Tensor:
        words_of_rows = slice(part.start // 8, -(-part.stop // 8))
        return codes.awq(qweight[:, words_of_rows]).t().contiguous()

    return _entry(module, (rows, columns), 4, codes_of, scales.t(), zeros, None)


# ------------------------------------------------------------------------------------------ shared


def _require_words(module: Module) -> None:
    for part in ("qweight", "qzeros"):
        if not module.has(part, "I32"):
            raise module.refused(f"with {part} in words of {module.parts[part].dtype}")
    module.require(module.has("scales", *FLOATS), "scales are floats")


def _entry(
    module: Module,
    shape: tuple[int, int],
    bits: int,
    codes_of: Callable[[slice], torch.Tensor],
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    order: torch.Tensor | None,
) -> SchemeEntry:
    """scales [N, G], zeros uint8 [N, G] or None for the middle code."""
    columns, middle = shape[1], 1 << (bits - 1)
    group = _group_of(module, columns, scales)
    if zeros is not None and bool((zeros == middle).all()):
        zeros = None

    def decode(part: slice) -> Blocks:
        unsigned = codes_of(part)
        if order is not None:
            unsigned = unsigned[:, order]
        spread = spread_scales(scales[part], columns, group)
        if zeros is None:
            signed = (unsigned.to(torch.int16) - middle).to(torch.int8)
            return Blocks(signed, spread, None, group)
        offsets = -spread_scales(zeros[part], columns, group) * spread
        return Blocks(unsigned, spread, offsets, group)

    sign = "" if zeros is None else " asymmetric"
    acting = "" if order is None else ", activation order"
    form = f"int{bits} {_kind(scales, group)}{sign}{acting}"
    return SchemeEntry(module, shape, form, decode, _stored_group(scales, group), order)


def _group_of(module: Module, columns: int, scales: torch.Tensor) -> int:
    if scales.shape[1] == 1:
        return shared_group(module, columns)
    return check_group(module, columns, scales.shape[1])


def _kind(scales: torch.Tensor, group: int) -> str:
    return "channel" if scales.shape[1] == 1 else f"g{group}"


def _stored_group(scales: torch.Tensor, group: int) -> int | None:
    return None if scales.shape[1] == 1 else group


def _scales(module: Module, part: str, rows: int) -> torch.Tensor:
    """[N, G] in their own dtype; one number serves all rows."""
    module.require(module.has(part, *FLOATS), f"{part} holds floats")
    shape = module.parts[part].shape
    if module.count(part) == 1:
        return module.vector(part).view(1, 1).expand(rows, 1)
    scales = module.vector(part).view(rows, 1) if shape == (rows,) else module.matrix(part)
    module.require(scales.shape[0] == rows, f"{part} has a line for every output")
    return scales


def _zeros_down(module: Module, bits: int, rows: int, num_groups: int) -> torch.Tensor:
    """uint8 [N, G] packed along N."""
    if not module.has("weight_zero_point", "I32"):
        raise module.refused(f"with {module.parts['weight_zero_point'].dtype} zero points")
    stored = module.matrix("weight_zero_point")
    wanted = (-(-rows * bits // WORD), num_groups)
    module.require(tuple(stored.shape) == wanted, "a zero point for every scale")
    return codes.down_column(stored, bits, rows).t()


def _input_order(module: Module, part: str, columns: int, num_groups: int) -> torch.Tensor | None:
    """int64 [K] that sorts inputs by their group; None where they are sorted already, or where a
    file leaves all of them at -1, which means the same."""
    if not module.has(part):
        return None
    is_whole = module.has(part, "I32", "I64") and module.count(part) == columns
    module.require(is_whole, f"{part} has a group for every input")
    index = module.vector(part).long()
    if bool((index == -1).all()):
        return None
    module.require(
        bool(((index >= 0) & (index < num_groups)).all()), f"{part} names groups that exist"
    )
    group = check_group(module, columns, num_groups)
    if torch.equal(index, torch.arange(columns) // group):
        return None
    counts = torch.bincount(index, minlength=num_groups)
    module.require(bool((counts == group).all()), f"{part} gives every group as many inputs")
    return index.argsort(stable=True)
