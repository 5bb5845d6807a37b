"""Attention of a block of drafted rows over [ring of context | the block itself].

The context is one request's: what other requests do cannot change a bit of it. Keys are ordered by
position before anything is summed, so the place where the ring has its seam does not matter either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hearth.kernels.graph import Thunk, submit

if TYPE_CHECKING:
    from hearth.kernels.kv import HeadShape


@dataclass(frozen=True, slots=True)
class RingView:
    """Keys and values [C, Hkv * D] float32 of positions ``first`` to ``end`` - 1: position p lies
    in slot p % C."""

    keys: torch.Tensor
    values: torch.Tensor
    first: int
    end: int

    def __post_init__(self) -> None:
        assert 0 <= self.first <= self.end, "positions ascend"
        assert self.end - self.first <= self.keys.shape[0], "every position has a slot"

    def ordered(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [N, Hkv * D], copies, positions ascending."""
        slots = torch.arange(self.first, self.end) % self.keys.shape[0]
        return self.keys[slots], self.values[slots]


def block_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    context: RingView,
    scale: float,
    out: torch.Tensor,
    shape: HeadShape,
    *,
    window: int | None,
    is_causal: bool,
) -> None:
    """out [M, Hq * D] for the rows of one block, which stand at context.end, context.end + 1, ….

    q [M, Hq * D], k and v [M, Hkv * D]; float32, may be slices. A key at position t is visible to
    the query at s iff s - t < ``window`` (any, when None) and, with ``is_causal``, t <= s: without,
    the block's rows see each other in both directions.
    """

    def run() -> None:
        _reference(q, k, v, context, scale, out, shape, window, is_causal)

    submit(Thunk(run))


def _reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    context: RingView,
    scale: float,
    out: torch.Tensor,
    shape: HeadShape,
    window: int | None,
    is_causal: bool,
) -> None:
    old_keys, old_values = context.ordered()
    keys = _by_head(torch.cat((old_keys, k)), shape)
    values = _by_head(torch.cat((old_values, v)), shape)
    hidden = ~visible(len(old_keys), len(q), window=window, is_causal=is_causal)
    group = shape.num_heads // shape.num_kv_heads
    queries = q.unflatten(1, (shape.num_kv_heads, group, shape.head_dim)).permute(1, 2, 0, 3)
    scores = queries @ keys.unsqueeze(1).transpose(2, 3) * scale
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    out.copy_((weights @ values.unsqueeze(1)).permute(2, 0, 1, 3).flatten(1))


def _by_head(rows: torch.Tensor, shape: HeadShape) -> torch.Tensor:
    """[Hkv, N, D] from [N, Hkv * D]."""
    heads: torch.Tensor = rows.unflatten(1, (shape.num_kv_heads, shape.head_dim))
    return heads.transpose(0, 1).contiguous()


def visible(
    num_context: int, num_rows: int, *, window: int | None, is_causal: bool
) -> torch.Tensor:
    """bool [M, N + M]: which of N context keys and M block keys each row of the block sees."""
    queries = torch.arange(num_context, num_context + num_rows).unsqueeze(1)
    distance = queries - torch.arange(num_context + num_rows)
    nearest = 0 if is_causal else -num_rows
    farthest = num_context + num_rows if window is None else window
    seen: torch.Tensor = (distance >= nearest) & (distance < farthest)
    return seen
