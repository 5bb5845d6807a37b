"""Gated DeltaNet: the gated delta rule over a matrix-valued state (Yang et al., 2024).

Per value head with state S [Dk, Dv], for every row in order:

    S <- exp(g) S;  d = beta (v - k S);  S <- S + k d;  o = q S

``recurrent`` walks rows one after the other, replaying kept rows first (kernels/segments.py), in
the same order for every number of rows: what a row gives does not depend on how a text was cut into
passes. ``chunked`` is the matrix form for many rows; it rounds differently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hearth.kernels.graph import KernelLaunch, Thunk, backend, float_bits, submit
from hearth.kernels.segments import StateView, strides

if TYPE_CHECKING:
    from hearth.kernels.segments import Segments

CHUNK_TOKENS = 64
L2_EPS = 1e-6
WIDE_TILE, NARROW_TILE = 32, 16
SOFTPLUS_LINEAR_ABOVE = 20.0


@dataclass(frozen=True, slots=True)
class DeltaShape:
    """Heads of a Gated DeltaNet layer. ``is_tiled``: value head j reads key head j % num_key_heads
    (GGUF's order) instead of j // (num_value_heads / num_key_heads)."""

    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    is_tiled: bool = False

    def __post_init__(self) -> None:
        assert self.num_value_heads % self.num_key_heads == 0, "value heads share keys evenly"
        assert self.key_dim % 16 == self.value_dim % 16 == 0, "head sizes are multiples of 16"

    @property
    def key_size(self) -> int:
        return self.num_key_heads * self.key_dim

    @property
    def value_size(self) -> int:
        return self.num_value_heads * self.value_dim

    def key_head(self, value_head: int) -> int:
        if self.is_tiled:
            return value_head % self.num_key_heads
        return value_head // (self.num_value_heads // self.num_key_heads)

    @property
    def tile(self) -> int:
        """Value dimensions that are computed together; a head's state is stored tile after tile."""
        return WIDE_TILE if self.value_dim % WIDE_TILE == 0 else NARROW_TILE

    @property
    def state_shape(self) -> tuple[int, int, int, int]:
        """[Hv, tiles, Dk, tile] of one layer: what one chunk reads lies side by side."""
        tile = self.tile
        return (self.num_value_heads, self.value_dim // tile, self.key_dim, tile)

    @property
    def key_heads(self) -> list[int]:
        """The key head of every value head."""
        return [self.key_head(head) for head in range(self.num_value_heads)]


@dataclass(frozen=True, slots=True)
class GateWeights:
    """decay [Hv] = -exp(A_log) and dt_bias [Hv]; float32."""

    decay: torch.Tensor
    dt_bias: torch.Tensor


def prepare(
    qkv: torch.Tensor,
    b: torch.Tensor,
    a: torch.Tensor,
    weights: GateWeights,
    segments: Segments,
    state: StateView,
    gates: torch.Tensor,
    shape: DeltaShape,
) -> None:
    """Ready the rows for ``recurrent``; float32.

    qkv [M, 2 * Hk * Dk + Hv * Dv] in place: q and k heads to unit length, q times Dk^-0.5. gates
    [M, 2 * Hv] from b and a [M, Hv]: exp(decay * softplus(a + dt_bias)), then sigmoid(b). Rows that
    are not kept for certain leave k, v and gates in the window.
    """
    if backend() == "reference":
        submit(Thunk(lambda: _prepare_reference(qkv, b, a, weights, segments, state, gates, shape)))
        return
    from hearth.kernels import deltanet_llvm, jit

    if not qkv.shape[0]:
        return
    address = jit.compiler().address("delta_prepare", deltanet_llvm.emit_prepare)
    tensors = (
        qkv,
        b,
        a,
        weights.decay,
        weights.dt_bias,
        segments.table,
        segments.row_segment,
        state.keys_values,
        state.gates,
        gates,
    )
    arguments = (
        *(tensor.data_ptr() for tensor in tensors),
        b.stride(0),
        a.stride(0),
        *strides(state.keys_values),
        *strides(state.gates),
        shape.num_key_heads,
        shape.num_value_heads,
        shape.key_dim,
        shape.value_size,
        float_bits(shape.key_dim**-0.5),
    )
    submit(KernelLaunch(address, arguments, qkv.shape[0], tensors))


def recurrent(
    qkv: torch.Tensor,
    gates: torch.Tensor,
    segments: Segments,
    state: StateView,
    out: torch.Tensor,
    shape: DeltaShape,
) -> None:
    """out [M, Hv * Dv] from prepared rows; moves every segment's state on.

    A float16 state is rounded behind every row, so that replay gives the same bits.
    """
    if backend() == "reference":
        submit(Thunk(lambda: _recurrent_reference(qkv, gates, segments, state, out, shape)))
        return
    from hearth.kernels import deltanet_llvm, jit

    tile = shape.tile
    is_half = state.recurrent.dtype == torch.float16
    name = f"delta_{shape.key_dim}_{tile}{'_half' if is_half else ''}"
    emit = deltanet_llvm.recurrent_emitter(shape.key_dim, tile, is_half=is_half)
    key_heads = torch.tensor(shape.key_heads, dtype=torch.int32)
    tensors = (
        qkv,
        gates,
        segments.table,
        key_heads,
        state.recurrent,
        state.keys_values,
        state.gates,
        out,
    )
    arguments = (
        *(tensor.data_ptr() for tensor in tensors),
        *strides(state.recurrent),
        *strides(state.keys_values),
        *strides(state.gates),
        shape.num_value_heads,
        shape.value_dim,
        shape.key_size,
    )
    num_chunks = segments.count * shape.num_value_heads * (shape.value_dim // tile)
    submit(KernelLaunch(jit.compiler().address(name, emit), arguments, num_chunks, tensors))


# --------------------------------------------------------------------------------------- reference


def _unit_heads(x: torch.Tensor, head_dim: int) -> torch.Tensor:
    heads = x.unflatten(-1, (-1, head_dim))
    lengths = (heads.square().sum(-1, keepdim=True) + L2_EPS).sqrt()
    return torch.div(heads, lengths).flatten(-2)


def _prepare_reference(
    qkv: torch.Tensor,
    b: torch.Tensor,
    a: torch.Tensor,
    weights: GateWeights,
    segments: Segments,
    state: StateView,
    gates: torch.Tensor,
    shape: DeltaShape,
) -> None:
    keys = shape.key_size
    qkv[:, :keys] = _unit_heads(qkv[:, :keys], shape.key_dim) * shape.key_dim**-0.5
    qkv[:, keys : 2 * keys] = _unit_heads(qkv[:, keys : 2 * keys], shape.key_dim)
    step = torch.nn.functional.softplus(a + weights.dt_bias, threshold=SOFTPLUS_LINEAR_ABOVE)
    gates[:, : shape.num_value_heads] = (weights.decay * step).exp()
    gates[:, shape.num_value_heads :] = b.sigmoid()
    for index in range(segments.count):
        first, count, slot, side, _, commits = segments.read(index)[:6]
        if slot >= 0 and not commits:
            rows = slice(first, first + count)
            state.keys_values[1 - side, slot, :count] = qkv[rows, keys:]
            state.gates[1 - side, slot, :count] = gates[rows]


def _recurrent_reference(
    qkv: torch.Tensor,
    gates: torch.Tensor,
    segments: Segments,
    state: StateView,
    out: torch.Tensor,
    shape: DeltaShape,
) -> None:
    keys, heads = shape.key_size, torch.tensor(shape.key_heads)
    for index in range(segments.count):
        first, count, slot, side, replayed, commits = segments.read(index)[:6]
        if slot < 0:
            continue
        current = _untiled(state.recurrent[side, slot].float())
        for row in range(replayed):
            kv = state.keys_values[side, slot, row]
            _step(current, kv, state.gates[side, slot, row], heads, shape)
            current = current.to(state.recurrent.dtype).float()
        if not commits:
            state.recurrent[1 - side, slot] = _tiled(current, shape)
        for row in range(first, first + count):
            _step(current, qkv[row, keys:], gates[row], heads, shape)
            current = current.to(state.recurrent.dtype).float()
            q = qkv[row, :keys].view(-1, shape.key_dim)[heads]
            out[row] = torch.einsum("hkv,hk->hv", current, q).flatten()
        if commits:
            state.recurrent[1 - side, slot] = _tiled(current, shape)


def _untiled(state: torch.Tensor) -> torch.Tensor:
    """[Hv, Dk, Dv] of a stored state."""
    return state.transpose(1, 2).flatten(2)


def _tiled(state: torch.Tensor, shape: DeltaShape) -> torch.Tensor:
    tiles = state.view(*state.shape[:2], -1, shape.tile)
    return tiles.transpose(1, 2)


def _step(
    state: torch.Tensor,
    keys_values: torch.Tensor,
    gates: torch.Tensor,
    heads: torch.Tensor,
    shape: DeltaShape,
) -> None:
    """One row of the recurrence on state [Hv, Dk, Dv], in place."""
    k = keys_values[: shape.key_size].view(-1, shape.key_dim)[heads]
    v = keys_values[shape.key_size :].view(-1, shape.value_dim)
    decay, beta = gates.view(2, -1, 1)
    state *= decay.unsqueeze(-1)
    delta = beta * (v - torch.einsum("hkv,hk->hv", state, k))
    state += torch.einsum("hk,hv->hkv", k, delta)


def chunked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same recurrence in chunks of 64 rows: matrix products instead of steps.

    q, k [H, T, Dk] prepared, v [H, T, Dv], g = log decay and beta [H, T], state [H, Dk, Dv]; any
    float dtype. Returns o [H, T, Dv] and the state behind the last row. Differences of cumulated
    gates are taken before exp, which never overflows. Source: Yang et al., 2024, section 3.
    """
    outputs = []
    for start in range(0, q.shape[1], CHUNK_TOKENS):
        rows = slice(start, start + CHUNK_TOKENS)
        out, state = _chunk(q[:, rows], k[:, rows], v[:, rows], g[:, rows], beta[:, rows], state)
        outputs.append(out)
    return torch.cat(outputs, dim=1), state


def _chunk(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    total = g.cumsum(1)
    # Above the diagonal the difference may be large and positive: masked before exp.
    between = (total.unsqueeze(2) - total.unsqueeze(1)).tril().exp().tril()
    system = (beta.unsqueeze(2) * (k @ k.mT) * between).tril(-1)
    system = system + torch.eye(q.shape[1], dtype=q.dtype, device=q.device)
    right = beta.unsqueeze(2) * torch.cat((v, total.exp().unsqueeze(2) * k), dim=2)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    fresh = solved[..., : v.shape[2]] - solved[..., v.shape[2] :] @ state
    out = total.exp().unsqueeze(2) * (q @ state) + ((q @ k.mT) * between) @ fresh
    left = (total[:, -1:] - total).exp().unsqueeze(2) * k
    return out, total[:, -1].exp().view(-1, 1, 1) * state + left.mT @ fresh
