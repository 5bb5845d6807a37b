"""Rotary embedding and the write of keys and values into pages of the attention cache.

A page holds 128 positions of all layers. One layer's part: keys [Hkv, D, 128] (transposed, so that
16 lanes run over positions), then values [Hkv, 128, D]; float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hearth.kernels.graph import KernelLaunch, Thunk, backend, submit

if TYPE_CHECKING:
    from llvmlite import ir

PAGE_TOKENS = 128


@dataclass(frozen=True, slots=True)
class HeadShape:
    """How a row of q, k and v is cut into heads.

    The first ``rotary_dim`` dimensions of a head are rotated, in pairs (i, i + rotary_dim / 2); 0
    means all. ``query_stride``: floats from one head's query to the next; 0 means head_dim.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int = 0
    query_stride: int = 0

    def __post_init__(self) -> None:
        assert self.num_heads % self.num_kv_heads == 0, "query heads share key heads evenly"
        assert self.rotary % 2 == 0, "rotary pairs need an even size"
        assert self.rotary <= self.head_dim <= self.query_step, "pairs and queries fit"

    @property
    def rotary(self) -> int:
        return self.rotary_dim or self.head_dim

    @property
    def query_step(self) -> int:
        return self.query_stride or self.head_dim

    @property
    def page_floats(self) -> int:
        """Floats of one layer's part of a page."""
        return 2 * self.num_kv_heads * self.head_dim * PAGE_TOKENS


@dataclass(frozen=True, slots=True)
class RopeTables:
    """cos, sin float32 [C, rotary / 2]; axes int32 [rotary / 2]: which of a token's three positions
    turns each frequency (zeros for ordinary rotary embedding)."""

    cos: torch.Tensor
    sin: torch.Tensor
    axes: torch.Tensor


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """Where each row of a forward pass stands.

    positions int32 [M]: token position in its request, which is its place in the cache.
    rope_positions int32 [M, 3]: time, height and width; all equal to the position for text.
    row_request int32 [M]: row of ``page_table``, negative for padding. page_table int32 [R, P]:
    page ids of each request.
    """

    positions: torch.Tensor
    rope_positions: torch.Tensor
    row_request: torch.Tensor
    page_table: torch.Tensor


def rope_write(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    places: RowPlaces,
    rope: RopeTables,
    pages: torch.Tensor,
    layer: int,
    shape: HeadShape,
) -> None:
    """Rotate q [M, Hq * query step] in place; rotate k, write k and v [M, Hkv * D] to their pages.

    q, k and v may be column slices of one tensor. pages: [num_pages, L, page_floats]. Rows of
    padding are left alone.
    """
    if backend() == "reference":
        submit(Thunk(lambda: _reference(q, k, v, places, rope, pages, layer, shape)))
        return
    from hearth.kernels import jit

    address = jit.compiler().address("rope_write", _emit)
    row_tensors = (places.positions, places.row_request, places.page_table)
    tensors = (q, k, v, *row_tensors, rope.cos, rope.sin, pages, places.rope_positions, rope.axes)
    arguments = (
        *(tensor.data_ptr() for tensor in tensors[:8]),
        pages[:, layer].data_ptr(),
        q.stride(0),
        k.stride(0),
        v.stride(0),
        places.page_table.stride(0),
        pages.stride(0),
        shape.num_heads,
        shape.num_kv_heads,
        shape.head_dim,
        shape.rotary,
        shape.query_step,
        places.rope_positions.data_ptr(),
        rope.axes.data_ptr(),
    )
    submit(KernelLaunch(address, arguments, q.shape[0], tensors))


def _reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    places: RowPlaces,
    rope: RopeTables,
    pages: torch.Tensor,
    layer: int,
    shape: HeadShape,
) -> None:
    pairs = torch.arange(shape.rotary // 2)
    for row in range(q.shape[0]):
        request, position = int(places.row_request[row]), int(places.positions[row])
        if request < 0:
            continue
        turned = places.rope_positions[row][rope.axes.long()].long()
        cos, sin = rope.cos[turned, pairs], rope.sin[turned, pairs]
        q[row] = _rotated(q[row].clone(), cos, sin, shape.query_step)
        key = _rotated(k[row].clone(), cos, sin, shape.head_dim)
        page = pages[int(places.page_table[request, position // PAGE_TOKENS]), layer]
        keys, values = page_views(page, shape)
        keys[:, :, position % PAGE_TOKENS] = key.view(shape.num_kv_heads, -1)
        values[:, position % PAGE_TOKENS] = v[row].view(shape.num_kv_heads, -1)


def _rotated(row: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, step: int) -> torch.Tensor:
    """The first dimensions of every ``step`` floats turned, the others as they are."""
    half = cos.shape[0]
    turned = row.view(-1, step).clone()
    first, second = turned[:, :half].clone(), turned[:, half : 2 * half].clone()
    turned[:, :half] = first * cos - second * sin
    turned[:, half : 2 * half] = second * cos + first * sin
    return turned.flatten()


def page_views(page: torch.Tensor, shape: HeadShape) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys [Hkv, D, 128] and values [Hkv, 128, D] of one layer's part of a page, as views."""
    half = shape.page_floats // 2
    keys = page[:half].view(shape.num_kv_heads, shape.head_dim, PAGE_TOKENS)
    values = page[half:].view(shape.num_kv_heads, PAGE_TOKENS, shape.head_dim)
    return keys, values


def _emit(name: str) -> ir.Module:
    """A chunk is a row."""
    from hearth.kernels.emit import F32, I32, I64, Kernel, i64

    kernel = Kernel(name)
    b = kernel.b
    row = kernel.chunk
    request = b.sext(kernel.load(kernel.pointer(4, I32), row), I64)
    with b.if_then(b.icmp_signed(">=", request, i64(0))):
        position = b.sext(kernel.load(kernel.pointer(3, I32), row), I64)
        heads, kv_heads, size = kernel.integer(14), kernel.integer(15), kernel.integer(16)
        rotary, query_step = kernel.integer(17), kernel.integer(18)
        half = b.sdiv(rotary, i64(2))
        cos, sin = kernel.pointer(6, F32), kernel.pointer(7, F32)
        turns = kernel.at(kernel.pointer(19, I32), b.mul(row, i64(3)))
        axes = kernel.pointer(20, I32)
        table = kernel.at(kernel.pointer(5, I32), b.mul(request, kernel.integer(12)))
        page = b.sext(kernel.load(table, b.sdiv(position, i64(PAGE_TOKENS))), I64)
        slot = b.srem(position, i64(PAGE_TOKENS))
        keys = kernel.at(kernel.pointer(8, F32), b.mul(page, kernel.integer(13)))
        values = kernel.at(keys, b.mul(b.mul(kv_heads, size), i64(PAGE_TOKENS)))
        q_row = kernel.at(kernel.pointer(0, F32), b.mul(row, kernel.integer(9)))
        k_row = kernel.at(kernel.pointer(1, F32), b.mul(row, kernel.integer(10)))
        v_row = kernel.at(kernel.pointer(2, F32), b.mul(row, kernel.integer(11)))

        def rotate(source: object, index: object) -> tuple[object, object, object]:
            """The turned pair ``index`` of the head at ``source``, and where its partner is."""
            partner = b.add(index, half)
            first, second = kernel.load(source, index), kernel.load(source, partner)
            turn = b.sext(kernel.load(turns, kernel.load(axes, index)), I64)
            angle = b.add(b.mul(turn, half), index)
            c, s = kernel.load(cos, angle), kernel.load(sin, angle)
            turned = b.fsub(b.fmul(first, c), b.fmul(second, s))
            return turned, b.fadd(b.fmul(second, c), b.fmul(first, s)), partner

        with kernel.loop(heads) as head, kernel.loop(half) as index:
            source = kernel.at(q_row, b.mul(head, query_step))
            first, second, partner = rotate(source, index)
            kernel.store(first, source, index)
            kernel.store(second, source, partner)
        with kernel.loop(kv_heads) as head:
            source = kernel.at(k_row, b.mul(head, size))
            with kernel.loop(half) as index:
                first, second, partner = rotate(source, index)
                for value, dim in ((first, index), (second, partner)):
                    at_dim = b.mul(b.add(b.mul(head, size), dim), i64(PAGE_TOKENS))
                    kernel.store(value, keys, b.add(at_dim, slot))
            with kernel.loop(size, start=rotary) as dim:
                at_dim = b.mul(b.add(b.mul(head, size), dim), i64(PAGE_TOKENS))
                kernel.store(kernel.load(source, dim), keys, b.add(at_dim, slot))
            target = kernel.at(values, b.mul(b.add(b.mul(head, i64(PAGE_TOKENS)), slot), size))
            with kernel.loop(size) as dim:
                kernel.store(kernel.load(v_row, b.add(b.mul(head, size), dim)), target, dim)
    return kernel.finish()
