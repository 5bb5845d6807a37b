"""Looks at the machine and says what is missing for Hearth, and how to get it."""

from __future__ import annotations

import ctypes.util
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Literal

from hearth.app import compose
from hearth.app.models.catalogue import STARTER
from hearth.app.models.registry import ModelRegistry

if TYPE_CHECKING:
    from hearth.app.profile import Paths

LOW_DISK_BYTES = 2 << 30
# What Qt's xcb plugin loads on Linux, and the Debian package of each.
QT_LIBRARIES = {
    "xcb-cursor": "libxcb-cursor0",
    "xcb-icccm": "libxcb-icccm4",
    "xcb-keysyms": "libxcb-keysyms1",
    "xkbcommon-x11": "libxkbcommon-x11-0",
    "EGL": "libegl1",
    "GL": "libgl1",
    "fontconfig": "libfontconfig1",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: ``note`` is good to know, ``problem`` keeps something from working."""

    what: str
    state: Literal["ok", "note", "problem"]
    value: str
    remedy: str = ""


def examine(paths: Paths) -> list[Finding]:
    """Everything, in the order a person would ask."""
    return [
        _python(),
        _package("torch"),
        _kernels(),
        _processor(),
        _memory(),
        _gpu(),
        _window(),
        *_qt_libraries(),
        _disk(paths),
        _models(paths),
    ]


def _python() -> Finding:
    return Finding("Python", "ok", platform.python_version())


def _package(name: str) -> Finding:
    try:
        return Finding(name, "ok", metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(name, "problem", "not installed", "run 'make setup'")


def _kernels() -> Finding:
    try:
        backend = compose.kernel_backend()
    except ImportError as error:
        return Finding("kernels", "problem", str(error), "run 'make setup'")
    if backend == "llvm":
        return Finding("kernels", "ok", f"compiled for this processor (llvmlite {_llvmlite()})")
    return Finding(
        "kernels", "note", "plain PyTorch, slow", "pip install llvmlite for compiled kernels"
    )


def _llvmlite() -> str:
    return metadata.version("llvmlite")


def _processor() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Finding("processor", "ok", f"{platform.machine()}, {cores} cores to use")


def _memory() -> Finding:
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names:
        return Finding("memory", "note", "unknown on this system")
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Finding("memory", "ok", f"{total / 1e9:.1f} GB")


def _gpu() -> Finding:
    """Read only, through NVML."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        name = pynvml.nvmlDeviceGetName(handle)
        total = pynvml.nvmlDeviceGetMemoryInfo(handle).total
    except ImportError:
        return Finding("GPU", "note", "unknown: nvidia-ml-py is not installed")
    except pynvml.NVMLError:
        return Finding("GPU", "note", "no NVIDIA driver answers; the processor does the work")
    return Finding(
        "GPU",
        "note",
        f"{name}, {total / 1e9:.0f} GB; this version of Hearth runs on the processor",
    )


def _window() -> Finding:
    from hearth.app.cli.window import reason_for_no_window

    reason = reason_for_no_window()
    if reason is None:
        return Finding("window", "ok", f"PySide6 {metadata.version('PySide6-Essentials')}")
    return Finding("window", "note", reason, "use 'hearth chat' in the terminal")


def _qt_libraries() -> list[Finding]:
    if not sys.platform.startswith("linux"):
        return []
    missing = [
        package for name, package in QT_LIBRARIES.items() if ctypes.util.find_library(name) is None
    ]
    if not missing:
        return [Finding("display libraries", "ok", "all there")]
    remedy = f"sudo apt-get install {' '.join(missing)}"
    return [Finding("display libraries", "note", f"{len(missing)} missing", remedy)]


def _disk(paths: Paths) -> Finding:
    free = shutil.disk_usage(paths.data).free
    state: Literal["ok", "problem"] = "ok" if free > LOW_DISK_BYTES else "problem"
    remedy = "" if state == "ok" else "free some space: chats and models need it"
    return Finding("disk", state, f"{free / 1e9:.1f} GB free at {paths.data}", remedy)


def _models(paths: Paths) -> Finding:
    models = ModelRegistry(paths.models).models()
    if models:
        return Finding("models", "ok", ", ".join(model.name for model in models))
    return Finding(
        "models", "note", "none yet", f"hearth models pull {STARTER.key} ({STARTER.title})"
    )
