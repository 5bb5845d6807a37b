"""Gates: SwiGLU's silu(gate) * up, and the sigmoid gate behind attention."""

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


def sigmoid_gate(x: torch.Tensor, gates: torch.Tensor, *, head_dim: int, gate_stride: int) -> None:
    """x [M, H * D] in place times sigmoid(gate); head h's gate is gates[:, h * gate_stride :][: D].

    ``gates`` may be a column slice; float32.
    """
    rows, size = x.shape
    num_heads = size // head_dim
    assert gates.shape[1] >= (num_heads - 1) * gate_stride + head_dim, "every head has its gate"
    if backend() == "reference":
        submit(Thunk(lambda: _gate_reference(x, gates, head_dim, gate_stride)))
        return
    from hearth.kernels import jit

    assert head_dim % 16 == 0, f"head size {head_dim} is not a multiple of 16"
    address = jit.compiler().address("sigmoid_gate", _emit_gate)
    addresses = (x.data_ptr(), gates.data_ptr())
    arguments = (*addresses, x.stride(0), gates.stride(0), num_heads, head_dim, gate_stride)
    submit(KernelLaunch(address, arguments, rows, (x, gates)))


def _gate_reference(x: torch.Tensor, gates: torch.Tensor, head_dim: int, gate_stride: int) -> None:
    for head in range(x.shape[1] // head_dim):
        gate = gates[:, head * gate_stride : head * gate_stride + head_dim]
        x[:, head * head_dim : (head + 1) * head_dim] *= 1.0 / (1.0 + (-gate).exp())


def _emit_gate(name: str) -> ir.Module:
    """A chunk is a row."""
    from hearth.kernels.emit import F32, LANES, Kernel

    kernel = Kernel(name)
    b = kernel.b
    x_row = kernel.at(kernel.pointer(0, F32), b.mul(kernel.chunk, kernel.integer(2)))
    gate_row = kernel.at(kernel.pointer(1, F32), b.mul(kernel.chunk, kernel.integer(3)))
    size = kernel.integer(5)
    with kernel.loop(kernel.integer(4)) as head:
        x = kernel.at(x_row, b.mul(head, size))
        gate = kernel.at(gate_row, b.mul(head, kernel.integer(6)))
        with kernel.loop(size, step=LANES) as k:
            open_part = kernel.sigmoid(kernel.load_vector(gate, k))
            kernel.store_vector(b.fmul(kernel.load_vector(x, k), open_part), x, k)
    return kernel.finish()


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
