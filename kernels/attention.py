"""Causal attention over paged keys and values; one fixed order for every number of rows.

Each (row, head) walks its pages in ascending order. Inside a page: 128 scores (a chain over the
head's dimensions each), their maximum, exp, the sum (16 lanes, folded at the end), and a chain over
positions for each output dimension. Pages are merged by the online softmax (Milakov and
Gimelshein, 2018) in the same order always.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearth.kernels.graph import KernelLaunch, Thunk, backend, submit
from hearth.kernels.kv import PAGE_TOKENS, HeadShape, RowPlaces, page_views

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from llvmlite import ir

DIMS_AT_ONCE = 64  # four 16-lane chains a pass keep the multiply-adders busy
GROUPS_AT_ONCE = 4  # 64 positions a pass, for the same reason


def paged_attention(
    q: torch.Tensor,
    places: RowPlaces,
    pages: torch.Tensor,
    layer: int,
    scale: float,
    out: torch.Tensor,
    shape: HeadShape,
    *,
    first: int = 0,
) -> None:
    """out [M, Hq * D]: row m attends to positions first..positions[m] of its request, inclusive;
    ``first`` is 0, or 1 where nothing is kept for the beginning. Rows before it become zero.

    q [M, Hq * query step] may be a column slice; pages [num_pages, L, page_floats]; float32. Rows
    of padding (negative request) become zero.
    """
    if backend() == "reference":
        submit(Thunk(lambda: _reference(q, places, pages, layer, scale, out, shape, first)))
        return
    from hearth.kernels import jit
    from hearth.kernels.graph import float_bits

    assert first in (0, 1), "at most the first position is left out"

    assert shape.head_dim % 16 == 0, f"head size {shape.head_dim} is not a multiple of 16"
    name = f"attention_{shape.head_dim}_from_{first}"
    address = jit.compiler().address(name, _emitter(shape.head_dim, first))
    arguments = (
        q.data_ptr(),
        places.positions.data_ptr(),
        places.row_request.data_ptr(),
        places.page_table.data_ptr(),
        pages[:, layer].data_ptr(),
        out.data_ptr(),
        float_bits(scale),
        q.stride(0),
        out.stride(0),
        places.page_table.stride(0),
        pages.stride(0),
        q.shape[0],
        shape.num_heads // shape.num_kv_heads,
        shape.num_kv_heads,
        shape.query_step,
    )
    tensors = (q, places.positions, places.row_request, places.page_table, pages, out)
    submit(KernelLaunch(address, arguments, q.shape[0] * shape.num_heads, tensors))


def _reference(
    q: torch.Tensor,
    places: RowPlaces,
    pages: torch.Tensor,
    layer: int,
    scale: float,
    out: torch.Tensor,
    shape: HeadShape,
    first: int,
) -> None:
    import torch

    for row in range(q.shape[0]):
        request, position = int(places.row_request[row]), int(places.positions[row])
        if request < 0 or position < first:
            out[row] = 0.0
            continue
        count = position + 1
        ids = places.page_table[request, : -(-count // PAGE_TOKENS)]
        views = [page_views(pages[int(page), layer], shape) for page in ids]
        keys = torch.cat([key for key, _ in views], dim=2)[:, :, first:count]
        values = torch.cat([value for _, value in views], dim=1)[:, first:count]
        queries = q[row].view(shape.num_heads, shape.query_step)[:, : shape.head_dim]
        heads = queries.reshape(shape.num_kv_heads, -1, shape.head_dim)
        weights = torch.softmax(heads @ keys * scale, dim=-1)
        out[row] = (weights @ values).flatten()


def _emitter(head_dim: int, first: int) -> Callable[[str], ir.Module]:
    return lambda name: _emit(name, head_dim, first)


def _emit(name: str, head_dim: int, first: int) -> ir.Module:
    """A chunk is (head, row), heads outermost: neighbours read the same keys."""
    from hearth.kernels.emit import F32, I32, I64, VF, Kernel, const, i64

    kernel = Kernel(name)
    b = kernel.b
    num_rows, group, kv_heads = (kernel.integer(slot) for slot in (11, 12, 13))
    row, head = b.srem(kernel.chunk, num_rows), b.sdiv(kernel.chunk, num_rows)
    kv_head = b.sdiv(head, group)
    column = b.mul(head, i64(head_dim))
    query = b.mul(head, kernel.integer(14))
    q = kernel.at(kernel.pointer(0, F32), b.add(b.mul(row, kernel.integer(7)), query))
    out = kernel.at(kernel.pointer(5, F32), b.add(b.mul(row, kernel.integer(8)), column))
    request = b.sext(kernel.load(kernel.pointer(2, I32), row), I64)
    position = b.sext(kernel.load(kernel.pointer(1, I32), row), I64)
    live = b.icmp_signed(">=", request, i64(0))
    if first:
        live = b.and_(live, b.icmp_signed(">=", position, i64(first)))
    count = b.select(live, b.add(position, i64(1)), i64(0))
    table = kernel.at(kernel.pointer(3, I32), b.mul(request, kernel.integer(9)))
    head_floats = i64(head_dim * PAGE_TOKENS)
    scores = kernel.array(F32, PAGE_TOKENS)
    sums = kernel.array(F32, head_dim)
    for dim in range(0, head_dim, 16):
        kernel.store_vector(const(VF, 0.0), sums, i64(dim))
    maximum = kernel.variable(F32, const(F32, float("-inf")))
    total = kernel.variable(F32, const(F32, 0.0))
    last_page = b.sdiv(b.add(count, i64(PAGE_TOKENS - 1)), i64(PAGE_TOKENS))
    with kernel.loop(last_page) as page:
        page_id = b.sext(kernel.load(table, page), I64)
        base = kernel.at(kernel.pointer(4, F32), b.mul(page_id, kernel.integer(10)))
        keys = kernel.at(base, b.mul(kv_head, head_floats))
        values = kernel.at(base, b.mul(b.add(kv_heads, kv_head), head_floats))
        left = b.sub(count, b.mul(page, i64(PAGE_TOKENS)))
        filled = kernel.minimum(left, i64(PAGE_TOKENS))
        best = _scores(kernel, q, keys, filled, scores, kernel.real(6), head_dim)
        if first:  # the first page is merged without its first position
            best = _without_first(kernel, page, filled, scores, best)
        _merge(kernel, values, filled, scores, best, (maximum, total, sums), head_dim)
    inverse = b.select(live, b.fdiv(const(F32, 1.0), b.load(total)), const(F32, 0.0))
    for dim in range(0, head_dim, 16):
        value = b.fmul(kernel.load_vector(sums, i64(dim)), kernel.splat(inverse))
        kernel.store_vector(value, out, i64(dim))
    return kernel.finish()


def _scores(
    kernel: Any, q: Any, keys: Any, filled: Any, scores: Any, scale: Any, head_dim: int
) -> Any:
    """Scaled scores of the page's filled positions, -inf behind them; returns the maximum."""
    from llvmlite import ir

    from hearth.kernels.emit import VF, VI, const, i64

    b = kernel.b
    best = kernel.variable(VF)
    b.store(const(VF, float("-inf")), best)
    lanes = ir.Constant(VI, list(range(16)))
    filled_lanes = kernel.splat(b.trunc(filled, VI.element))
    step = 16 * GROUPS_AT_ONCE
    with kernel.loop(filled, step=step) as start:
        slots = [kernel.variable(VF) for _ in range(GROUPS_AT_ONCE)]
        for slot in slots:
            b.store(const(VF, 0.0), slot)
        with kernel.loop(i64(head_dim)) as dim:
            query = kernel.splat(kernel.load(q, dim))
            line = b.add(b.mul(dim, i64(PAGE_TOKENS)), start)
            for part, slot in enumerate(slots):
                key = kernel.load_vector(keys, b.add(line, i64(16 * part)))
                b.store(kernel.fma(query, key, b.load(slot)), slot)
        for part, slot in enumerate(slots):
            at = b.add(start, i64(16 * part))
            index = b.add(lanes, kernel.splat(b.trunc(at, VI.element)))
            score = b.fmul(b.load(slot), kernel.splat(scale))
            inside = b.icmp_signed("<", index, filled_lanes)
            score = b.select(inside, score, const(VF, float("-inf")))
            kernel.store_vector(score, scores, at)
            b.store(kernel.maximum(score, b.load(best)), best)
    return kernel.max_lanes(b.load(best))


def _without_first(kernel: Any, page: Any, filled: Any, scores: Any, best: Any) -> Any:
    """Take position 0 of page 0 out of its scores; returns the maximum of the others."""
    from hearth.kernels.emit import F32, VF, const, i64

    b = kernel.b
    lowest = const(F32, float("-inf"))
    is_first = b.icmp_signed("==", page, i64(0))
    kernel.store(b.select(is_first, lowest, kernel.load(scores, i64(0))), scores, i64(0))
    others = kernel.variable(VF)
    b.store(const(VF, float("-inf")), others)
    with kernel.loop(filled, step=16) as at:
        b.store(kernel.maximum(kernel.load_vector(scores, at), b.load(others)), others)
    return b.select(is_first, kernel.max_lanes(b.load(others)), best)


def _merge(
    kernel: Any,
    values: Any,
    filled: Any,
    scores: Any,
    best: Any,
    state: tuple[Any, Any, Any],
    head_dim: int,
) -> None:
    """exp of the scores, their sum, the weighted values; folded into (maximum, total, sums)."""
    from hearth.kernels.emit import F32, VF, const, i64

    b = kernel.b
    maximum, total, sums = state
    lane_sums = kernel.variable(VF)
    b.store(const(VF, 0.0), lane_sums)
    with kernel.loop(filled, step=16) as at:
        score = kernel.load_vector(scores, at)
        weight = kernel.exp(b.fsub(score, kernel.splat(best)))
        inside = b.fcmp_ordered(">", score, const(VF, float("-inf")))
        weight = b.select(inside, weight, const(VF, 0.0))
        kernel.store_vector(weight, scores, at)
        b.store(b.fadd(b.load(lane_sums), weight), lane_sums)
    before = b.load(maximum)
    highest = kernel.maximum(best, before)
    keep = b.select(
        b.fcmp_ordered("==", before, const(F32, float("-inf"))),
        const(F32, 0.0),
        kernel.exp(b.fsub(before, highest)),
    )
    fresh = kernel.exp(b.fsub(best, highest))
    page_total = kernel.sum_lanes(b.load(lane_sums))
    b.store(kernel.fma(page_total, fresh, b.fmul(b.load(total), keep)), total)
    b.store(highest, maximum)
    for first in range(0, head_dim, DIMS_AT_ONCE):
        dims = range(first, min(first + DIMS_AT_ONCE, head_dim), 16)
        slots = [kernel.variable(VF) for _ in dims]
        for slot in slots:
            b.store(const(VF, 0.0), slot)
        with kernel.loop(filled) as at:
            weight = kernel.splat(kernel.load(scores, at))
            line = b.mul(at, i64(head_dim))
            for slot, dim in zip(slots, dims, strict=True):
                value = kernel.load_vector(values, b.add(line, i64(dim)))
                b.store(kernel.fma(weight, value, b.load(slot)), slot)
        for slot, dim in zip(slots, dims, strict=True):
            old = b.fmul(kernel.load_vector(sums, i64(dim)), kernel.splat(keep))
            new = kernel.fma(b.load(slot), kernel.splat(fresh), old)
            kernel.store_vector(new, sums, i64(dim))
