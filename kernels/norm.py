"""RMSNorm: x / sqrt(mean(x²) + eps) * weight, over whole rows or over each head of a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearth.kernels.graph import KernelLaunch, Thunk, backend, float_bits, submit

if TYPE_CHECKING:
    import torch
    from llvmlite import ir


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor) -> None:
    """out [M, H] from x [M, H] and weight [H]; float32. ``out`` may be ``x``."""
    rms_norm_heads(x, weight, eps, out, num_heads=1)


def rms_norm_heads(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    out: torch.Tensor,
    *,
    num_heads: int,
    head_stride: int = 0,
) -> None:
    """The same over each of ``num_heads`` heads; weight [D]. A head begins every ``head_stride``
    floats of x and out (0: every D)."""
    rows, size = x.shape[0], weight.shape[0]
    step = head_stride or size
    assert x.shape[1] >= (num_heads - 1) * step + size, "x has fewer columns than the heads need"
    if backend() == "reference":
        submit(Thunk(lambda: _reference(x, weight, eps, out, num_heads, step)))
        return
    from hearth.kernels import jit

    assert x.stride(1) == out.stride(1) == 1, "rows are contiguous"
    address = jit.compiler().address("rms_norm", _emit)
    arguments = (
        x.data_ptr(),
        weight.data_ptr(),
        out.data_ptr(),
        float_bits(eps),
        size,
        num_heads,
        x.stride(0),
        out.stride(0),
        step,
    )
    submit(KernelLaunch(address, arguments, rows, (x, weight, out)))


def gated_rms_norm(
    x: torch.Tensor,
    gate: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    num_heads: int,
) -> None:
    """x [M, Hv * D] in place: RMSNorm of each head times weight [D], times silu(gate [M, Hv * D]).

    Source: the output norm of Gated DeltaNet (Yang et al., 2024); normalised first, gated after.
    """
    rows, size = x.shape[0], weight.shape[0]
    assert x.shape[1] == gate.shape[1] == num_heads * size, "every head has its gate"
    if backend() == "reference":
        submit(Thunk(lambda: _gated_reference(x, gate, weight, eps, num_heads)))
        return
    from hearth.kernels import jit

    assert size % 16 == 0, f"head size {size} is not a multiple of 16"
    address = jit.compiler().address("gated_rms_norm", _emit_gated)
    arguments = (
        x.data_ptr(),
        gate.data_ptr(),
        weight.data_ptr(),
        float_bits(eps),
        size,
        num_heads,
        x.stride(0),
        gate.stride(0),
    )
    submit(KernelLaunch(address, arguments, rows, (x, gate, weight)))


def _reference(
    x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor, num_heads: int, step: int
) -> None:
    size = weight.shape[0]
    for head in range(num_heads):
        columns = slice(head * step, head * step + size)
        part = x[:, columns]
        scale = (part * part).mean(-1, keepdim=True).add(eps).rsqrt()
        out[:, columns] = part * scale * weight


def _gated_reference(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float, num_heads: int
) -> None:
    heads = x.unflatten(1, (num_heads, -1))
    scale = (heads * heads).mean(-1, keepdim=True).add(eps).rsqrt()
    normed = (weight * (heads * scale)).flatten(1)
    x.copy_(normed * (gate / (1.0 + (-gate).exp())))


def _emit(name: str) -> ir.Module:
    """A chunk is a row. The squares are summed in 16 lanes, then a scalar tail, then the lanes."""
    from hearth.kernels.emit import F32, LANES, VF, Kernel, const, i64

    kernel = Kernel(name)
    b = kernel.b
    weight = kernel.pointer(1, F32)
    eps, size, heads = kernel.real(3), kernel.integer(4), kernel.integer(5)
    x_row = kernel.at(kernel.pointer(0, F32), b.mul(kernel.chunk, kernel.integer(6)))
    out_row = kernel.at(kernel.pointer(2, F32), b.mul(kernel.chunk, kernel.integer(7)))
    whole = b.mul(b.sdiv(size, i64(LANES)), i64(LANES))
    with kernel.loop(heads) as head:
        start = b.mul(head, kernel.integer(8))
        x, out = kernel.at(x_row, start), kernel.at(out_row, start)
        lanes = kernel.variable(VF)
        b.store(const(VF, 0.0), lanes)
        with kernel.loop(whole, step=LANES) as k:
            value = kernel.load_vector(x, k)
            b.store(kernel.fma(value, value, b.load(lanes)), lanes)
        total = kernel.variable(F32, kernel.sum_lanes(b.load(lanes)))
        with kernel.loop(size, start=whole) as k:
            one = kernel.load(x, k)
            b.store(kernel.fma(one, one, b.load(total)), total)
        mean = b.fdiv(b.load(total), b.sitofp(size, F32))
        root = kernel.intrinsic("sqrt", F32, [b.fadd(mean, eps)])
        scale = b.fdiv(const(F32, 1.0), root)
        with kernel.loop(size) as k:
            scaled = b.fmul(kernel.load(x, k), scale)
            kernel.store(b.fmul(scaled, kernel.load(weight, k)), out, k)
    return kernel.finish()


def _emit_gated(name: str) -> ir.Module:
    """A chunk is a row."""
    from hearth.kernels.emit import F32, LANES, VF, Kernel, const

    kernel = Kernel(name)
    b = kernel.b
    weight, eps = kernel.pointer(2, F32), kernel.real(3)
    size, heads = kernel.integer(4), kernel.integer(5)
    x_row = kernel.at(kernel.pointer(0, F32), b.mul(kernel.chunk, kernel.integer(6)))
    gate_row = kernel.at(kernel.pointer(1, F32), b.mul(kernel.chunk, kernel.integer(7)))
    with kernel.loop(heads) as head:
        x = kernel.at(x_row, b.mul(head, size))
        gate = kernel.at(gate_row, b.mul(head, size))
        lanes = kernel.variable(VF)
        b.store(const(VF, 0.0), lanes)
        with kernel.loop(size, step=LANES) as k:
            value = kernel.load_vector(x, k)
            b.store(kernel.fma(value, value, b.load(lanes)), lanes)
        mean = b.fdiv(kernel.sum_lanes(b.load(lanes)), b.sitofp(size, F32))
        root = kernel.intrinsic("sqrt", F32, [b.fadd(mean, eps)])
        scale = kernel.splat(b.fdiv(const(F32, 1.0), root))
        with kernel.loop(size, step=LANES) as k:
            normed = b.fmul(kernel.load_vector(x, k), scale)
            weighted = b.fmul(kernel.load_vector(weight, k), normed)
            silu = kernel.silu(kernel.load_vector(gate, k))
            kernel.store_vector(b.fmul(weighted, silu), x, k)
    return kernel.finish()
