"""The native loop that runs a captured graph on several threads.

Every thread walks the launches in order and takes chunks by compare-and-swap on a counter; a launch
is over when all its chunks are done. Threads wait for each other with a short spin and then give
their time slice away, so that a busy machine slows Hearth in proportion and no more. Counters carry
the epoch of the run in their upper half: a thread of an earlier run cannot take part by mistake.
"""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache
from typing import Any

from llvmlite import ir

from hearth.kernels import jit
from hearth.kernels.emit import I32, I64, VOID, i64

SPINS_BEFORE_YIELD = 64  # some microseconds; most launches of a small model end within that
CHUNK_MASK = 0xFFFFFFFF
DONE_WORD = 8  # the second counter lies 64 bytes behind the first
COUNTER_WORDS = 16


class Runtime:
    """ctypes doors to the two native functions; calls release the interpreter lock."""

    def __init__(self) -> None:
        compiler = jit.compiler()
        reset = compiler.address("hearth_reset", _emit_reset)
        execute = compiler.address("hearth_execute", _emit_execute)
        word = ctypes.c_int64
        self._reset = ctypes.CFUNCTYPE(None, word, word, word)(reset)
        self._execute = ctypes.CFUNCTYPE(None, word, word, word, word, word)(execute)
        self._yield_address = _yield_address()

    def reset(self, counters: int, num_launches: int, epoch: int) -> None:
        self._reset(counters, num_launches, epoch << 32)

    def execute(self, table: int, counters: int, num_launches: int, epoch: int) -> None:
        self._execute(table, counters, num_launches, epoch << 32, self._yield_address)


@cache
def load() -> Runtime:
    return Runtime()


def _yield_address() -> int:
    """The system's "let others run" function."""
    if os.name == "nt":
        function: Any = ctypes.windll.kernel32.SwitchToThread  # type: ignore[attr-defined]
    else:
        function = ctypes.CDLL(None).sched_yield
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None, "the system has no yield function"
    return address


def _emit_reset(name: str) -> ir.Module:
    """``reset(counters, n, epoch << 32)``: no chunk taken, none done, in this epoch."""
    module = ir.Module(name=name)
    function = ir.Function(module, ir.FunctionType(VOID, [I64, I64, I64]), name=name)
    counters, count, stamp = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    base = b.inttoptr(counters, I64.as_pointer())
    head, body, after = (function.append_basic_block(n) for n in ("head", "body", "after"))
    entry = b.block
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(I64)
    index.add_incoming(i64(0), entry)
    b.cbranch(b.icmp_signed("<", index, count), body, after)
    b.position_at_end(body)
    word = b.mul(index, i64(COUNTER_WORDS))
    b.store_atomic(stamp, b.gep(base, [word]), "release", 8)
    b.store_atomic(stamp, b.gep(base, [b.add(word, i64(DONE_WORD))]), "release", 8)
    index.add_incoming(b.add(index, i64(1)), body)
    b.branch(head)
    b.position_at_end(after)
    b.ret_void()
    return module


def _emit_execute(name: str) -> ir.Module:
    """``execute(table, counters, n, epoch << 32, yield)``: see the module's text."""
    module = ir.Module(name=name)
    function = ir.Function(module, ir.FunctionType(VOID, [I64] * 5), name=name)
    table_word, counters_word, count, stamp, yield_word = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    block = {
        label: function.append_basic_block(label)
        for label in ("launch", "setup", "grab", "mine", "take", "work", "wait", "late", "spin",
                      "pause", "give", "next", "out")
    }  # fmt: skip
    table = b.inttoptr(table_word, I64.as_pointer())
    counters = b.inttoptr(counters_word, I64.as_pointer())
    kernel_type = ir.FunctionType(VOID, [I64.as_pointer(), I64]).as_pointer()
    yield_function = b.inttoptr(yield_word, ir.FunctionType(I32, []).as_pointer())
    entry = b.block
    b.branch(block["launch"])

    b.position_at_end(block["launch"])
    index = b.phi(I64)
    index.add_incoming(i64(0), entry)
    b.cbranch(b.icmp_signed("<", index, count), block["setup"], block["out"])

    b.position_at_end(block["setup"])
    row = b.mul(index, i64(3))
    kernel = b.inttoptr(b.load(b.gep(table, [row])), kernel_type)
    arguments = b.inttoptr(b.load(b.gep(table, [b.add(row, i64(1))])), I64.as_pointer())
    num_chunks = b.load(b.gep(table, [b.add(row, i64(2))]))
    word = b.mul(index, i64(COUNTER_WORDS))
    taken = b.gep(counters, [word])
    done = b.gep(counters, [b.add(word, i64(DONE_WORD))])
    all_done = b.or_(stamp, num_chunks)
    b.branch(block["grab"])

    b.position_at_end(block["grab"])
    seen = b.load_atomic(taken, "acquire", 8)
    same_epoch = b.icmp_unsigned("==", b.and_(seen, i64(~CHUNK_MASK)), stamp)
    b.cbranch(same_epoch, block["mine"], block["out"])

    b.position_at_end(block["mine"])
    chunk = b.and_(seen, i64(CHUNK_MASK))
    b.cbranch(b.icmp_signed("<", chunk, num_chunks), block["take"], block["wait"])

    b.position_at_end(block["take"])
    swapped = b.cmpxchg(taken, seen, b.add(seen, i64(1)), "acq_rel", "acquire")
    b.cbranch(b.extract_value(swapped, 1), block["work"], block["grab"])

    b.position_at_end(block["work"])
    b.call(kernel, [arguments, chunk])
    b.atomic_rmw("add", done, i64(1), "acq_rel")
    b.branch(block["grab"])

    b.position_at_end(block["wait"])
    spins = b.phi(I64)
    spins.add_incoming(i64(0), block["mine"])
    finished = b.load_atomic(done, "acquire", 8)
    b.cbranch(b.icmp_unsigned("==", finished, all_done), block["next"], block["late"])

    b.position_at_end(block["late"])
    still = b.icmp_unsigned("==", b.and_(finished, i64(~CHUNK_MASK)), stamp)
    b.cbranch(still, block["spin"], block["out"])

    b.position_at_end(block["spin"])
    more = b.add(spins, i64(1))
    patient = b.icmp_signed("<", spins, i64(SPINS_BEFORE_YIELD))
    b.cbranch(patient, block["pause"], block["give"])

    b.position_at_end(block["pause"])
    _emit_pause(b)
    spins.add_incoming(more, b.block)
    b.branch(block["wait"])

    b.position_at_end(block["give"])
    b.call(yield_function, [])
    spins.add_incoming(more, b.block)
    b.branch(block["wait"])

    b.position_at_end(block["next"])
    index.add_incoming(b.add(index, i64(1)), block["next"])
    b.branch(block["launch"])

    b.position_at_end(block["out"])
    b.ret_void()
    return module


def _emit_pause(b: ir.IRBuilder) -> None:
    """The processor's hint that this is a spin loop (nothing on processors without one)."""
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        pause = ir.Function(b.module, ir.FunctionType(VOID, []), name="llvm.x86.sse2.pause")
        b.call(pause, [])
    elif machine in ("aarch64", "arm64"):
        hint = ir.Function(b.module, ir.FunctionType(VOID, [I32]), name="llvm.aarch64.hint")
        b.call(hint, [ir.Constant(I32, 1)])
