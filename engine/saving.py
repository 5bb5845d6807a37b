"""Writes pages of the prefix cache to disk beside the running replies."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearth.engine.cache.pages import PageArena
    from hearth.engine.cache.prefix import PrefixCache, SaveJob

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Writing:
    job: SaveJob
    arena: PageArena
    future: Future[int]


class Saver:
    """Owns the writing thread; every method belongs to the engine's thread. ``on_written`` is
    called on the writing thread after each page."""

    def __init__(self, on_written: Callable[[], None]) -> None:
        self._on_written = on_written
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hearth-saver")
        self._writing: list[_Writing] = []

    @property
    def is_writing(self) -> bool:
        return bool(self._writing)

    def write(self, cache: PrefixCache, arena: PageArena) -> int:
        """Start writing what is not on disk yet; returns the number of pages. They stay owned, and
        nobody changes them, until ``collect`` gives them back."""
        jobs = cache.unsaved()
        for job in jobs:
            future = self._thread.submit(job.write)
            self._writing.append(_Writing(job, arena, future))
            future.add_done_callback(lambda _: self._on_written())
        return len(jobs)

    def collect(self) -> int:
        """Give back the pages that are written; returns the bytes."""
        num_bytes = 0
        pending = []
        for item in self._writing:
            if item.future.done():
                item.arena.release(item.job.page)
                num_bytes += _result(item.future)
            else:
                pending.append(item)
        self._writing = pending
        return num_bytes

    def finish(self, limit_s: float) -> None:
        """Wait up to ``limit_s`` for everything that is being written; ``collect`` comes next."""
        _, late = wait([item.future for item in self._writing], timeout=limit_s)
        if late:
            log.warning("%d pages were not written within %.1f s", len(late), limit_s)

    def close(self) -> None:
        """Drop what has not been begun."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _result(future: Future[int]) -> int:
    """Bytes written. A failed page is not on disk, which costs a later read and nothing else."""
    if future.cancelled():
        return 0
    error = future.exception()
    if error is not None:
        log.error("a page could not be written", exc_info=error)
        return 0
    return future.result()
