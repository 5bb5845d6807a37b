"""Chats come back from disk after a restart, as far as files and memory go."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from cache_world import FULL_FILE_BYTES, PAGE, World, truths, write_page

if TYPE_CHECKING:
    from pathlib import Path

IDS = list(range(1000, 1600))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(folder=tmp_path)


@pytest.mark.parametrize("count", [1, 2, 100, 128, 129, 256, 300])
def test_everything_comes_back(world: World, count: int) -> None:
    world.chat(IDS[:count])
    assert world.save() == -(-count // PAGE)
    assert world.save() == 0
    world.restart()
    found = world.lookup([*IDS[:count], 1])
    assert (found.reused_tokens, found.restored_tokens) == (0, count)
    again = world.lookup([*IDS[:count], 1])
    assert (again.reused_tokens, again.restored_tokens) == (count, 0)
    assert world.save() == 0
    world.check()


@pytest.mark.parametrize("count", [2, 100, 128, 129, 256, 257, 300])
def test_the_last_token_is_computed_after_a_restart_too(world: World, count: int) -> None:
    world.chat(IDS[:count])
    world.save()
    world.restart()
    assert world.lookup(IDS[:count]).restored_tokens == count - 1
    assert world.lookup(IDS[:count]).restored_tokens == 0
    assert len(world.cache.pages()) == -(-(count - 1) // PAGE)


@pytest.mark.parametrize("agreed", [1, 50, 128, 200, 256, 290])
def test_a_branch_comes_back_up_to_where_it_leaves(world: World, agreed: int) -> None:
    world.chat(IDS[:300])
    world.save()
    world.restart()
    assert world.lookup([*IDS[:agreed], 1, 2, 3]).restored_tokens == agreed


def test_the_longest_of_several_tails_comes_back(world: World) -> None:
    for count, other in [(10, 1), (90, 2), (50, 3)]:
        world.chat([*IDS[:count], other, other])
    world.save()
    world.restart()
    assert world.lookup([*IDS[:100], 1]).num_tokens == 90


def test_what_is_in_memory_is_not_read_again(world: World) -> None:
    world.chat(IDS[:100])
    world.chat(IDS[:300])
    world.save()
    before = len(world.cache.pages())
    for count in (100, 128, 200, 256, 300):
        assert world.lookup(IDS[:count]).restored_tokens == 0
    assert len(world.cache.pages()) == before


def test_memory_is_continued_from_disk(world: World) -> None:
    world.chat(IDS[:300])
    world.save()
    world.restart()
    assert world.lookup([*IDS[:150], 1]).restored_tokens == 150
    found = world.lookup([*IDS[:300], 1])
    assert (found.reused_tokens, found.restored_tokens) == (256, 44)


def test_restoring_into_a_full_arena_takes_nothing_of_the_same_hit(world: World) -> None:
    """The hit's own beginning is then the only page that nobody uses."""
    world.chat([*IDS[:256], 1])
    world.save()
    world.num_pages = 1
    world.restart()
    page = world.cache.allocate()
    assert page is not None
    world.arena.release(page)
    assert world.lookup([*IDS[:256], 1]).num_tokens == PAGE
    assert world.lookup([*IDS[:256], 1]).num_tokens == PAGE
    world.check()


def test_restoring_makes_room_and_stops_where_there_is_none(world: World) -> None:
    world.chat(IDS[:500])
    world.save()
    world.num_pages = 3
    world.restart()
    world.chat([5] * 300)
    assert world.lookup([*IDS[:500], 1]).num_tokens == 3 * PAGE
    holder = world.run([5] * 200)
    assert holder is not None
    assert world.lookup([*IDS[:500], 1]).num_tokens == PAGE
    world.check()


def test_a_damaged_page_ends_the_hit_and_is_written_again(world: World) -> None:
    world.chat(IDS[:300])
    world.save()
    pages = sorted(world.files(".page"), key=lambda path: path.stat().st_mtime_ns)
    data = pages[1].read_bytes()
    pages[1].write_bytes(data[:5000] + bytes([data[5000] ^ 64]) + data[5001:])
    world.restart()
    assert world.disk is not None
    assert world.lookup([*IDS[:300], 1]).num_tokens == PAGE
    assert world.disk.num_rejected == 1
    assert not pages[1].exists()
    world.check()
    world.chat(IDS[:300])
    world.save()
    assert pages[1].read_bytes() == data
    world.restart()
    assert world.lookup([*IDS[:300], 1]).num_tokens == 300


def test_a_damaged_tail_gives_way_to_the_next_best(world: World) -> None:
    for count, other in [(40, 1), (90, 2)]:
        world.chat([*IDS[:count], other])
    world.save()
    longest = max(world.files(".tail"), key=lambda path: path.stat().st_size)
    longest.write_bytes(longest.read_bytes()[:-2])
    world.restart()
    assert world.lookup([*IDS[:100], 1]).num_tokens == 40
    world.check()


def test_a_file_that_cannot_be_deleted_is_passed_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.chat([*IDS[:90], 1])
    world.save()
    world.files(".tail")[0].write_bytes(b"x" * 500)
    world.restart()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "no")

    monkeypatch.setattr(os, "unlink", refuse)
    assert world.lookup(IDS[:100]).num_tokens == 0
    assert world.lookup(IDS[:100]).num_tokens == 0
    assert world.disk is not None
    assert world.disk.num_rejected == 1


def test_tails_hold_their_own_tokens_and_nothing_else(world: World) -> None:
    """A page that is used again still holds what another chat left there; that is not written."""
    page = world.cache.allocate()
    assert page is not None
    world.arena.pages[page].fill_(12345.0)
    stale = world.arena.buffer(page)[:4].tobytes()
    write_page(world.arena.pages[page], 0, truths(IDS[:3]))
    world.cache.insert(IDS[:3], [page])
    world.arena.release(page)
    world.save()
    (tail,) = world.files(".tail")
    assert tail.stat().st_size < FULL_FILE_BYTES / 20
    assert stale not in tail.read_bytes()
    world.restart()
    assert world.lookup([*IDS[:3], 1]).restored_tokens == 3


def test_two_programs_share_a_folder(tmp_path: Path) -> None:
    first, second = World(folder=tmp_path), World(folder=tmp_path)
    for count in (100, 128, 250, 300):
        for world in (first, second):
            world.chat(IDS[:count])
            world.save()
    second.chat([*IDS[:300], 1, 2])
    second.save()
    assert first.lookup([*IDS[:300], 1, 2, 3]).num_tokens == 302
    assert first.disk is not None
    assert first.disk.num_rejected == 0
