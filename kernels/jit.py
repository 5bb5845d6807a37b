"""Compiles kernels written as LLVM IR for the processor this program runs on.

A kernel is a function ``void kernel(i64* arguments, i64 chunk)``; its arguments are addresses,
integers and float bit patterns in one array, so that every launch looks the same to the graph.
"""

from __future__ import annotations

import ctypes
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


def is_available() -> bool:
    """True when llvmlite is installed."""
    return find_spec("llvmlite") is not None


class Compiler:
    """Owns the code of this process; functions are compiled once, by name, and never freed.

    Thread-safe: engines of two threads share one compiler.
    """

    def __init__(self) -> None:
        import llvmlite.binding as llvm

        self._llvm = llvm
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.cpu = llvm.get_host_cpu_name()
        self._machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=self.cpu, features=llvm.get_host_cpu_features().flatten(), opt=3, jit=True
        )
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self._machine)
        self._addresses: dict[str, int] = {}
        self._lock = threading.Lock()

    def address(self, name: str, emit: Callable[[str], Any]) -> int:
        """The address of function ``name``; ``emit(name)`` gives its llvmlite module once."""
        with self._lock:
            known = self._addresses.get(name)
            if known is None:
                known = self._compile(name, emit(name))
                self._addresses[name] = known
            return known

    def _compile(self, name: str, module: Any) -> int:
        llvm = self._llvm
        module.triple = self._machine.triple
        module.data_layout = str(self._machine.target_data)
        parsed = llvm.parse_assembly(str(module))
        parsed.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_unrolling = True
        passes = llvm.create_pass_builder(self._machine, options)
        passes.getModulePassManager().run(parsed, passes)
        self._engine.add_module(parsed)
        self._engine.finalize_object()
        return int(self._engine.get_function_address(name))


_compiler: Compiler | None = None
_compiler_lock = threading.Lock()


def compiler() -> Compiler:
    """The process's compiler, made at first use."""
    global _compiler
    with _compiler_lock:
        if _compiler is None:
            _compiler = Compiler()
        return _compiler
