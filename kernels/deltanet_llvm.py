"""Gated DeltaNet's kernels in LLVM IR.

``recurrent`` keeps a tile of the state [Dk, 32 value lanes] in the first-level cache and walks rows
over it. Value lanes never meet; sums over Dk are one chain each, ascending. So a row's bits depend
on nothing but the rows before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

from hearth.kernels.emit import F16, F32, I32, I64, LANES, VF, Kernel, const, i64
from hearth.kernels.segments import (
    FIRST_ROW,
    NUM_REPLAYED,
    NUM_ROWS,
    SegmentReader,
)

if TYPE_CHECKING:
    from collections.abc import Callable

L2_EPS = 1e-6
VH = ir.VectorType(F16, LANES)


# ----------------------------------------------------------------------------------------- prepare

QKV, B, A, DECAY, DT_BIAS, TABLE, ROW_SEGMENT, KEYS_VALUES, GATES, OUT_GATES = range(10)
B_STRIDE, A_STRIDE, KV_SIDE, KV_SLOT, GATE_SIDE, GATE_SLOT = range(10, 16)
KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_SIZE, QUERY_SCALE = range(16, 21)


def emit_prepare(name: str) -> ir.Module:
    """A chunk is a row."""
    kernel = Kernel(name)
    b, row = kernel.b, kernel.chunk
    key_heads, heads = kernel.integer(KEY_HEADS), kernel.integer(VALUE_HEADS)
    key_dim = kernel.integer(KEY_DIM)
    keys = b.mul(key_heads, key_dim)
    kept = b.add(keys, kernel.integer(VALUE_SIZE))  # k and v of a row
    q = kernel.at(kernel.pointer(QKV, F32), b.mul(row, b.add(keys, kept)))
    k = kernel.at(q, keys)
    with kernel.loop(key_heads) as head:
        start = b.mul(head, key_dim)
        _to_unit_length(kernel, kernel.at(q, start), key_dim, kernel.real(QUERY_SCALE))
        _to_unit_length(kernel, kernel.at(k, start), key_dim, None)
    gates = kernel.at(kernel.pointer(OUT_GATES, F32), b.mul(row, b.mul(heads, i64(2))))
    _gates(kernel, row, heads, gates)
    index = b.sext(kernel.load(kernel.pointer(ROW_SEGMENT, I32), row), I64)
    with b.if_then(b.icmp_signed(">=", index, i64(0))):
        segment = SegmentReader(kernel, kernel.pointer(TABLE, I32), index)
        with b.if_then(b.not_(segment.commits())):
            place = b.sub(row, segment.field(FIRST_ROW))
            _to_window(kernel, segment, (KEYS_VALUES, KV_SIDE, KV_SLOT), place, k, kept)
            size = b.mul(heads, i64(2))
            _to_window(kernel, segment, (GATES, GATE_SIDE, GATE_SLOT), place, gates, size)
    return kernel.finish()


def _to_unit_length(kernel: Kernel, head: Any, size: Any, scale: Any | None) -> None:
    """x / sqrt(sum x² + eps), then times ``scale``."""
    b = kernel.b
    lanes = kernel.variable(VF)
    b.store(const(VF, 0.0), lanes)
    with kernel.loop(size, step=LANES) as index:
        value = kernel.load_vector(head, index)
        b.store(kernel.fma(value, value, b.load(lanes)), lanes)
    total = b.fadd(kernel.sum_lanes(b.load(lanes)), const(F32, L2_EPS))
    inverse = b.fdiv(const(F32, 1.0), kernel.intrinsic("sqrt", F32, [total]))
    with kernel.loop(size, step=LANES) as index:
        value = b.fmul(kernel.load_vector(head, index), kernel.splat(inverse))
        if scale is not None:
            value = b.fmul(value, kernel.splat(scale))
        kernel.store_vector(value, head, index)


def _gates(kernel: Kernel, row: Any, heads: Any, gates: Any) -> None:
    b = kernel.b
    of_b = kernel.at(kernel.pointer(B, F32), b.mul(row, kernel.integer(B_STRIDE)))
    of_a = kernel.at(kernel.pointer(A, F32), b.mul(row, kernel.integer(A_STRIDE)))
    decay, bias = kernel.pointer(DECAY, F32), kernel.pointer(DT_BIAS, F32)
    with kernel.loop(heads) as head:
        step = kernel.softplus(b.fadd(kernel.load(of_a, head), kernel.load(bias, head)))
        kernel.store(kernel.exp(b.fmul(kernel.load(decay, head), step)), gates, head)
        beta = kernel.sigmoid(kernel.load(of_b, head))
        kernel.store(beta, gates, b.add(heads, head))


def _to_window(
    kernel: Kernel,
    segment: SegmentReader,
    places: tuple[int, int, int],
    row: Any,
    source: Any,
    size: Any,
) -> None:
    base, side, slot = places
    strides = kernel.integer(side), kernel.integer(slot)
    window = segment.at(kernel.pointer(base, F32), *strides, written=True)
    target = kernel.at(window, kernel.b.mul(row, size))
    with kernel.loop(size) as index:
        kernel.store(kernel.load(source, index), target, index)


# --------------------------------------------------------------------------------------- recurrent

R_QKV, R_GATES, R_TABLE, R_KEY_HEADS, R_STATE, R_KV, R_WINDOW_GATES, R_OUT = range(8)
STATE_SIDE, STATE_SLOT, R_KV_SIDE, R_KV_SLOT, R_GATE_SIDE, R_GATE_SLOT = range(8, 14)
R_HEADS, R_VALUE_DIM, R_KEY_SIZE = range(14, 17)


def recurrent_emitter(key_dim: int, tile: int, *, is_half: bool) -> Callable[[str], ir.Module]:
    """A chunk is (segment, value head, tile)."""
    return lambda name: _Recurrent(name, key_dim, tile, is_half).emit()


class _Recurrent(Kernel):
    def __init__(self, name: str, key_dim: int, tile: int, is_half: bool) -> None:
        super().__init__(name)
        b = self.b
        self.key_dim, self.tile, self.is_half = key_dim, tile, is_half
        self.heads, self.value_dim = self.integer(R_HEADS), self.integer(R_VALUE_DIM)
        self.key_size = self.integer(R_KEY_SIZE)
        per_head = b.sdiv(self.value_dim, i64(tile))
        tile_index = b.srem(self.chunk, per_head)
        rest = b.sdiv(self.chunk, per_head)
        self.head = b.srem(rest, self.heads)
        self.lane = b.mul(tile_index, i64(tile))
        self.segment = SegmentReader(self, self.pointer(R_TABLE, I32), b.sdiv(rest, self.heads))
        key_head = b.sext(self.load(self.pointer(R_KEY_HEADS, I32), self.head), I64)
        self.key_at = b.mul(key_head, i64(key_dim))
        self.value_at = b.add(b.mul(self.head, self.value_dim), self.lane)
        self.tile_at = b.add(b.mul(self.head, per_head), tile_index)
        self.state = self.array(F32, key_dim * tile)

    def emit(self) -> ir.Module:
        b, segment = self.b, self.segment
        with b.if_then(segment.is_live()):
            self._load()
            kv, gates = self._window(R_KV, R_KV_SIDE), self._window(R_WINDOW_GATES, R_GATE_SIDE)
            kept = b.add(self.key_size, b.mul(self.heads, self.value_dim))
            num_gates = b.mul(self.heads, i64(2))
            with self.loop(segment.field(NUM_REPLAYED)) as row:
                window_row = self.at(kv, b.mul(row, kept))
                self._step(window_row, self.at(gates, b.mul(row, num_gates)), None, None)
            with b.if_then(b.not_(segment.commits())):
                self._store()
            first = segment.field(FIRST_ROW)
            last = b.add(first, segment.field(NUM_ROWS))
            width = b.add(kept, self.key_size)
            with self.loop(last, start=first) as row:
                q = self.at(self.pointer(R_QKV, F32), b.mul(row, width))
                row_gates = self.at(self.pointer(R_GATES, F32), b.mul(row, num_gates))
                out = self.at(
                    self.pointer(R_OUT, F32), b.mul(row, b.mul(self.heads, self.value_dim))
                )
                self._step(self.at(q, self.key_size), row_gates, q, out)
            with b.if_then(segment.commits()):
                self._store()
        return self.finish()

    def _window(self, base: int, side: int) -> Any:
        strides = self.integer(side), self.integer(side + 1)
        return self.segment.at(self.pointer(base, F32), *strides, written=False)

    # --------------------------------------------------------------------------- the state's tile

    def _place(self, *, written: bool) -> Any:
        """This head's tile of the stored state."""
        b, kind = self.b, F16 if self.is_half else F32
        strides = self.integer(STATE_SIDE), self.integer(STATE_SLOT)
        base = self.segment.at(self.pointer(R_STATE, kind), *strides, written=written)
        return self.at(base, b.mul(self.tile_at, i64(self.key_dim * self.tile)))

    def _load(self) -> None:
        source = self._place(written=False)
        with self.loop(i64(self.key_dim * self.tile), step=LANES) as at:
            value = self.load_vector(source, at, VH if self.is_half else VF)
            if self.is_half:
                value = self.b.fpext(value, VF)
            self.store_vector(value, self.state, at)

    def _store(self) -> None:
        target = self._place(written=True)
        with self.loop(i64(self.key_dim * self.tile), step=LANES) as at:
            value = self.load_vector(self.state, at)
            if self.is_half:
                value = self.b.fptrunc(value, VH)
            self.store_vector(value, target, at)

    def _tile_at(self, key: Any, lane: Any) -> Any:
        return self.b.add(self.b.mul(key, i64(self.tile)), lane)

    # ----------------------------------------------------------------------------------- one row

    def _step(self, key_values: Any, gates: Any, q: Any | None, out: Any | None) -> None:
        b = self.b
        decay = self.splat(self.load(gates, self.head))
        beta = self.splat(self.load(gates, b.add(self.heads, self.head)))
        k = self.at(key_values, self.key_at)
        v = self.at(key_values, b.add(self.key_size, self.value_at))
        vectors = range(0, self.tile, LANES)
        read = self._zeros()
        with self.loop(i64(self.key_dim)) as key:
            factor = self.splat(self.load(k, key))
            for slot, lane in zip(read, vectors, strict=True):
                at = self._tile_at(key, i64(lane))
                value = b.fmul(self.load_vector(self.state, at), decay)
                self.store_vector(value, self.state, at)
                b.store(self.fma(value, factor, b.load(slot)), slot)
        deltas = [
            b.fmul(beta, b.fsub(self.load_vector(v, i64(lane)), b.load(slot)))
            for slot, lane in zip(read, vectors, strict=True)
        ]
        sums = self._zeros()
        with self.loop(i64(self.key_dim)) as key:
            factor = self.splat(self.load(k, key))
            query = None if q is None else self.splat(self.load(q, b.add(self.key_at, key)))
            for slot, lane, delta in zip(sums, vectors, deltas, strict=True):
                at = self._tile_at(key, i64(lane))
                value = self.fma(factor, delta, self.load_vector(self.state, at))
                if self.is_half:
                    value = b.fpext(b.fptrunc(value, VH), VF)
                self.store_vector(value, self.state, at)
                if query is not None:
                    b.store(self.fma(value, query, b.load(slot)), slot)
        if out is not None:
            for slot, lane in zip(sums, vectors, strict=True):
                self.store_vector(b.load(slot), out, b.add(self.value_at, i64(lane)))

    def _zeros(self) -> list[Any]:
        slots = [self.variable(VF) for _ in range(0, self.tile, LANES)]
        for slot in slots:
            self.b.store(const(VF, 0.0), slot)
        return slots
