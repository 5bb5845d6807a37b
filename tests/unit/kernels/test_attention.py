"""Rotary embedding, paged attention, norms and activations against float64."""

from __future__ import annotations

import pytest
import torch

from hearth.kernels import ggml_blocks, packing
from hearth.kernels.act import sigmoid_gate, silu_mul
from hearth.kernels.attention import paged_attention
from hearth.kernels.embed import embed
from hearth.kernels.kv import PAGE_TOKENS, HeadShape, RopeTables, RowPlaces, rope_write
from hearth.kernels.linear import pack_float, pack_gguf
from hearth.kernels.norm import gated_rms_norm, rms_norm, rms_norm_heads
from hearth.kernels.rows import gather_rows

SHAPES = [
    HeadShape(9, 3, 64),
    HeadShape(4, 4, 32),
    HeadShape(8, 2, 128),
    HeadShape(4, 1, 80),
    HeadShape(4, 2, 64, rotary_dim=16, query_stride=128),
]
TABLE = torch.tensor([[3, 1, 5], [2, 4, 0]], dtype=torch.int32)


class World:
    """Two requests, their pages full of NaN where nothing was written."""

    def __init__(self, shape: HeadShape, length: int) -> None:
        torch.manual_seed(1)
        self.shape = shape
        self.pages = torch.full((6, 2, shape.page_floats), float("nan"))
        half = shape.rotary // 2
        angles = torch.arange(512)[:, None] * 10000 ** (-torch.arange(half) / half)
        axes = torch.zeros(half, dtype=torch.int32)
        self.rope = RopeTables(angles.cos().float(), angles.sin().float(), axes)
        self.q = torch.randn(length, shape.num_heads * shape.query_step)
        self.k = torch.randn(length, shape.num_kv_heads * shape.head_dim)
        self.v = torch.randn(length, shape.num_kv_heads * shape.head_dim)

    def places(self, positions: torch.Tensor, request: int) -> RowPlaces:
        rows = torch.full((len(positions),), request, dtype=torch.int32)
        return RowPlaces(positions.int(), positions.int()[:, None].repeat(1, 3), rows, TABLE)

    def write(self, request: int) -> torch.Tensor:
        q = self.q.clone()
        places = self.places(torch.arange(len(q)), request)
        rope_write(q, self.k, self.v, places, self.rope, self.pages, 1, self.shape)
        return q

    def attend(self, q: torch.Tensor, positions: torch.Tensor, request: int) -> torch.Tensor:
        size = self.shape.num_heads * self.shape.head_dim
        out = torch.full((len(q), size), float("nan"))
        places = self.places(positions, request)
        scale = self.shape.head_dim**-0.5
        paged_attention(q, places, self.pages, 1, scale, out, self.shape)
        return out

    def expected(self) -> torch.Tensor:
        shape, length = self.shape, len(self.q)
        queries = self.q.view(length, shape.num_heads, -1)[..., : shape.head_dim]
        q = self._turned(queries.flatten(1), shape.num_heads)
        group = shape.num_heads // shape.num_kv_heads
        k = self._turned(self.k, shape.num_kv_heads).repeat_interleave(group, 1)
        v = self.v.view(length, shape.num_kv_heads, -1).double().repeat_interleave(group, 1)
        out = torch.nn.functional.scaled_dot_product_attention(
            q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), is_causal=True
        )
        return out.transpose(0, 1).reshape(length, -1)

    def _turned(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        half = self.shape.rotary // 2
        sizes = (half, half, self.shape.head_dim - 2 * half)
        first, second, rest = x.view(len(x), heads, -1).double().split(sizes, -1)
        cos, sin = (t[: len(x), None].double() for t in (self.rope.cos, self.rope.sin))
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), -1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("length", [1, PAGE_TOKENS - 1, PAGE_TOKENS, 300])
def test_attention(shape: HeadShape, length: int) -> None:
    world = World(shape, length)
    out = world.attend(world.write(0), torch.arange(length), 0)
    expected = world.expected()
    assert (out - expected).norm() <= 1e-6 * expected.norm()


def test_a_row_s_bits_do_not_depend_on_the_others() -> None:
    world = World(SHAPES[0], 300)
    q = world.write(0)
    whole = world.attend(q, torch.arange(300), 0)
    for start, stop in ((299, 300), (120, 137), (0, 16), (200, 264)):
        part = world.attend(q[start:stop].contiguous(), torch.arange(start, stop), 0)
        assert torch.equal(part, whole[start:stop])


def test_requests_do_not_see_each_other() -> None:
    world = World(SHAPES[0], 200)
    q = world.write(0)
    alone = world.attend(q, torch.arange(200), 0)
    world.k, world.v = torch.randn_like(world.k), torch.randn_like(world.v)
    world.write(1)
    assert torch.equal(world.attend(q, torch.arange(200), 0), alone)


def test_padding_rows_write_nothing_and_become_zero() -> None:
    world = World(SHAPES[0], 4)
    q = world.q.clone()
    places = world.places(torch.arange(4), -1)
    rope_write(q, world.k, world.v, places, world.rope, world.pages, 1, world.shape)
    assert world.pages.isnan().all()
    assert not world.attend(q, torch.arange(4), -1).any()


@pytest.mark.parametrize("size", [16, 64, 100, 576, 577])
def test_rms_norm(size: int) -> None:
    x, weight = torch.randn(5, size), torch.rand(size)
    out = torch.empty_like(x)
    rms_norm(x, weight, 1e-5, out)
    scale = (x.double().pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()
    torch.testing.assert_close(out.double(), x.double() * scale * weight, rtol=1e-6, atol=1e-6)


def test_rms_norm_of_heads_is_that_of_each_head() -> None:
    x, weight = torch.randn(3, 4 * 32), torch.rand(32)
    out, single = x.clone(), torch.empty(12, 32)
    rms_norm_heads(out, weight, 1e-6, out, num_heads=4)
    rms_norm(x.view(12, 32), weight, 1e-6, single)
    assert torch.equal(out.view(12, 32), single)


def test_three_positions_turn_a_token() -> None:
    world = World(SHAPES[-1], 5)
    world.rope.axes[:] = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0])
    places = world.places(torch.arange(5), 0)
    places.rope_positions[:] = torch.randint(0, 500, (5, 3))
    q = world.q.clone()
    rope_write(q, world.k, world.v, places, world.rope, world.pages, 1, world.shape)
    turned = places.rope_positions[:, world.rope.axes.long()].long()
    cos, sin = (t[turned, torch.arange(8)][:, None] for t in (world.rope.cos, world.rope.sin))
    heads = world.q.view(5, 4, 128)
    first, second = heads[..., :8], heads[..., 8:16]
    expected = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    torch.testing.assert_close(q.view(5, 4, 128)[..., :16], expected)
    assert torch.equal(q.view(5, 4, 128)[..., 16:], heads[..., 16:])


def test_sigmoid_gate() -> None:
    x, gates = torch.randn(3, 4 * 32), torch.randn(3, 200) * 10
    expected = x.double().view(3, 4, 32)
    opened = torch.stack([gates[:, 48 * h : 48 * h + 32] for h in range(4)], dim=1).double()
    expected = (expected * opened.sigmoid()).flatten(1)
    sigmoid_gate(x, gates, head_dim=32, gate_stride=48)
    torch.testing.assert_close(x.double(), expected, rtol=1e-6, atol=1e-7)


def test_gated_rms_norm() -> None:
    x, gate, weight = torch.randn(3, 4 * 32), torch.randn(3, 4 * 32), torch.rand(32)
    heads = x.double().view(3, 4, 32)
    normed = heads * (heads.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight
    expected = normed.flatten(1) * torch.nn.functional.silu(gate.double())
    gated_rms_norm(x, gate, weight, 1e-6, num_heads=4)
    torch.testing.assert_close(x.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1, 15, 200])
def test_silu_mul(size: int) -> None:
    gate_up = torch.randn(7, 2 * size) * 20
    out = torch.empty(7, size)
    silu_mul(gate_up, out)
    gate, up = gate_up.double().chunk(2, 1)
    expected = torch.nn.functional.silu(gate) * up
    torch.testing.assert_close(out.double(), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_embedding_of_floats(dtype: torch.dtype) -> None:
    table = torch.randn(70, 24).to(dtype)
    ids, out = torch.tensor([0, 69, 16, 15], dtype=torch.int32), torch.empty(4, 24)
    embed(ids, pack_float(table), out)
    assert torch.equal(out, table[ids.long()].float())


@pytest.mark.parametrize("ggml_type", [ggml_blocks.Q4_1, ggml_blocks.Q8_0, ggml_blocks.Q4_0])
def test_embedding_of_blocks(ggml_type: int) -> None:
    layout = ggml_blocks.LAYOUTS[ggml_type]
    raw = torch.randint(0, 60, (70, 2 * layout.num_bytes), dtype=torch.uint8)
    packed = pack_gguf(raw, ggml_type)
    ids, out = torch.tensor([0, 69, 16, 15], dtype=torch.int32), torch.empty(4, 64)
    embed(ids, packed, out)
    assert torch.equal(out, packing.dequantise(packed)[ids.long()])


def test_gather_rows() -> None:
    x, out = torch.randn(9, 20), torch.empty(3, 20)
    gather_rows(x, torch.tensor([8, 0, 8], dtype=torch.int32), out)
    assert torch.equal(out, x[[8, 0, 8]])
