"""How much the disk tier takes: capacity, a floor of free space, and what goes first."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.engine.cache.names import PARENT_CHARS
from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_CAPACITY_BYTES = 20 << 30
FREE_FLOOR_BYTES = 1 << 30
EVICT_TO = 0.95  # of the capacity, so that a full folder is not listed for every page


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    used_ns: int
    num_bytes: int

    @property
    def parent(self) -> tuple[str, str]:
        return self.path.parent.name, self.path.name.partition("-")[0]

    @property
    def chain(self) -> tuple[str, str] | None:
        """What a page's continuations name as their parent; tails and snapshots have none."""
        if self.path.suffix != ".page":
            return None
        return self.path.parent.name, self.path.stem.partition("-")[2][:PARENT_CHARS]


class DiskSpace:
    """The folder of all models; ``make_room`` and ``add`` belong to the writing thread. What other
    processes write is noticed when the capacity seems reached."""

    def __init__(self, root: Path, capacity_bytes: int, free_floor_bytes: int) -> None:
        self._root = root
        self._capacity_bytes = capacity_bytes
        self._free_floor_bytes = free_floor_bytes
        self._used_bytes: int | None = None

    def add(self, num_bytes: int) -> None:
        if self._used_bytes is not None:
            self._used_bytes += num_bytes

    def make_room(self, num_bytes: int, behind: tuple[str, str]) -> bool:
        """Delete until ``num_bytes`` more are allowed; False when they could only replace what they
        continue (``behind``: model folder and parent). Raises OSError when the disk is full."""
        if self._used_bytes is None:
            self._used_bytes = self.usage_bytes()
        over = self._used_bytes + num_bytes > self._capacity_bytes
        if over or self._free_bytes() - num_bytes < self._free_floor_bytes:
            self._evict(num_bytes, behind)
        if self._free_bytes() - num_bytes < self._free_floor_bytes:
            raise OSError(errno.ENOSPC, "too little disk space is left")
        return self._used_bytes + num_bytes <= self._capacity_bytes

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self._root).free

    def _evict(self, num_bytes: int, behind: tuple[str, str]) -> None:
        entries = self._entries()
        used = sum(entry.num_bytes for entry in entries)
        excess = 0
        if used + num_bytes > self._capacity_bytes:
            excess = used + num_bytes - int(self._capacity_bytes * EVICT_TO)
        excess = max(excess, self._free_floor_bytes + num_bytes - self._free_bytes())
        kept = _ancestors(entries, behind)
        for entry in _oldest_first(entries):
            if excess <= 0:
                break
            if entry.chain not in kept:
                entry.path.unlink(missing_ok=True)
                excess -= entry.num_bytes
                used -= entry.num_bytes
        self._used_bytes = used

    def _entries(self) -> list[_Entry]:
        result = []
        for path in self._root.glob("*/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                result.append(_Entry(path, status.st_mtime_ns, status.st_size))
        return result

    def usage_bytes(self) -> int:
        return sum(entry.num_bytes for entry in self._entries())

    def clear(self) -> None:
        failed: OSError | None = None
        for entry in self._entries():
            try:
                entry.path.unlink(missing_ok=True)
            except OSError as error:
                failed = error
        self._used_bytes = None
        if failed is not None:
            raise MachineError(
                f"Some of what was kept ready on disk could not be deleted ({failed.strerror}).",
                action=f"Delete the folder {os.fspath(self._root)} by hand.",
            )


def _ancestors(entries: list[_Entry], behind: tuple[str, str]) -> set[tuple[str, str]]:
    """Chains of the pages that lead to what is behind ``behind``."""
    by_chain = {entry.chain: entry for entry in entries if entry.chain is not None}
    result: set[tuple[str, str]] = set()
    while behind in by_chain and behind not in result:
        result.add(behind)
        behind = by_chain[behind].parent
    return result


def _oldest_first(entries: list[_Entry]) -> list[_Entry]:
    """In the order of last use, but nothing before what continues it: behind a missing page the
    rest of a chat cannot be reached any more."""
    by_chain = {entry.chain: entry for entry in entries if entry.chain is not None}
    used = {entry.path: entry.used_ns for entry in entries}
    for entry in sorted(entries, key=lambda item: item.used_ns, reverse=True):
        child = entry
        for _ in entries:  # a chain is no longer; names made by others may run in circles
            parent = by_chain.get(child.parent)
            if parent is None or used[parent.path] > used[child.path]:
                break
            used[parent.path] = used[child.path] + 1
            child = parent
    return sorted(entries, key=lambda item: used[item.path])
