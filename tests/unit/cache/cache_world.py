"""Pages whose content tells for which ids they were computed, and requests that use the cache as
the engine does."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from hearth.engine.cache.disk import DiskTier, ModelKey
from hearth.engine.cache.pages import PageArena
from hearth.engine.cache.prefix import Prefix, PrefixCache
from hearth.engine.cache.states import StatePayload

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PAGE = 128
LAYERS, KV_HEADS, HEAD_DIM = 2, 2, 4
LAYER_FLOATS = 2 * KV_HEADS * HEAD_DIM * PAGE
PAGE_BYTES = LAYERS * LAYER_FLOATS * 4
FULL_FILE_BYTES = 92 + 4 * PAGE + PAGE_BYTES + 4
KEY = ModelKey("weights", "llvm 1", "float32", LAYERS * LAYER_FLOATS, LAYERS, "rope", "", HEAD_DIM)


def truths(ids: Sequence[int]) -> list[float]:
    """Per token a number that depends on it and on everything before it, as keys and values do."""
    result, value = [], 1
    for token in ids:
        value = zlib.crc32(token.to_bytes(4, "little"), value)
        result.append(float(value & 0xFFFFFF))  # exact in float32
    return result


def halves(page: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys [L, Hkv, D, 128] and values [L, Hkv, 128, D] of a page."""
    keys, values = page.reshape(LAYERS, 2, -1).unbind(1)
    return (
        keys.view(LAYERS, KV_HEADS, HEAD_DIM, PAGE),
        values.view(LAYERS, KV_HEADS, PAGE, HEAD_DIM),
    )


def write_page(page: torch.Tensor, start: int, numbers: Sequence[float]) -> None:
    keys, values = halves(page)
    row = torch.tensor(numbers, dtype=torch.float32)
    keys[..., start : start + len(numbers)] = row
    values[:, :, start : start + len(numbers)] = row[:, None]


def read_page(page: torch.Tensor, count: int) -> list[float]:
    """The numbers of the first tokens; every float of a token must carry the same."""
    keys, values = halves(page)
    row = keys[0, 0, 0, :count]
    assert (keys[..., :count] == row).all()
    assert (values[:, :, :count] == row[:, None]).all()
    return [float(number) for number in row]


def state_for(ids: Sequence[int]) -> StatePayload:
    return StatePayload({"conv": torch.tensor(truths(ids)[-3:]), "s": torch.zeros(2, 2).half()})


def page_buffer(ids: Sequence[int], fill: float = 0.0) -> memoryview:
    """A page outside of an arena that holds ``ids`` from its start on, and ``fill`` behind them."""
    page = torch.full((LAYERS, LAYER_FLOATS), fill)
    write_page(page, 0, truths(ids))
    return page.numpy().data.cast("B")


def page_of(buffer: memoryview) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(buffer, np.float32).copy()).view(LAYERS, LAYER_FLOATS)


@dataclass
class Running:
    """A request: what it has computed is in ``pages``."""

    ids: list[int]
    pages: list[int]


@dataclass
class World:
    """An arena, a cache and running requests."""

    num_pages: int = 64
    folder: Path | None = None
    requires_state: bool = False
    running: list[Running] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """As after a new start of the program: memory is empty, the disk is not."""
        self.running.clear()
        self.arena = PageArena(self.num_pages, LAYERS, LAYER_FLOATS)
        self.disk = DiskTier(self.folder, KEY) if self.folder else None
        self.cache = PrefixCache(self.arena, disk=self.disk, requires_state=self.requires_state)

    def lookup(self, ids: Sequence[int]) -> Prefix:
        """A lookup whose pages and state are proven to be those of ``ids``; given back at once."""
        prefix = self._checked_lookup(ids)
        for page in prefix.pages:
            self.arena.release(page)
        return prefix

    def _checked_lookup(self, ids: Sequence[int]) -> Prefix:
        prefix = self.cache.lookup(ids)
        assert prefix.num_tokens == prefix.reused_tokens + prefix.restored_tokens
        assert min(prefix.reused_tokens, prefix.restored_tokens) >= 0
        assert prefix.num_tokens <= max(len(ids) - 1, 0)
        assert len(prefix.pages) == -(-prefix.num_tokens // PAGE)
        assert self._content(prefix.pages, prefix.num_tokens) == truths(ids)[: prefix.num_tokens]
        if self.requires_state and prefix.num_tokens:
            assert prefix.state is not None
            wanted = state_for(ids[: prefix.num_tokens])
            assert prefix.state.tensors.keys() == wanted.tensors.keys()
            for name, tensor in wanted.tensors.items():
                assert torch.equal(prefix.state.tensors[name], tensor)
        else:
            assert prefix.state is None
        return prefix

    def _content(self, pages: Sequence[int], num_tokens: int) -> list[float]:
        result: list[float] = []
        for index, page in enumerate(pages):
            count = min(num_tokens - index * PAGE, PAGE)
            result += read_page(self.arena.pages[page], count)
        return result

    def run(self, ids: Sequence[int], boundaries: Sequence[int] = ()) -> Running | None:
        """A request that computes ``ids`` behind what is known and keeps them in the cache, at
        boundaries and at the end; None when memory is short. ``end`` gives its pages back."""
        prefix = self._checked_lookup(ids)
        request = Running(list(ids), list(prefix.pages))
        self.running.append(request)
        computed = prefix.num_tokens
        for boundary in sorted({*boundaries, len(ids)}):
            if boundary > computed:
                if not self._compute(request, computed, boundary):
                    self.end(request)
                    return None
                computed = boundary
                self._keep(request, boundary)
        assert self._content(request.pages, computed) == truths(ids)[:computed]
        return request

    def _keep(self, request: Running, count: int) -> None:
        state = state_for(request.ids[:count]) if self.requires_state else None
        self.cache.insert(request.ids[:count], request.pages, state)

    def _compute(self, request: Running, start: int, stop: int) -> bool:
        numbers = truths(request.ids)
        first = start // PAGE
        if first < len(request.pages) and self.arena.is_shared(request.pages[first]):
            copy = self.cache.allocate()
            if copy is None:
                return False
            self.arena.copy(request.pages[first], copy)
            self.arena.release(request.pages[first])
            request.pages[first] = copy
        while len(request.pages) * PAGE < stop:
            page = self.cache.allocate()
            if page is None:
                return False
            self.arena.pages[page].fill_(float("nan"))  # what was there before means nothing
            request.pages.append(page)
        for index in range(first, -(-stop // PAGE)):
            begin, end = max(start, index * PAGE), min(stop, (index + 1) * PAGE)
            page = self.arena.pages[request.pages[index]]
            write_page(page, begin - index * PAGE, numbers[begin:end])
        return True

    def end(self, request: Running) -> None:
        self.running.remove(request)
        for page in request.pages:
            self.arena.release(page)

    def chat(self, ids: Sequence[int], boundaries: Sequence[int] = ()) -> None:
        """A request that runs and ends."""
        request = self.run(ids, boundaries)
        if request is not None:
            self.end(request)

    def save(self) -> int:
        """Write what is not on disk; returns the number of jobs."""
        jobs = self.cache.unsaved()
        for job in jobs:
            job.write()
            self.arena.release(job.page)
        return len(jobs)

    def check(self) -> None:
        """Every page has exactly the owners that say so."""
        held = [page for request in self.running for page in request.pages]
        self.arena.check([*self.cache.pages(), *held])

    def files(self, suffix: str = "") -> list[Path]:
        assert self.folder is not None
        return sorted(path for path in self.folder.glob("*/*") if path.name.endswith(suffix))
