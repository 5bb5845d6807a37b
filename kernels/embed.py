"""Token embeddings gathered from a packed table, expanded as they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hearth.kernels import packing
from hearth.kernels.graph import KernelLaunch, Thunk, backend, submit
from hearth.kernels.minifloat import MINIFLOATS

if TYPE_CHECKING:
    from collections.abc import Callable

    from llvmlite import ir

    from hearth.kernels.minifloat import Minifloat


def embed(ids: torch.Tensor, table: packing.PackedLinear, out: torch.Tensor) -> None:
    """out [M, H] float32 = rows ``ids`` (int32 [M]) of ``table`` [V, H]."""
    assert table.input_order is None, "columns of a table stand in order"
    if backend() == "reference":
        submit(Thunk(lambda: out.copy_(packing.dequantise(table)[ids.long()])))
        return
    from hearth.kernels import jit

    form = table.format
    address = jit.compiler().address(f"embed_{form.name}", _emitter(form))
    arguments = (
        ids.data_ptr(),
        table.data.data_ptr(),
        out.data_ptr(),
        table.shape[1],
        table.tile_bytes,
    )
    submit(KernelLaunch(address, arguments, ids.shape[0], (ids, table.data, out)))


def _emitter(form: packing.WeightFormat) -> Callable[[str], ir.Module]:
    def emit(name: str) -> ir.Module:
        from hearth.kernels.emit import F32, I8, I32, I64, Kernel, i64

        kernel = Kernel(name)
        b = kernel.b
        columns, tile_bytes = kernel.integer(3), kernel.integer(4)
        token = b.sext(kernel.load(kernel.pointer(0, I32), kernel.chunk), I64)
        lane = b.srem(token, i64(packing.LANES))
        tile = b.mul(b.sdiv(token, i64(packing.LANES)), tile_bytes)
        base = kernel.at(kernel.pointer(1, I8), tile)
        out = kernel.at(kernel.pointer(2, F32), b.mul(kernel.chunk, columns))
        with kernel.loop(b.sdiv(columns, i64(form.group))) as group:
            start = kernel.at(base, b.mul(group, i64(form.group_bytes)))
            first = b.mul(group, i64(form.group))
            if form.float_dtype is not None:
                kernel.store(_float_at(kernel, start, lane, form.float_dtype), out, first)
            else:
                _expand_group(kernel, form, start, lane, out, first)
        return kernel.finish()

    return emit


def _float_at(kernel: Any, start: Any, lane: Any, dtype: torch.dtype) -> Any:
    from hearth.kernels.emit import F16, F32, I16, I32

    b = kernel.b
    if dtype == torch.float32:
        return kernel.load(b.bitcast(start, F32.as_pointer()), lane)
    if dtype == torch.float16:
        return b.fpext(kernel.load(b.bitcast(start, F16.as_pointer()), lane), F32)
    upper = b.zext(kernel.load(b.bitcast(start, I16.as_pointer()), lane), I32)
    return b.bitcast(b.shl(upper, I32(16)), F32)


def _expand_group(
    kernel: Any, form: packing.WeightFormat, start: Any, lane: Any, out: Any, first: Any
) -> None:
    """value = (code - bias) * scale + offset, each operation rounded as in the reference."""
    from hearth.kernels.emit import F32, I32, i32, i64

    b = kernel.b
    scale_dtype = torch.float16 if form.half_scales else torch.float32
    width = packing.LANES * form.scale_bytes
    scale = _float_at(kernel, start, lane, scale_dtype)
    offset = None
    if form.has_offsets:
        offset = _float_at(kernel, kernel.at(start, i64(width)), lane, scale_dtype)
    codes_at = width * (2 if form.has_offsets else 1)
    codes = b.bitcast(kernel.at(start, i64(codes_at)), I32.as_pointer())
    per_word = 32 // form.bits
    with kernel.loop(i64(form.group)) as k:
        word = kernel.load(codes, b.add(b.mul(b.sdiv(k, i64(per_word)), i64(packing.LANES)), lane))
        place = b.trunc(b.mul(b.srem(k, i64(per_word)), i64(form.bits)), I32)
        code = b.and_(b.lshr(word, place), i32((1 << form.bits) - 1))
        if form.minifloat is not None:
            plain = _small_float(kernel, code, MINIFLOATS[form.minifloat])
        else:
            plain = b.sitofp(b.sub(code, i32(form.bias)), F32)
        value = b.fmul(plain, scale)
        if offset is not None:
            value = b.fadd(value, offset)
        kernel.store(value, out, b.add(first, k))


def _small_float(kernel: Any, code: Any, small: Minifloat) -> Any:
    """The float32 of a code of small floats."""
    from hearth.kernels.emit import F16, F32, I16, const, i32

    b = kernel.b
    shifted = b.shl(code, i32(small.shift))
    magnitude = b.and_(shifted, i32(small.magnitude_mask))
    sign = b.shl(b.and_(shifted, i32(small.sign_bit)), i32(small.sign_shift))
    half = b.bitcast(b.trunc(b.or_(magnitude, sign), I16), F16)
    return b.fmul(b.fpext(half, F32), const(F32, small.factor))
