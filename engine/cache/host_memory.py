"""How much memory a program may take now, by the system's own estimate."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

UNKNOWN_AVAILABLE_BYTES = 2 << 30  # where the system does not say


def available_bytes(root: Path = Path("/")) -> int:
    """Memory that can be had without swapping, capped by a container's limit where there is one.
    ``root`` is where /proc and /sys are looked for."""
    limits = [
        value for value in (_meminfo_available(root), _cgroup_left(root)) if value is not None
    ]
    return min(limits) if limits else _other_system()


def _meminfo_available(root: Path) -> int | None:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_left(root: Path) -> int | None:
    """What the control groups (version 2) of this process leave, the tightest of them."""
    top = root / "sys/fs/cgroup"
    own = [line for line in _lines(root / "proc/self/cgroup") if line.startswith("0::/")]
    group = top / own[0].removeprefix("0::/") if own else top
    folders = [group, *group.parents[: len(group.parts) - len(top.parts)]]
    left = [value for value in map(_group_left, folders) if value is not None]
    return min(left, default=None)


def _group_left(folder: Path) -> int | None:
    limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
    if limit is None or used is None:
        return None
    # Files that were read stay counted until the memory is needed; they do not stand in the way.
    for line in _lines(folder / "memory.stat"):
        if line.startswith("inactive_file "):
            used -= int(line.split()[1])
    return max(limit - max(used, 0), 0)


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("ascii").splitlines()
    except (OSError, ValueError):
        return []


def _other_system() -> int:
    """Windows says what is free; where only the size is known (macOS) half of it is taken."""
    if sys.platform == "win32":
        return _windows_available()
    else:  # noqa: RET505 - type checkers follow the platform only into branches
        names = os.sysconf_names
        if "SC_PHYS_PAGES" in names and "SC_PAGE_SIZE" in names:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        return UNKNOWN_AVAILABLE_BYTES


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of the Windows interface."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total_physical", ctypes.c_uint64),
        ("available_physical", ctypes.c_uint64),
        ("total_page_file", ctypes.c_uint64),
        ("available_page_file", ctypes.c_uint64),
        ("total_virtual", ctypes.c_uint64),
        ("available_virtual", ctypes.c_uint64),
        ("available_extended_virtual", ctypes.c_uint64),
    )


if sys.platform == "win32":

    def _windows_available() -> int:
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        if not ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
            return UNKNOWN_AVAILABLE_BYTES
        return int(status.available_physical)
