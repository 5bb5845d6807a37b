"""How many attention pages fit: planned from what the machine has free now (decision D5)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hearth.engine.errors import UserError
from hearth.kernels.kv import PAGE_TOKENS

CACHE_SHARE = 0.3  # of the memory that is available when the model is opened
CONTEXTS_KEPT = 2.5  # a running chat, another one, and the shared beginnings of others
UNKNOWN_AVAILABLE_BYTES = 2 << 30  # where the system does not say


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What the engine allocates. Bytes are upper bounds; memory is touched when used."""

    num_pages: int
    context_length: int
    page_bytes: int

    @property
    def cache_bytes(self) -> int:
        return self.num_pages * self.page_bytes


def plan(
    *, page_bytes: int, max_context: int, wanted_context: int | None, available_bytes: int
) -> MemoryPlan:
    """Pages for the wanted context (default: what the model was trained for, as far as it fits).

    Raises UserError with the numbers when the wanted context is impossible.
    """
    budget = int(available_bytes * CACHE_SHARE)
    affordable = budget // page_bytes
    # One page more than the context: a tail snapshot needs a page of its own.
    fits = max(affordable - 1, 0) * PAGE_TOKENS
    if wanted_context is not None and wanted_context > max_context:
        raise UserError(
            f"The model was trained for {max_context:,} tokens; {wanted_context:,} are too many.",
            action=f"Choose a context of at most {min(max_context, fits):,} tokens.",
        )
    context = min(wanted_context or max_context, max_context)
    if wanted_context is not None and wanted_context > fits:
        needed = -(-wanted_context // PAGE_TOKENS) * page_bytes
        raise UserError(
            f"A context of {wanted_context:,} tokens needs {_mb(needed)} MB and "
            f"{_mb(budget)} MB may be used for it.",
            action=f"Choose at most {fits:,} tokens, or close other programs.",
        )
    context = min(context, fits)
    if context < PAGE_TOKENS:
        raise UserError(
            f"Only {_mb(available_bytes)} MB of memory are free; that is too little to run it.",
            action="Close other programs or choose a smaller model.",
        )
    wanted_pages = int(CONTEXTS_KEPT * -(-context // PAGE_TOKENS)) + 1
    return MemoryPlan(min(wanted_pages, affordable), context, page_bytes)


def _mb(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.0f}"


def available_bytes() -> int:
    """Memory that a new program may take now: the system's own estimate, capped by a container's
    limit where there is one."""
    limits = [value for value in (_meminfo_available(), _cgroup_left()) if value is not None]
    return min(limits) if limits else _physical_pages()


def _meminfo_available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_left() -> int | None:
    root = Path("/sys/fs/cgroup")
    try:
        limit = (root / "memory.max").read_text("ascii").strip()
        used = int((root / "memory.current").read_text("ascii"))
    except (OSError, ValueError):
        return None
    return None if limit == "max" else max(int(limit) - used, 0)


def _physical_pages() -> int:
    """Half of the physical memory where only its size is known (macOS), else a constant."""
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" in names and "SC_PAGE_SIZE" in names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return UNKNOWN_AVAILABLE_BYTES
