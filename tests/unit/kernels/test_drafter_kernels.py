"""Dynamic convolution, rotation, block attention and selector against float64; their bits."""

from __future__ import annotations

import pytest
import torch

from hearth.kernels.block_attention import RingView, block_attention, visible
from hearth.kernels.dynamic_conv import dynamic_conv
from hearth.kernels.kv import HeadShape
from hearth.kernels.rotary import angle_tables, rotate_heads
from hearth.kernels.selector import edge_scores, top_candidates

SHAPE = HeadShape(6, 2, 16)


# ------------------------------------------------------------------------------------ convolution


def convolved(y: torch.Tensor, base: torch.Tensor, coefficients: torch.Tensor) -> torch.Tensor:
    """One block, from the definition, in float64."""
    taps, size = base.shape
    groups = coefficients.shape[1] // taps
    out = torch.zeros_like(y, dtype=torch.float64)
    for s in range(len(y)):
        for tap in range(min(taps, s + 1)):
            for channel in range(size):
                weight = base[tap, channel].double()
                group = tap * groups + channel // (size // groups)
                weight = weight + coefficients[s, group].double()
                out[s, channel] += weight * y[s - tap, channel].double()
    return out


@pytest.mark.parametrize("taps", [1, 2, 3])
@pytest.mark.parametrize("lengths", [(1,), (8,), (2, 4), (1, 1, 3)])
def test_blocks_are_convolved_on_their_own(taps: int, lengths: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    rows, size, groups = sum(lengths), 12, 3
    y, base = torch.randn(rows, size), torch.randn(taps, size)
    both_sides = torch.randn(rows, 2 * taps * groups)
    coefficients = both_sides[:, taps * groups :]
    places = torch.cat([torch.arange(length) for length in lengths]).int()
    out = torch.full_like(y, float("nan"))
    dynamic_conv(y, base, coefficients, places, out)
    start = 0
    for length in lengths:
        rows_of = slice(start, start + length)
        expected = convolved(y[rows_of], base, coefficients[rows_of])
        torch.testing.assert_close(out[rows_of].double(), expected, rtol=1e-6, atol=1e-6)
        alone = torch.empty(length, size)
        dynamic_conv(y[rows_of], base, coefficients[rows_of], places[rows_of], alone)
        assert torch.equal(alone, out[rows_of])
        start += length


def test_rows_of_other_blocks_may_be_anything() -> None:
    y = torch.full((3, 4), float("nan"))
    y[1:] = 1.0
    out, places = torch.empty(3, 4), torch.tensor([0, 0, 1], dtype=torch.int32)
    dynamic_conv(y, torch.ones(2, 4), torch.zeros(3, 4), places, out)
    assert torch.equal(out[1:, 0], torch.tensor([1.0, 2.0]))


# --------------------------------------------------------------------------------------- rotation


def test_whole_heads_turn() -> None:
    """As multiplication of a_i + i b_i, b the other half, by a unit complex number."""
    torch.manual_seed(2)
    x, positions = torch.randn(5, 3 * 16), torch.tensor([0, 1, 7, 400, 262_143])
    wide = torch.cat((torch.zeros(5, 4), x), dim=1)
    rotate_heads(wide[:, 4:], *angle_tables(positions, 16, 1e7))
    heads = x.double().unflatten(1, (3, 2, 8))
    angles = positions.double()[:, None] * 1e7 ** (-torch.arange(8).double() / 8)
    turned = torch.complex(heads[:, :, 0], heads[:, :, 1]) * torch.exp(1j * angles)[:, None]
    expected = torch.stack((turned.real, turned.imag), dim=2).flatten(1)
    torch.testing.assert_close(wide[:, 4:].double(), expected, rtol=1e-5, atol=1e-6)
    assert not wide[:, :4].any()


# -------------------------------------------------------------------------------------- attention


class Block:
    """A context in a ring with a seam somewhere, and a block behind it."""

    def __init__(self, num_context: int, num_rows: int, slots: int, first: int) -> None:
        torch.manual_seed(3)
        kv = SHAPE.num_kv_heads * SHAPE.head_dim
        self.keys, self.values = torch.randn(num_context, kv), torch.randn(num_context, kv)
        ring = [torch.full((slots, kv), float("nan")) for _ in range(2)]
        places = torch.arange(first, first + num_context) % slots
        ring[0][places], ring[1][places] = self.keys, self.values
        self.ring = RingView(ring[0], ring[1], first, first + num_context)
        self.q = torch.randn(num_rows, SHAPE.num_heads * SHAPE.head_dim)
        self.k, self.v = torch.randn(num_rows, kv), torch.randn(num_rows, kv)

    def run(self, window: int | None, *, is_causal: bool) -> torch.Tensor:
        out = torch.full_like(self.q, float("nan"))
        block_attention(
            self.q, self.k, self.v, self.ring, 0.25, out, SHAPE, window=window, is_causal=is_causal
        )
        return out

    def expected(self, window: int | None, *, is_causal: bool) -> torch.Tensor:
        """Row by row and head by head in float64."""
        keys, values = torch.cat((self.keys, self.k)), torch.cat((self.values, self.v))
        keys, values = (t.double().unflatten(1, (-1, SHAPE.head_dim)) for t in (keys, values))
        out = torch.empty_like(self.q, dtype=torch.float64).unflatten(1, (-1, SHAPE.head_dim))
        queries = self.q.double().unflatten(1, (-1, SHAPE.head_dim))
        for row in range(len(self.q)):
            s = len(self.keys) + row
            seen = [t for t in range(len(keys)) if window is None or s - t < window]
            seen = [t for t in seen if t <= s or not is_causal]
            for head in range(SHAPE.num_heads):
                weights = (keys[seen, head // 3] @ queries[row, head] * 0.25).softmax(0)
                out[row, head] = weights @ values[seen, head // 3]
        return out.flatten(1)


@pytest.mark.parametrize("num_context", [0, 1, 9, 10])
@pytest.mark.parametrize("window", [None, 2, 4, 11])
@pytest.mark.parametrize("is_causal", [False, True])
def test_block_attention(num_context: int, window: int | None, is_causal: bool) -> None:
    block = Block(num_context, 4, slots=10, first=37)
    out = block.run(window, is_causal=is_causal)
    expected = block.expected(window, is_causal=is_causal)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-6)


def test_the_ring_s_seam_changes_no_bit() -> None:
    outs = [Block(9, 4, 10, first).run(6, is_causal=False) for first in (0, 3, 9, 1000)]
    assert all(torch.equal(out, outs[0]) for out in outs)


def test_the_window_counts_the_query_itself() -> None:
    seen = visible(3, 2, window=3, is_causal=False)
    assert seen.tolist() == [[False, True, True, True, True], [False, False, True, True, True]]
    causal = visible(3, 2, window=3, is_causal=True)
    assert causal.tolist() == [[False, True, True, True, False], [False, False, True, True, True]]


# --------------------------------------------------------------------------------------- selector


def test_candidates_are_the_largest_in_order_of_ids() -> None:
    logits = torch.randn(1000, generator=torch.Generator().manual_seed(4))
    ids = top_candidates(logits, 16)
    assert torch.equal(ids, logits.argsort(descending=True)[:16].sort().values)
    assert top_candidates(logits[:5], 16).tolist() == [0, 1, 2, 3, 4]


def test_of_equal_candidates_the_lowest_ids_stay() -> None:
    logits = torch.tensor([1.0, 3.0, 2.0, 2.0, 0.0, 2.0, 3.0])
    assert top_candidates(logits, 4).tolist() == [1, 2, 3, 6]
    assert top_candidates(torch.zeros(50), 3).tolist() == [0, 1, 2]


def test_edges_are_added_to_logits() -> None:
    torch.manual_seed(5)
    unary, before, hidden, after = (torch.randn(s) for s in ((16,), (8,), (8,), (16, 8)))
    scores = edge_scores(unary, before, hidden, after)
    edges = torch.einsum("r,r,cr->c", before.double(), hidden.double(), after.double())
    torch.testing.assert_close(scores.double(), unary.double() + edges, rtol=1e-5, atol=1e-5)
