"""Rotary embedding and the write of keys and values into pages of the attention cache.

A page holds 128 positions of all layers. One layer's part: keys [Hkv, D, 128] (transposed, so that
16 lanes run over positions), then values [Hkv, 128, D]; float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.kernels.graph import KernelLaunch, Thunk, backend, submit

if TYPE_CHECKING:
    import torch
    from llvmlite import ir

PAGE_TOKENS = 128


@dataclass(frozen=True, slots=True)
class HeadShape:
    """How a row of q, k and v is cut into heads; rotary pairs are (i, i + head_dim / 2)."""

    num_heads: int
    num_kv_heads: int
    head_dim: int

    def __post_init__(self) -> None:
        assert self.num_heads % self.num_kv_heads == 0, "query heads share key heads evenly"
        assert self.head_dim % 2 == 0, "rotary pairs need an even head size"

    @property
    def page_floats(self) -> int:
        """Floats of one layer's part of a page."""
        return 2 * self.num_kv_heads * self.head_dim * PAGE_TOKENS


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """Where each row of a forward pass stands.

    positions int32 [M]: token position in its request. row_request int32 [M]: row of
    ``page_table``, negative for padding. page_table int32 [R, P]: page ids of each request.
    """

    positions: torch.Tensor
    row_request: torch.Tensor
    page_table: torch.Tensor


def rope_write(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    places: RowPlaces,
    cos: torch.Tensor,
    sin: torch.Tensor,
    pages: torch.Tensor,
    layer: int,
    shape: HeadShape,
) -> None:
    """Rotate q [M, Hq * D] in place; rotate k and write k and v [M, Hkv * D] to their pages.

    q, k and v may be column slices of one tensor. cos, sin: [C, D / 2]. pages: [num_pages, L,
    page_floats]. Rows of padding are left alone.
    """
    if backend() == "reference":
        submit(Thunk(lambda: _reference(q, k, v, places, cos, sin, pages, layer, shape)))
        return
    from hearth.kernels import jit

    address = jit.compiler().address("rope_write", _emit)
    tensors = (q, k, v, places.positions, places.row_request, places.page_table, cos, sin, pages)
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
    )
    submit(KernelLaunch(address, arguments, q.shape[0], tensors))


def _reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    places: RowPlaces,
    cos: torch.Tensor,
    sin: torch.Tensor,
    pages: torch.Tensor,
    layer: int,
    shape: HeadShape,
) -> None:
    for row in range(q.shape[0]):
        request, position = int(places.row_request[row]), int(places.positions[row])
        if request < 0:
            continue
        q[row] = _rotated(q[row].clone(), cos[position], sin[position], shape.head_dim)
        key = _rotated(k[row].clone(), cos[position], sin[position], shape.head_dim)
        page = pages[int(places.page_table[request, position // PAGE_TOKENS]), layer]
        keys, values = page_views(page, shape)
        keys[:, :, position % PAGE_TOKENS] = key.view(shape.num_kv_heads, -1)
        values[:, position % PAGE_TOKENS] = v[row].view(shape.num_kv_heads, -1)


def _rotated(
    row: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, head_dim: int
) -> torch.Tensor:
    heads = row.view(-1, head_dim)
    first, second = heads.chunk(2, dim=1)
    turned = heads.new_empty(heads.shape)
    turned[:, : head_dim // 2] = first * cos - second * sin
    turned[:, head_dim // 2 :] = second * cos + first * sin
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
        half = b.sdiv(size, i64(2))
        cos = kernel.at(kernel.pointer(6, F32), b.mul(position, half))
        sin = kernel.at(kernel.pointer(7, F32), b.mul(position, half))
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
            c, s = kernel.load(cos, index), kernel.load(sin, index)
            turned = b.fsub(b.fmul(first, c), b.fmul(second, s))
            return turned, b.fadd(b.fmul(second, c), b.fmul(first, s)), partner

        with kernel.loop(heads) as head, kernel.loop(half) as index:
            source = kernel.at(q_row, b.mul(head, size))
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
            target = kernel.at(values, b.mul(b.add(b.mul(head, i64(PAGE_TOKENS)), slot), size))
            with kernel.loop(size) as dim:
                kernel.store(kernel.load(v_row, b.add(b.mul(head, size), dim)), target, dim)
    return kernel.finish()
