"""Rotary embedding of whole heads, without a cache: pairs (i, i + head_dim / 2)."""

from __future__ import annotations

import torch

from hearth.kernels.graph import Thunk, submit


def rotate_heads(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Turn x [M, heads * D] in place; cos and sin [M, D / 2] are those of each row's position.

    float32; ``x`` may be a column slice.
    """
    submit(Thunk(lambda: _reference(x, cos, sin)))


def _reference(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    heads = x.unflatten(1, (-1, 2 * cos.shape[1]))
    first, second = heads.chunk(2, dim=2)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=2)
    x.copy_(turned.flatten(1))


def angle_tables(
    positions: torch.Tensor, head_dim: int, theta: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, float32 [M, head_dim / 2], of p · theta^(-2i / head_dim).

    The angles are float64: at position 262,144 a float32 angle is off by up to 0.02.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    angles = positions.double().unsqueeze(1) * theta**-exponents
    return angles.cos().float(), angles.sin().float()
