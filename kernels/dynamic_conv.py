"""Local dynamic convolution: a row of a block mixed with the rows before it, weighted by itself."""

from __future__ import annotations

import torch

from hearth.kernels.graph import Thunk, submit


def dynamic_conv(
    y: torch.Tensor,
    base: torch.Tensor,
    coefficients: torch.Tensor,
    row_in_block: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """out[s, c] = Σ_t (base[t, c] + coefficients[s, t, c / group]) · y[s - t, c], t ascending.

    y and out [M, H], base [taps, H], coefficients [M, taps * groups] (may be a column slice);
    float32. row_in_block int32 [M]: rows before a block's first count as zero, so blocks that lie
    side by side do not see each other. ``out`` must not be ``y``.
    """
    taps, size = base.shape
    assert coefficients.shape[1] % taps == 0, "as many coefficients for every tap"
    assert size % (coefficients.shape[1] // taps) == 0, "groups of channels are of one size"
    assert out.data_ptr() != y.data_ptr(), "rows are read after the rows behind them are written"
    # Plain PyTorch on every backend: this is 0.1 % of a drafter's arithmetic.
    submit(Thunk(lambda: _reference(y, base, coefficients, row_in_block, out)))


def _reference(
    y: torch.Tensor,
    base: torch.Tensor,
    coefficients: torch.Tensor,
    row_in_block: torch.Tensor,
    out: torch.Tensor,
) -> None:
    taps, size = base.shape
    by_group = coefficients.unflatten(1, (taps, -1))
    weights = base + by_group.repeat_interleave(size // by_group.shape[2], dim=2)
    total = weights[:, 0] * y
    for tap in range(1, taps):
        earlier = torch.zeros_like(y)
        earlier[tap:] = y[:-tap]
        inside = (row_in_block >= tap).unsqueeze(1)
        total = torch.where(inside, total + weights[:, tap] * earlier, total)
    out.copy_(total)
