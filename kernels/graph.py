"""Launching kernels and capturing launches: the CPU's counterpart of a CUDA graph.

A launch runs at once, or is recorded while a ``capture`` is open on this thread. A captured graph
is replayed by one native call without the interpreter lock; helper threads take chunks of the same
launches. Which thread computes a chunk never changes its bits.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hearth.kernels import jit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch


def backend() -> str:
    """What does the arithmetic in this process: "llvm", or "reference" without llvmlite."""
    return "llvm" if jit.is_available() else "reference"


def float_bits(value: float) -> int:
    """A float as the integer that ``emit.Kernel.real`` reads back."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


class Thunk:
    """A reference operation: a plain call."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.run: Callable[[], object] = call


class KernelLaunch:
    """A compiled kernel with its arguments. Keeps the tensors it points into alive."""

    __slots__ = ("address", "arguments", "num_chunks", "tensors")

    def __init__(
        self,
        address: int,
        arguments: Sequence[int],
        num_chunks: int,
        tensors: Sequence[torch.Tensor | None],
    ) -> None:
        self.address = address
        self.arguments = (ctypes.c_int64 * len(arguments))(*arguments)
        self.num_chunks = num_chunks
        self.tensors = tuple(tensors)

    def run(self) -> None:
        kernel = jit.KERNEL(self.address)
        for chunk in range(self.num_chunks):
            kernel(ctypes.addressof(self.arguments), chunk)


class _Capture(threading.local):
    """The graph being recorded on this thread, if any."""

    graph: Graph | None = None


_capture = _Capture()


def submit(launch: Any) -> None:
    """Record ``launch`` in the open capture, or run it now."""
    if _capture.graph is not None:
        _capture.graph.add(launch)
    else:
        launch.run()


@contextmanager
def capture() -> Iterator[Graph]:
    """Record launches of this thread into the graph that is yielded; nothing runs meanwhile."""
    assert _capture.graph is None, "captures do not nest"
    graph = Graph()
    _capture.graph = graph
    try:
        yield graph
    finally:
        _capture.graph = None
    graph.seal()


class Graph:
    """A recorded list of launches over fixed buffers. Owned and replayed by one thread."""

    def __init__(self) -> None:
        self._launches: list[Any] = []
        self._program: Program | None = None

    def add(self, launch: Any) -> None:
        assert self._program is None, "the graph is sealed"
        self._launches.append(launch)

    def seal(self) -> None:
        if self._launches and all(isinstance(item, KernelLaunch) for item in self._launches):
            self._program = Program(self._launches)

    def replay(self) -> None:
        """Run every launch in order, on all threads."""
        if self._program is not None:
            pool().run(self._program)
        else:
            for launch in self._launches:
                launch.run()


class Program:
    """The native form of a graph: launches, and one pair of counters per launch."""

    COUNTER_WORDS = 16  # two counters, 64 bytes apart: no two launches share a cache line

    def __init__(self, launches: Sequence[KernelLaunch]) -> None:
        self._keep = tuple(launches)
        self.num_launches = len(launches)
        words: list[int] = []
        for launch in launches:
            words += [launch.address, ctypes.addressof(launch.arguments), launch.num_chunks]
        self._table = (ctypes.c_int64 * len(words))(*words)
        self._counters = (ctypes.c_int64 * (self.COUNTER_WORDS * self.num_launches))()
        self.table_address = ctypes.addressof(self._table)
        self.counters_address = ctypes.addressof(self._counters)


class Pool:
    """Helper threads that run programs together with the calling thread.

    Helpers sleep on a semaphore between programs. Each run has an epoch; a helper that wakes up too
    late sees another epoch in the counters and leaves. Programs are run by one thread at a time.
    """

    def __init__(self, num_threads: int) -> None:
        from hearth.kernels import runtime

        self._runtime = runtime.load()
        self.num_threads = num_threads
        self._epoch = 0
        self._job: tuple[Program, int] | None = None
        self._lock = threading.Lock()
        self._wake = [threading.Semaphore(0) for _ in range(num_threads - 1)]
        self._closed = False
        for wake in self._wake:
            threading.Thread(target=self._help, args=(wake,), daemon=True, name="kernel").start()

    def run(self, program: Program) -> None:
        with self._lock:
            self._epoch = (self._epoch + 1) & 0x3FFFFFFF
            self._runtime.reset(program.counters_address, program.num_launches, self._epoch)
            self._job = (program, self._epoch)
            for wake in self._wake:
                wake.release()
            self._execute(program, self._epoch)
            self._job = None  # a program holds weights and pages, which a closed model gives back

    def close(self) -> None:
        self._closed = True
        for wake in self._wake:
            wake.release()

    def _execute(self, program: Program, epoch: int) -> None:
        self._runtime.execute(
            program.table_address, program.counters_address, program.num_launches, epoch
        )

    def _help(self, wake: threading.Semaphore) -> None:
        while True:
            wake.acquire()
            if self._closed:
                return
            job = self._job
            if job is not None:
                self._execute(*job)
            del job


_pool: Pool | None = None
_pool_lock = threading.Lock()


def pool() -> Pool:
    """The process's pool; as many threads as this process may use cores unless set before."""
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = Pool(usable_cores())
        return _pool


def set_num_threads(num_threads: int) -> None:
    """Use ``num_threads`` threads for graphs from now on; call between replays."""
    global _pool
    assert num_threads >= 1, "at least the calling thread works"
    with _pool_lock:
        if _pool is None or _pool.num_threads != num_threads:
            if _pool is not None:
                _pool.close()
            _pool = Pool(num_threads)


def usable_cores() -> int:
    """Cores this process may run on (affinity and containers respected where the system says)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
