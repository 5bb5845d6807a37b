"""Picks rows of a matrix: the hidden states that need logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearth.kernels.graph import KernelLaunch, Thunk, backend, submit

if TYPE_CHECKING:
    import torch
    from llvmlite import ir


def gather_rows(x: torch.Tensor, row_index: torch.Tensor, out: torch.Tensor) -> None:
    """out[i] = x[row_index[i]]; x [M, H] and out [L, H] float32, row_index int32 [L]."""
    if backend() == "reference":
        submit(Thunk(lambda: out.copy_(x[row_index.long()])))
        return
    from hearth.kernels import jit

    address = jit.compiler().address("gather_rows", _emit)
    arguments = (x.data_ptr(), row_index.data_ptr(), out.data_ptr(), x.shape[1])
    submit(KernelLaunch(address, arguments, out.shape[0], (x, row_index, out)))


def _emit(name: str) -> ir.Module:
    from hearth.kernels.emit import F32, I32, I64, Kernel

    kernel = Kernel(name)
    b = kernel.b
    size = kernel.integer(3)
    row = b.sext(kernel.load(kernel.pointer(1, I32), kernel.chunk), I64)
    source = kernel.at(kernel.pointer(0, F32), b.mul(row, size))
    target = kernel.at(kernel.pointer(2, F32), b.mul(kernel.chunk, size))
    with kernel.loop(size) as k:
        kernel.store(kernel.load(source, k), target, k)
    return kernel.finish()
