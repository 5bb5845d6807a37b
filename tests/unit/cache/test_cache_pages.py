"""Page references are counted, and a mistake is noticed where it happens."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hearth.engine.cache.pages import PageArena


def test_a_page_is_handed_out_once() -> None:
    arena = PageArena(3, 2, 8)
    pages = [arena.allocate() for _ in range(3)]
    assert sorted(page for page in pages if page is not None) == [0, 1, 2]
    assert arena.allocate() is None
    assert (arena.num_pages, arena.num_free, arena.page_bytes) == (3, 0, 64)


def test_a_shared_page_is_free_after_its_last_owner() -> None:
    arena = PageArena(1, 1, 8)
    page = arena.allocate()
    assert page is not None
    assert not arena.is_shared(page)
    arena.retain(page)
    assert arena.is_shared(page)
    arena.release(page)
    assert arena.allocate() is None
    arena.release(page)
    assert arena.allocate() == page


def test_wrong_counts_are_noticed() -> None:
    arena = PageArena(2, 1, 8)
    page = arena.allocate()
    assert page is not None
    arena.release(page)
    with pytest.raises(AssertionError, match="once per owner"):
        arena.release(page)
    with pytest.raises(AssertionError, match="only an owned page"):
        arena.retain(page)
    with pytest.raises(AssertionError, match="has pages"):
        PageArena(0, 1, 8)


def test_the_check_compares_references_with_owners() -> None:
    arena = PageArena(2, 1, 8)
    page = arena.allocate()
    assert page is not None
    arena.retain(page)
    arena.check([page, page])
    for owners in ([page], [page] * 3, [page, 1 - page], []):
        with pytest.raises(AssertionError, match="do not match"):
            arena.check(owners)


def test_a_copy_is_a_page_of_its_own() -> None:
    arena = PageArena(2, 2, 8)
    first, second = arena.allocate(), arena.allocate()
    assert first is not None
    assert second is not None
    arena.pages[first].fill_(3.0)
    arena.copy(first, second)
    arena.pages[first].fill_(4.0)
    assert (arena.pages[second] == 3.0).all()


def test_the_buffer_is_the_page_itself() -> None:
    arena = PageArena(2, 2, 8)
    page = arena.allocate()
    assert page is not None
    buffer = arena.buffer(page)
    assert buffer.nbytes == arena.page_bytes
    assert not buffer.readonly
    arena.pages.zero_()
    buffer[:4] = b"\x00\x00\x80\x3f"
    assert arena.pages[page, 0, 0] == 1.0
    assert arena.pages.sum() == 1.0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="measured through /proc")
def test_memory_is_taken_when_it_is_used() -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident_bytes()
    arena = PageArena(1000, 1, 1 << 20)  # 4.2 GB
    page = arena.allocate()
    assert page is not None
    arena.pages[page].fill_(1.0)
    assert resident_bytes() - before < 100e6
