"""The arena of attention pages: who owns which, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

PageId = int


class PageArena:
    """Owns one float32 tensor [num_pages, num_layers, page_floats]; engine thread only.

    Memory is touched when a page is first written, so an arena may be larger than what is used.
    A page with references is never handed out again.
    """

    def __init__(self, num_pages: int, num_layers: int, page_floats: int) -> None:
        assert num_pages > 0, "an arena has pages"
        self.pages = torch.empty((num_pages, num_layers, page_floats), dtype=torch.float32)
        self._references = [0] * num_pages
        self._free = list(range(num_pages - 1, -1, -1))

    @property
    def num_pages(self) -> int:
        return len(self._references)

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def page_bytes(self) -> int:
        return self.pages[0].numel() * 4

    def allocate(self) -> PageId | None:
        """A page with one reference, or None when all are taken."""
        if not self._free:
            return None
        page = self._free.pop()
        assert self._references[page] == 0, "a free page has no owner"
        self._references[page] = 1
        return page

    def retain(self, page: PageId) -> None:
        assert self._references[page] > 0, "only an owned page can be shared"
        self._references[page] += 1

    def release(self, page: PageId) -> None:
        assert self._references[page] > 0, "a page is released once per owner"
        self._references[page] -= 1
        if self._references[page] == 0:
            self._free.append(page)

    def is_shared(self, page: PageId) -> bool:
        return self._references[page] > 1

    def copy(self, source: PageId, target: PageId) -> None:
        self.pages[target].copy_(self.pages[source])

    def buffer(self, page: PageId) -> memoryview:
        """The page's bytes, writable; for the disk tier."""
        return self.pages[page].numpy().data.cast("B")

    def check(self, owners: Iterable[PageId]) -> None:
        """Assert that the counted references are exactly ``owners`` (one entry per reference)."""
        expected = [0] * self.num_pages
        for page in owners:
            expected[page] += 1
        assert expected == self._references, "page references do not match their owners"
        assert len(self._free) == self._references.count(0), "free pages are those without owner"
