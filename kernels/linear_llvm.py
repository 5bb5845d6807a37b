"""The linear kernels in LLVM IR: ``prepare`` readies the input once, ``linear`` multiplies.

Quantised weights: per group of inputs one chain ``t = fma(code[k], x[k], t)`` over k ascending
from 0, then ``acc = fma(fma(-bias, sum(x), t), scale, acc)``, ``acc = fma(sum(x), offset, acc)``.
Small floats: the same chain over the float32 they become, with their power of two in the scale.
Float weights: one chain ``acc = fma(w[k], x[k], acc)``. Then ``+ layer bias``, then ``+ out`` when
accumulating. Blocks of 4, 2 and 1 rows differ only in how many chains run side by side, so a row's
bits do not depend on the others.

A code stays in its place inside its 32-bit word: masking leaves code * 2^s, and ``prepare`` scales
x[k] by 2^-s. Both are exact, and the shift is saved (three instructions a weight and vector).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from llvmlite import ir

from hearth.kernels.emit import F16, F32, I8, I16, I32, VF, VI, Kernel, const, i64
from hearth.kernels.minifloat import MINIFLOATS
from hearth.kernels.packing import LANES, TILES_PER_UNIT, UNIT, WeightFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearth.kernels.minifloat import Minifloat

# (rows, tiles) computed side by side: at least eight chains of 8 lanes keep the multiply-adders
# busy, and the sums of one group fit the 16 vector registers of AVX2.
ROW_BLOCKS = ((4, 1), (2, 2), (1, 4))
X, SUMS, WEIGHTS, BIAS, OUT, ROWS, N, K, OUT_STRIDE, UNITS_PER_CHUNK, UNITS = range(11)
VH = ir.VectorType(F16, LANES)
VI16 = ir.VectorType(I16, LANES)


def emitter(form: WeightFormat, *, has_bias: bool, accumulate: bool) -> Callable[[str], ir.Module]:
    """What ``jit.Compiler.address`` calls for one variant of ``linear``."""
    return lambda name: _LinearKernel(name, form, has_bias, accumulate).emit()


def place_scales(bits: int) -> list[float]:
    """What x[k] is multiplied by for the code's place in its word; the top code is shifted down."""
    per_word = 32 // bits
    return [2.0 ** (-bits * place) for place in range(per_word - 1)] + [1.0]


def emit_prepare(bits: int, group: int) -> Callable[[str], ir.Module]:
    """``prepare``: x [M, K] to scaled x [M, K] and group sums [M, K / group]; a chunk is a row.

    Arguments: x, scaled, sums, K.
    """

    def emit(name: str) -> ir.Module:
        kernel = Kernel(name)
        b = kernel.b
        columns = kernel.integer(3)
        num_groups = b.sdiv(columns, i64(group))
        start = b.mul(kernel.chunk, columns)
        x = kernel.at(kernel.pointer(0, F32), start)
        scaled = kernel.at(kernel.pointer(1, F32), start)
        sums = kernel.at(kernel.pointer(2, F32), b.mul(kernel.chunk, num_groups))
        per_word = 32 // bits
        factors = (place_scales(bits) * LANES)[: LANES // per_word * per_word]
        factor = ir.Constant(VF, [const(F32, value) for value in factors])
        with kernel.loop(num_groups) as index:
            k = b.mul(index, i64(group))
            total = kernel.load_vector(x, k)
            kernel.store_vector(b.fmul(total, factor), scaled, k)
            for step in range(LANES, group, LANES):
                part = kernel.load_vector(x, b.add(k, i64(step)))
                kernel.store_vector(b.fmul(part, factor), scaled, b.add(k, i64(step)))
                total = b.fadd(total, part)
            kernel.store(kernel.sum_lanes(total), sums, index)
        return kernel.finish()

    return emit


class _LinearKernel(Kernel):
    def __init__(self, name: str, form: WeightFormat, has_bias: bool, accumulate: bool) -> None:
        super().__init__(name)
        self.form = form
        self.has_bias = has_bias
        self.accumulate = accumulate
        self.x = self.pointer(X, F32)
        self.sums = self.pointer(SUMS, F32)
        self.weights = self.pointer(WEIGHTS, I8)
        self.bias = self.pointer(BIAS, F32)
        self.out = self.pointer(OUT, F32)
        self.num_rows, self.n, self.k = self.integer(ROWS), self.integer(N), self.integer(K)
        self.out_stride = self.integer(OUT_STRIDE)
        self.num_groups = self.b.sdiv(self.k, i64(form.group))
        self.tile_bytes = self.b.mul(self.num_groups, i64(form.group_bytes))

    def emit(self) -> ir.Module:
        b = self.b
        per_chunk = self.integer(UNITS_PER_CHUNK)
        first = b.mul(self.chunk, per_chunk)
        last = self.minimum(b.add(first, per_chunk), self.integer(UNITS))
        with self.loop(last, start=first) as unit:
            done = i64(0)
            for rows, tiles in ROW_BLOCKS:
                done = self._row_blocks(unit, done, rows, tiles)
        return self.finish()

    def _row_blocks(self, unit: Any, done: Any, rows: int, tiles: int) -> Any:
        """As many blocks of ``rows`` as fit behind row ``done``; returns the rows done then."""
        b = self.b
        left = b.sub(self.num_rows, done)
        stop = b.add(done, b.mul(b.sdiv(left, i64(rows)), i64(rows)))
        with (
            self.loop(stop, start=done, step=rows) as row,
            self.loop(i64(TILES_PER_UNIT), step=tiles) as tile,
        ):
            self._block(unit, row, tile, rows, tiles)
        return stop

    def _block(self, unit: Any, row: Any, tile: Any, rows: int, tiles: int) -> None:
        b = self.b
        first_tile = b.add(b.mul(unit, i64(TILES_PER_UNIT)), tile)
        bases = [
            self.at(self.weights, b.mul(b.add(first_tile, i64(t)), self.tile_bytes))
            for t in range(tiles)
        ]
        inputs = [self.at(self.x, b.mul(b.add(row, i64(r)), self.k)) for r in range(rows)]
        totals = self._zeros(rows, tiles)
        with self.loop(self.num_groups) as group:
            offset = b.mul(group, i64(self.form.group_bytes))
            groups = [self.at(base, offset) for base in bases]
            k = b.mul(group, i64(self.form.group))
            if self.form.float_dtype is not None:
                self._multiply([self._float_row(g) for g in groups], inputs, k, totals)
            else:
                partial = self._zeros(rows, tiles)
                self._codes(groups, inputs, k, partial)
                self._scale(groups, row, group, partial, totals)
        for r in range(rows):
            for t in range(tiles):
                column = b.add(b.mul(unit, i64(UNIT)), b.mul(b.add(tile, i64(t)), i64(LANES)))
                self._write(b.load(totals[r][t]), b.add(row, i64(r)), column)

    def _zeros(self, rows: int, tiles: int) -> list[list[Any]]:
        slots = [[self.variable(VF) for _ in range(tiles)] for _ in range(rows)]
        for slot in (slot for line in slots for slot in line):
            self.b.store(const(VF, 0.0), slot)
        return slots

    # ------------------------------------------------------------------------ inside one group

    def _codes(
        self, groups: Sequence[Any], inputs: Sequence[Any], k: Any, partial: Sequence[Sequence[Any]]
    ) -> None:
        """partial = sum over the group of code * x, one chain each."""
        b, form = self.b, self.form
        per_word = 32 // form.bits
        start = LANES * form.scale_bytes * (2 if form.has_offsets else 1)
        codes = [self._cast(g, start, I32) for g in groups]
        with self.loop(i64(form.group // per_word)) as word:
            at_word = b.mul(word, i64(LANES))
            words = [self.load_vector(code, at_word, VI) for code in codes]
            first = b.add(k, b.mul(word, i64(per_word)))
            for place in range(per_word):
                weights = [self._weight(w, place) for w in words]
                self._multiply(weights, inputs, b.add(first, i64(place)), partial)

    def _weight(self, words: Any, place: int) -> Any:
        if self.form.minifloat is not None:
            return self._small_float(words, place, MINIFLOATS[self.form.minifloat])
        return self.b.sitofp(self._masked(words, place), VF)

    def _small_float(self, words: Any, place: int, small: Minifloat) -> Any:
        """Code ``place`` moved to a float16's place, and widened."""
        b = self.b
        moved = small.bits * place - small.shift
        amount = const(VI, abs(moved))
        shifted = b.lshr(words, amount) if moved > 0 else b.shl(words, amount)
        magnitude = b.and_(shifted, const(VI, small.magnitude_mask))
        sign = b.shl(b.and_(shifted, const(VI, small.sign_bit)), const(VI, small.sign_shift))
        half = b.bitcast(b.trunc(b.or_(magnitude, sign), VI16), VH)
        return b.fpext(half, VF)

    def _masked(self, words: Any, place: int) -> Any:
        """Code ``place`` left where it is; the top one shifted down, for its sign bit's sake."""
        bits = self.form.bits
        if place == 32 // bits - 1:
            return self.b.lshr(words, const(VI, 32 - bits))
        return self.b.and_(words, const(VI, ((1 << bits) - 1) << (bits * place)))

    def _scale(
        self,
        groups: Sequence[Any],
        row: Any,
        group: Any,
        partial: Sequence[Sequence[Any]],
        totals: Sequence[Sequence[Any]],
    ) -> None:
        """Fold the group's sums into the totals."""
        b, form = self.b, self.form
        width = LANES * form.scale_bytes
        scales = [self._scales(g, 0) for g in groups]
        if form.minifloat is not None:
            factor = const(VF, MINIFLOATS[form.minifloat].factor)
            scales = [b.fmul(scale, factor) for scale in scales]
        needs_sum = bool(form.bias) or form.has_offsets
        offsets = [self._scales(g, width) for g in groups] if form.has_offsets else []
        for r in range(len(partial)):
            index = b.add(b.mul(b.add(row, i64(r)), self.num_groups), group)
            total_x = self.splat(self.load(self.sums, index)) if needs_sum else None
            for t in range(len(groups)):
                value = b.load(partial[r][t])
                if form.bias:
                    value = self.fma(const(VF, -float(form.bias)), total_x, value)
                total = self.fma(value, scales[t], b.load(totals[r][t]))
                if form.has_offsets:
                    total = self.fma(total_x, offsets[t], total)
                b.store(total, totals[r][t])

    def _multiply(
        self,
        weights: Sequence[Any],
        inputs: Sequence[Any],
        k: Any,
        sums: Sequence[Sequence[Any]],
    ) -> None:
        for line, source in zip(sums, inputs, strict=True):
            x = self.splat(self.load(source, k))
            for slot, weight in zip(line, weights, strict=True):
                self.b.store(self.fma(weight, x, self.b.load(slot)), slot)

    def _scales(self, group: Any, byte: int) -> Any:
        if not self.form.half_scales:
            return self.load_vector(self._cast(group, byte, F32), i64(0))
        half = self.load_vector(self._cast(group, byte, F16), i64(0), VH)
        return self.b.fpext(half, VF)

    def _float_row(self, group: Any) -> Any:
        b, dtype = self.b, self.form.float_dtype
        if dtype == torch.float32:
            return self.load_vector(self._cast(group, 0, F32), i64(0))
        if dtype == torch.float16:
            half = self.load_vector(self._cast(group, 0, F16), i64(0), VH)
            return b.fpext(half, VF)
        upper = b.zext(self.load_vector(self._cast(group, 0, I16), i64(0), VI16), VI)
        return b.bitcast(b.shl(upper, const(VI, 16)), VF)

    def _cast(self, group: Any, byte: int, kind: ir.Type) -> Any:
        return self.b.bitcast(self.at(group, i64(byte)), kind.as_pointer())

    # -------------------------------------------------------------------------------- epilogue

    def _write(self, value: Any, row: Any, column: Any) -> None:
        b = self.b
        index = b.add(b.mul(row, self.out_stride), column)
        whole = b.icmp_signed("<=", b.add(column, i64(LANES)), self.n)
        with b.if_else(whole) as (then, otherwise):
            with then:
                result = value
                if self.has_bias:
                    result = b.fadd(result, self.load_vector(self.bias, column))
                if self.accumulate:
                    result = b.fadd(result, self.load_vector(self.out, index))
                self.store_vector(result, self.out, index)
            with otherwise:
                spill = self.variable(VF, value)
                lanes = b.bitcast(spill, F32.as_pointer())
                with self.loop(b.sub(self.n, column)) as lane:
                    self._write_lane(lanes, lane, b.add(column, lane), b.add(index, lane))

    def _write_lane(self, lanes: Any, lane: Any, column: Any, place: Any) -> None:
        b = self.b
        one = self.load(lanes, lane)
        if self.has_bias:
            one = b.fadd(one, self.load(self.bias, column))
        if self.accumulate:
            one = b.fadd(one, self.load(self.out, place))
        self.store(one, self.out, place)
