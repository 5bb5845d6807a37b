"""Picks rows of a matrix (the hidden states that need logits), or puts its columns in order."""

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


def gather_columns(x: torch.Tensor, column_index: torch.Tensor, out: torch.Tensor) -> None:
    """out[:, k] = x[:, column_index[k]]; x and out [M, K] float32, column_index int32 [K]."""
    if backend() == "reference":
        submit(Thunk(lambda: out.copy_(x[:, column_index.long()])))
        return
    from hearth.kernels import jit

    address = jit.compiler().address("gather_columns", _emit_columns)
    arguments = (x.data_ptr(), column_index.data_ptr(), out.data_ptr(), x.shape[1], x.stride(0))
    submit(KernelLaunch(address, arguments, x.shape[0], (x, column_index, out)))


def _emit_columns(name: str) -> ir.Module:
    from hearth.kernels.emit import F32, I32, I64, Kernel

    kernel = Kernel(name)
    b = kernel.b
    size = kernel.integer(3)
    source = kernel.at(kernel.pointer(0, F32), b.mul(kernel.chunk, kernel.integer(4)))
    target = kernel.at(kernel.pointer(2, F32), b.mul(kernel.chunk, size))
    index = kernel.pointer(1, I32)
    with kernel.loop(size) as k:
        column = b.sext(kernel.load(index, k), I64)
        kernel.store(kernel.load(source, column), target, k)
    return kernel.finish()
