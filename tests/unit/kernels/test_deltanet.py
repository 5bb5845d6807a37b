"""Gated DeltaNet's kernels: against the plain references, and the same bits for every cut."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from hearth.kernels import conv, deltanet
from hearth.kernels.conv import causal_conv
from hearth.kernels.deltanet import DeltaShape, GateWeights, chunked, prepare, recurrent
from hearth.kernels.segments import TABLE_COLUMNS, Segments, StateView

TAPS, WINDOW, SLOTS = 4, 8, 3
SHAPES = [
    DeltaShape(2, 4, 16, 32),
    DeltaShape(2, 4, 32, 16, is_tiled=True),
    DeltaShape(1, 1, 128, 128),
]


def new_state(shape: DeltaShape, dtype: torch.dtype = torch.float32) -> StateView:
    channels = 2 * shape.key_size + shape.value_size
    heads = shape.num_value_heads
    return StateView(
        recurrent=torch.zeros(2, SLOTS, *shape.state_shape, dtype=dtype),
        conv=torch.zeros(2, SLOTS, TAPS - 1, channels),
        raw=torch.zeros(2, SLOTS, WINDOW, channels),
        keys_values=torch.zeros(2, SLOTS, WINDOW, channels - shape.key_size),
        gates=torch.zeros(2, SLOTS, WINDOW, 2 * heads),
    )


@dataclass(frozen=True)
class Layer:
    """Random inputs of a text of T tokens and a layer's weights."""

    shape: DeltaShape
    u: torch.Tensor
    b: torch.Tensor
    a: torch.Tensor
    weight: torch.Tensor
    gate_weights: GateWeights


def make_layer(shape: DeltaShape, num_tokens: int = 24) -> Layer:
    torch.manual_seed(5)
    heads, channels = shape.num_value_heads, 2 * shape.key_size + shape.value_size
    return Layer(
        shape,
        torch.randn(num_tokens, channels),
        torch.randn(num_tokens, heads),
        torch.randn(num_tokens, heads) * 4,
        torch.randn(TAPS, channels) * 0.5,
        GateWeights(-torch.rand(heads) * 2, torch.randn(heads)),
    )


def table(*lines: tuple[int, ...]) -> torch.Tensor:
    result = torch.zeros(len(lines), TABLE_COLUMNS, dtype=torch.int32)
    for index, line in enumerate(lines):
        result[index, : len(line)] = torch.tensor(line)
    return result


def run_rows(
    layer: Layer, rows: torch.Tensor, segments: Segments, state: StateView
) -> torch.Tensor:
    """The outputs of text positions ``rows`` as one pass."""
    shape, count = layer.shape, len(rows)
    mixed = torch.empty(count, layer.u.shape[1])
    gates = torch.empty(count, 2 * shape.num_value_heads)
    out = torch.empty(count, shape.value_size)
    causal_conv(layer.u[rows].contiguous(), layer.weight, segments, state, mixed)
    b, a = layer.b[rows].contiguous(), layer.a[rows].contiguous()
    prepare(mixed, b, a, layer.gate_weights, segments, state, gates, shape)
    recurrent(mixed, gates, segments, state, out, shape)
    return out


@dataclass
class Reader:
    """Walks a text through one slot like the engine does."""

    layer: Layer
    state: StateView
    slot: int = 1
    side: int = 0
    replayed: int = 0
    position: int = 0

    def go(self, count: int, *, kept: int | None = None) -> torch.Tensor:
        """``count`` rows; kept None: for certain. Returns the outputs of the kept rows."""
        rows = torch.arange(self.position, self.position + count)
        commits = kept is None
        line = (0, count, self.slot, self.side, self.replayed, int(commits))
        segments = Segments(table(line), torch.zeros(count, dtype=torch.int32))
        out = run_rows(self.layer, rows, segments, self.state)
        self.side, self.replayed = 1 - self.side, kept or 0
        self.position += count if kept is None else kept
        return out if kept is None else out[:kept]


def whole(layer: Layer, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return Reader(layer, new_state(layer.shape, dtype)).go(len(layer.u))


def in_float64(layer: Layer) -> torch.Tensor:
    """The formulas of the module's text, row by row in float64."""
    shape, heads = layer.shape, torch.tensor(layer.shape.key_heads)
    padded = torch.cat((torch.zeros(TAPS - 1, layer.u.shape[1]), layer.u)).double()
    taps = [padded[j : j + len(layer.u)] * layer.weight[j].double() for j in range(TAPS)]
    mixed = torch.nn.functional.silu(sum(taps))
    state = torch.zeros(shape.num_value_heads, shape.key_dim, shape.value_dim).double()
    step = torch.nn.functional.softplus(layer.a.double() + layer.gate_weights.dt_bias.double())
    decay, beta = (layer.gate_weights.decay.double() * step).exp(), layer.b.double().sigmoid()
    outputs = []
    for row, decay_row, beta_row in zip(mixed, decay, beta, strict=True):
        q, k, v = row.split((shape.key_size, shape.key_size, shape.value_size))
        q, k = (x.view(-1, shape.key_dim)[heads] for x in (q, k))
        q = q / (q.square().sum(-1, keepdim=True) + 1e-6).sqrt() * shape.key_dim**-0.5
        k = k / (k.square().sum(-1, keepdim=True) + 1e-6).sqrt()
        state = state * decay_row.view(-1, 1, 1)
        read = torch.einsum("hkv,hk->hv", state, k)
        delta = beta_row.view(-1, 1) * (v.view(-1, shape.value_dim) - read)
        state = state + torch.einsum("hk,hv->hkv", k, delta)
        outputs.append(torch.einsum("hkv,hk->hv", state, q).flatten())
    return torch.stack(outputs)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_formulas(shape: DeltaShape) -> None:
    layer = make_layer(shape)
    error = (whole(layer).double() - in_float64(layer)).abs().max()
    assert error < 2e-5 * in_float64(layer).abs().max()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_references_agree(shape: DeltaShape, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = make_layer(shape)

    def walk() -> torch.Tensor:
        reader = Reader(layer, new_state(shape))
        return torch.cat((reader.go(7), reader.go(4, kept=2), reader.go(3, kept=3), reader.go(6)))

    compiled = walk()
    for module in (conv, deltanet):
        monkeypatch.setattr(module, "backend", lambda: "reference")
    torch.testing.assert_close(compiled, walk(), rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_cut_changes_a_bit(shape: DeltaShape, dtype: torch.dtype) -> None:
    layer = make_layer(shape)
    expected = whole(layer, dtype)
    for cut in (1, 2, 3, 5, 23):
        reader = Reader(layer, new_state(shape, dtype))
        assert torch.equal(torch.cat((reader.go(cut), reader.go(24 - cut))), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
def test_rejected_rows_leave_no_trace(shape: DeltaShape, dtype: torch.dtype) -> None:
    layer = make_layer(shape)
    expected = whole(layer, dtype)
    reader = Reader(layer, new_state(shape, dtype))
    pieces = [reader.go(5)]
    for count, kept in ((4, 1), (8, 3), (1, 1), (5, 5), (2, 1), (3, 2)):
        pieces.append(reader.go(count, kept=kept))
    pieces.append(reader.go(24 - reader.position))
    assert torch.equal(torch.cat(pieces), expected)


def test_neighbours_change_no_bit() -> None:
    shape = SHAPES[0]
    layer, state = make_layer(shape), new_state(SHAPES[0])
    alone = whole(layer)
    lines = table((0, 6, 2, 0, 0, 1), (0, 0, -1), (6, 9, 0, 1, 0, 0), (15, 3, 1, 0, 0, 1))
    owner = torch.tensor([0] * 6 + [2] * 9 + [3] * 3, dtype=torch.int32)
    rows = torch.cat((torch.arange(6), torch.arange(8), torch.tensor([0]), torch.arange(3)))
    out = run_rows(layer, rows, Segments(lines[:, :], owner), _wider(state))
    assert torch.equal(out[:6], alone[:6])
    assert torch.equal(out[6:14], alone[:8])
    assert torch.equal(out[15:], alone[:3])


def _wider(state: StateView) -> StateView:
    """Windows of more rows than any segment of the test has."""
    room = [torch.zeros(*t.shape[:2], 16, t.shape[3]) for t in (state.raw, state.keys_values)]
    gates = torch.zeros(*state.gates.shape[:2], 16, state.gates.shape[3])
    return StateView(state.recurrent, state.conv, room[0], room[1], gates)


@pytest.mark.parametrize("num_tokens", [1, 63, 64, 65, 127, 128, 129, 200])
def test_chunks_give_what_steps_give(num_tokens: int) -> None:
    torch.manual_seed(num_tokens)
    heads, key_dim, value_dim = 2, 16, 32
    q, k = (
        torch.nn.functional.normalize(torch.randn(heads, num_tokens, key_dim).double(), dim=-1)
        for _ in range(2)
    )
    v = torch.randn(heads, num_tokens, value_dim).double()
    g, beta = -torch.rand(heads, num_tokens).double() * 3, torch.rand(heads, num_tokens).double()
    first = torch.randn(heads, key_dim, value_dim).double()
    out, last = chunked(q, k, v, g, beta, first)
    state, expected = first, []
    for t in range(num_tokens):
        state = state * g[:, t].exp().view(-1, 1, 1)
        delta = beta[:, t, None] * (v[:, t] - torch.einsum("hkv,hk->hv", state, k[:, t]))
        state = state + torch.einsum("hk,hv->hkv", k[:, t], delta)
        expected.append(torch.einsum("hkv,hk->hv", state, q[:, t]))
    torch.testing.assert_close(out, torch.stack(expected, dim=1), rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(last, state, rtol=1e-11, atol=1e-12)
