"""Building blocks for kernels in LLVM IR: loops, 16-lane vectors, exp.

Floating point is exact by construction: no fast-math flags, fused multiply-adds are explicit, and
reductions are written out. LLVM may then vectorise and unroll but not change a bit.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from llvmlite import ir

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LANES = 16
I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
VOID = ir.VoidType()
VF = ir.VectorType(F32, LANES)
VI = ir.VectorType(I32, LANES)


class Kernel:
    """One kernel function under construction: module, builder, typed access to arguments."""

    def __init__(self, name: str) -> None:
        self.module = ir.Module(name=name)
        kind = ir.FunctionType(VOID, [I64.as_pointer(), I64])
        self.function = ir.Function(self.module, kind, name=name)
        self._arguments, self.chunk = self.function.args
        self.b = ir.IRBuilder(self.function.append_basic_block("entry"))

    def finish(self) -> ir.Module:
        self.b.ret_void()
        return self.module

    # ------------------------------------------------------------------------------ arguments

    def integer(self, slot: int) -> ir.Value:
        return self.b.load(self.b.gep(self._arguments, [i64(slot)]))

    def pointer(self, slot: int, kind: ir.Type) -> ir.Value:
        return self.b.inttoptr(self.integer(slot), kind.as_pointer())

    def real(self, slot: int) -> ir.Value:
        """A float32 that was stored as the bits of a double."""
        return self.b.fptrunc(self.b.bitcast(self.integer(slot), F64), F32)

    # ---------------------------------------------------------------------------------- memory

    def at(self, base: ir.Value, index: ir.Value) -> ir.Value:
        return self.b.gep(base, [index])

    def load(self, base: ir.Value, index: ir.Value) -> ir.Value:
        return self.b.load(self.at(base, index))

    def store(self, value: ir.Value, base: ir.Value, index: ir.Value) -> None:
        self.b.store(value, self.at(base, index))

    def load_vector(self, base: ir.Value, index: ir.Value, kind: ir.Type = VF) -> ir.Value:
        """16 elements from ``base[index]`` on, no alignment assumed."""
        address = self.b.bitcast(self.at(base, index), kind.as_pointer())
        return self.b.load(address, align=1)

    def store_vector(self, value: ir.Value, base: ir.Value, index: ir.Value) -> None:
        address = self.b.bitcast(self.at(base, index), value.type.as_pointer())
        self.b.store(value, address, align=1)

    def variable(self, kind: ir.Type, value: ir.Value | None = None) -> ir.Value:
        """A stack slot in the entry block (which optimisation turns into a register)."""
        with self.b.goto_entry_block():
            slot = self.b.alloca(kind)
        if value is not None:
            self.b.store(value, slot)
        return slot

    def array(self, kind: ir.Type, length: int) -> ir.Value:
        with self.b.goto_entry_block():
            slot = self.b.alloca(kind, size=ir.Constant(I32, length))
            slot.align = 64
        return slot

    # ----------------------------------------------------------------------------- control flow

    @contextmanager
    def loop(
        self, stop: ir.Value, *, start: ir.Value | None = None, step: int = 1
    ) -> Iterator[Any]:
        """``for index in range(start, stop, step)`` over signed 64-bit integers."""
        b = self.b
        first = start if start is not None else i64(0)
        before = b.block
        head = self.function.append_basic_block("head")
        body = self.function.append_basic_block("body")
        after = self.function.append_basic_block("after")
        b.branch(head)
        b.position_at_end(head)
        index = b.phi(I64)
        index.add_incoming(first, before)
        b.cbranch(b.icmp_signed("<", index, stop), body, after)
        b.position_at_end(body)
        yield index
        index.add_incoming(b.add(index, i64(step)), b.block)
        b.branch(head)
        b.position_at_end(after)

    def minimum(self, left: ir.Value, right: ir.Value) -> ir.Value:
        return self.b.select(self.b.icmp_signed("<", left, right), left, right)

    # ------------------------------------------------------------------------------- arithmetic

    def intrinsic(self, name: str, kind: ir.Type, arguments: Sequence[ir.Value]) -> ir.Value:
        suffix = f"v{LANES}f32" if isinstance(kind, ir.VectorType) else "f32"
        full = f"llvm.{name}.{suffix}"
        known = self.module.globals.get(full)
        if known is None:
            signature = ir.FunctionType(kind, [kind] * len(arguments))
            known = ir.Function(self.module, signature, name=full)
        return self.b.call(known, arguments)

    def fma(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """x * y + z with one rounding, scalars or vectors."""
        return self.intrinsic("fma", x.type, [x, y, z])

    def splat(self, value: ir.Value) -> ir.Value:
        """A scalar in all 16 lanes."""
        vector = ir.VectorType(value.type, LANES)
        one = self.b.insert_element(ir.Constant(vector, ir.Undefined), value, i32(0))
        mask = ir.Constant(ir.VectorType(I32, LANES), [i32(0)] * LANES)
        return self.b.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)

    def sum_lanes(self, vector: ir.Value) -> ir.Value:
        """Lanes added pairwise: 8 apart, 4, 2, 1 (fixed, so the bits are)."""
        return self._fold(vector, self.b.fadd)

    def max_lanes(self, vector: ir.Value) -> ir.Value:
        return self._fold(vector, self.maximum)

    def maximum(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.b.select(self.b.fcmp_ordered(">", x, y), x, y)

    def _fold(self, vector: ir.Value, combine: Any) -> ir.Value:
        distance = LANES // 2
        while distance:
            lanes = [i32((lane + distance) % LANES) for lane in range(LANES)]
            mask = ir.Constant(ir.VectorType(I32, LANES), lanes)
            shifted = self.b.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)
            vector = combine(vector, shifted)
            distance //= 2
        return self.b.extract_element(vector, i32(0))

    def exp(self, x: ir.Value) -> ir.Value:
        """exp of a float32 scalar or vector to about 1 ulp for x in [-87, 88]; clamped outside.

        Range reduction by a two-part ln 2 and the polynomial of Cephes' expf (Moshier, 1984).
        """
        b, kind = self.b, x.type
        x = self.maximum(x, const(kind, -87.0))
        x = b.select(b.fcmp_ordered("<", x, const(kind, 88.0)), x, const(kind, 88.0))
        n = self.intrinsic("rint", kind, [b.fmul(x, const(kind, 1.4426950408889634))])
        r = self.fma(n, const(kind, -0.693359375), x)
        r = self.fma(n, const(kind, 2.12194440e-4), r)
        y = const(kind, 1.9875691500e-4)
        for coefficient in _EXP_COEFFICIENTS:
            y = self.fma(y, r, const(kind, coefficient))
        y = b.fadd(self.fma(y, b.fmul(r, r), r), const(kind, 1.0))
        integers = ir.VectorType(I32, LANES) if isinstance(kind, ir.VectorType) else I32
        bits = b.shl(b.add(b.fptosi(n, integers), const(integers, 127)), const(integers, 23))
        return b.fmul(y, b.bitcast(bits, kind))

    def log(self, x: ir.Value) -> ir.Value:
        """Natural logarithm of a positive, normal float32 scalar to about 1 ulp.

        Mantissa and exponent apart, then the polynomial of Cephes' logf (Moshier, 1984).
        """
        b = self.b
        bits = b.bitcast(x, I32)
        exponent = b.sub(b.and_(b.lshr(bits, i32(23)), i32(255)), i32(126))
        mantissa = b.bitcast(b.or_(b.and_(bits, i32(0x7FFFFF)), i32(126 << 23)), F32)
        is_low = b.fcmp_ordered("<", mantissa, const(F32, 0.707106781186547524))
        exponent = b.select(is_low, b.sub(exponent, i32(1)), exponent)
        doubled = b.select(is_low, b.fadd(mantissa, mantissa), mantissa)
        m = b.fsub(doubled, const(F32, 1.0))
        y = const(F32, 7.0376836292e-2)
        for coefficient in _LOG_COEFFICIENTS:
            y = self.fma(y, m, const(F32, coefficient))
        square, e = b.fmul(m, m), b.sitofp(exponent, F32)
        y = b.fmul(b.fmul(y, m), square)
        y = self.fma(e, const(F32, -2.12194440e-4), y)
        y = self.fma(square, const(F32, -0.5), y)
        return self.fma(e, const(F32, 0.693359375), b.fadd(m, y))

    def log1p(self, x: ir.Value) -> ir.Value:
        """log(1 + x) of a float32 scalar x >= 0 without losing small x (Kahan's correction)."""
        b = self.b
        one = const(F32, 1.0)
        whole = b.fadd(one, x)
        rounded = b.fsub(whole, one)
        corrected = b.fmul(self.log(whole), b.fdiv(x, rounded))
        return b.select(b.fcmp_ordered("==", rounded, const(F32, 0.0)), x, corrected)

    def softplus(self, x: ir.Value) -> ir.Value:
        """log(1 + exp(x)) of a float32 scalar; x itself above 20, as in the reference."""
        b = self.b
        bent = self.log1p(self.exp(x))
        return b.select(b.fcmp_ordered(">", x, const(F32, 20.0)), x, bent)

    def sigmoid(self, x: ir.Value) -> ir.Value:
        """1 / (1 + exp(-x)), scalar or vector."""
        b, one = self.b, const(x.type, 1.0)
        return b.fdiv(one, b.fadd(one, self.exp(b.fsub(const(x.type, -0.0), x))))

    def silu(self, x: ir.Value) -> ir.Value:
        """x / (1 + exp(-x)), scalar or vector."""
        b, one = self.b, const(x.type, 1.0)
        return b.fdiv(x, b.fadd(one, self.exp(b.fsub(const(x.type, -0.0), x))))


_LOG_COEFFICIENTS = (
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
_EXP_COEFFICIENTS = (
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)


def i64(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


def i32(value: int) -> ir.Constant:
    return ir.Constant(I32, value)


def const(kind: ir.Type, value: float) -> ir.Constant:
    """A constant of a scalar or vector type; floats are rounded to float32 first."""
    if isinstance(kind, ir.VectorType):
        return ir.Constant(kind, [const(kind.element, value)] * kind.count)
    if kind is F32:
        return ir.Constant(F32, struct.unpack("f", struct.pack("f", value))[0])
    return ir.Constant(kind, int(value))
