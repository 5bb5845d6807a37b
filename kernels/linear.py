"""y = x Wᵀ (+ bias) (+ y) for packed weights; the same bits for any number of rows."""

from __future__ import annotations

import threading

import torch

from hearth.kernels import packing
from hearth.kernels.graph import KernelLaunch, Thunk, backend, submit, usable_cores
from hearth.kernels.packing import PackedLinear, concatenate, pack_float
from hearth.kernels.packing_gguf import pack_gguf
from hearth.kernels.rows import gather_columns

__all__ = ["PackedLinear", "concatenate", "linear", "pack_float", "pack_gguf"]

CHUNKS_PER_CORE = 4  # small enough that a descheduled thread costs little, large enough to stream


def linear(
    x: torch.Tensor,
    weight: PackedLinear,
    out: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    accumulate: bool = False,
) -> None:
    """Write x [M, K] times ``weight`` [N, K] transposed into out [M, N]; float32.

    With ``bias`` [N] it is added next, with ``accumulate`` the previous ``out`` last. ``out`` may
    be a slice of columns.
    """
    rows, columns = x.shape
    assert (weight.shape[0], columns) == (out.shape[1], weight.shape[1]), "shapes do not fit"
    assert out.shape[0] == rows, "as many outputs as rows"
    if backend() == "reference":
        submit(Thunk(lambda: _reference(x, weight, out, bias, accumulate)))
        return
    assert x.is_contiguous(), "x is contiguous"
    if weight.input_order is not None:
        ordered = _ordered.take(rows * columns).view(rows, columns)
        gather_columns(x, weight.input_order, ordered)
        x = ordered
    assert out.stride(1) == 1, "rows of out are contiguous"
    form = weight.format
    is_plain = form.float_dtype is not None or form.minifloat is not None
    scaled, sums = (x, x) if is_plain else _prepare(x, form)
    units_per_chunk = max(1, weight.num_units // (CHUNKS_PER_CORE * usable_cores()))
    arguments = (
        scaled.data_ptr(),
        sums.data_ptr(),
        weight.data.data_ptr(),
        0 if bias is None else bias.data_ptr(),
        out.data_ptr(),
        rows,
        weight.shape[0],
        columns,
        out.stride(0),
        units_per_chunk,
        weight.num_units,
    )
    address = kernel_address(weight.format, has_bias=bias is not None, accumulate=accumulate)
    num_chunks = -(-weight.num_units // units_per_chunk)
    submit(KernelLaunch(address, arguments, num_chunks, (scaled, sums, weight.data, bias, out)))


def kernel_address(form: packing.WeightFormat, *, has_bias: bool, accumulate: bool) -> int:
    """Compile the variant when it is not yet; its address."""
    from hearth.kernels import jit, linear_llvm

    name = f"linear_{form.name}{'_bias' if has_bias else ''}{'_add' if accumulate else ''}"
    emit = linear_llvm.emitter(form, has_bias=has_bias, accumulate=accumulate)
    return jit.compiler().address(name, emit)


class _Scratch(threading.local):
    """Room for one prepared input per thread. A graph that outgrew it keeps its own old one."""

    data = torch.empty(0)

    def take(self, num_floats: int) -> torch.Tensor:
        if self.data.numel() < num_floats:
            self.data = torch.empty(num_floats)
        return self.data[:num_floats]


_scratch = _Scratch()
_ordered = _Scratch()


def _prepare(x: torch.Tensor, form: packing.WeightFormat) -> tuple[torch.Tensor, torch.Tensor]:
    """Launch ``prepare``; the scaled input and the group sums lie in the thread's scratch."""
    from hearth.kernels import jit, linear_llvm

    rows, columns = x.shape
    room = _scratch.take(rows * (columns + columns // form.group))
    scaled, sums = room[: rows * columns], room[rows * columns :]
    name = f"prepare_{form.bits}_{form.group}"
    address = jit.compiler().address(name, linear_llvm.emit_prepare(form.bits, form.group))
    arguments = (x.data_ptr(), scaled.data_ptr(), sums.data_ptr(), columns)
    submit(KernelLaunch(address, arguments, rows, (x, scaled, sums)))
    return scaled, sums


def _reference(
    x: torch.Tensor,
    weight: PackedLinear,
    out: torch.Tensor,
    bias: torch.Tensor | None,
    accumulate: bool,
) -> None:
    """Row by row, so that a row's bits do not depend on the others here either."""
    dense = packing.dequantise(weight)
    for row in range(x.shape[0]):
        value = dense @ x[row]
        if bias is not None:
            value = value + bias
        out[row] = value + out[row] if accumulate else value
