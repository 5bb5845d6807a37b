"""SwiGLU's activation: silu(gate) * up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearth.kernels.graph import KernelLaunch, Thunk, backend, submit

if TYPE_CHECKING:
    import torch
    from llvmlite import ir

COLUMNS_PER_CHUNK = 4096  # about 10 us of work


def silu_mul(gate_up: torch.Tensor, out: torch.Tensor) -> None:
    """out [M, I] from gate_up [M, 2 I], gate first; float32, contiguous."""
    rows, size = out.shape
    assert gate_up.shape == (rows, 2 * size), "gate and up lie side by side"
    if backend() == "reference":
        submit(Thunk(lambda: _reference(gate_up, out)))
        return
    from hearth.kernels import jit

    address = jit.compiler().address("silu_mul", _emit)
    rows_per_chunk = max(1, COLUMNS_PER_CHUNK // size)
    arguments = (gate_up.data_ptr(), out.data_ptr(), size, rows, rows_per_chunk)
    submit(KernelLaunch(address, arguments, -(-rows // rows_per_chunk), (gate_up, out)))


def _reference(gate_up: torch.Tensor, out: torch.Tensor) -> None:
    gate, up = gate_up.chunk(2, dim=1)
    out.copy_(gate / (1.0 + (-gate).exp()) * up)


def _emit(name: str) -> ir.Module:
    from hearth.kernels.emit import F32, Kernel, const, i64

    kernel = Kernel(name)
    b = kernel.b
    size, per_chunk = kernel.integer(2), kernel.integer(4)
    first = b.mul(kernel.chunk, per_chunk)
    last = kernel.minimum(b.add(first, per_chunk), kernel.integer(3))
    with kernel.loop(last, start=first) as row:
        gate = kernel.at(kernel.pointer(0, F32), b.mul(row, b.mul(size, i64(2))))
        up = kernel.at(gate, size)
        out = kernel.at(kernel.pointer(1, F32), b.mul(row, size))
        with kernel.loop(size) as k:
            x = kernel.load(gate, k)
            one = const(F32, 1.0)
            denominator = b.fadd(one, kernel.exp(b.fsub(const(F32, -0.0), x)))
            kernel.store(b.fmul(b.fdiv(x, denominator), kernel.load(up, k)), out, k)
    return kernel.finish()
