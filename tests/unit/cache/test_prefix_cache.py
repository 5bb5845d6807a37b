"""What the prefix cache finds, shares and gives up."""

from __future__ import annotations

import pytest
from cache_world import PAGE, World


def ids(seed: int, count: int) -> list[int]:
    """Ordinary ids; different seeds share none."""
    return [seed * 10_000 + number for number in range(count)]


def test_nothing_is_known_at_first() -> None:
    world = World()
    for count in (0, 1, 2, 300):
        assert world.lookup(ids(1, count)).num_tokens == 0
    world.check()


@pytest.mark.parametrize("count", [2, 100, 127, 128, 129, 255, 256, 257, 300])
def test_the_last_token_is_always_computed(count: int) -> None:
    world = World()
    world.chat(ids(1, count))
    assert world.lookup(ids(1, count)).num_tokens == count - 1
    assert world.lookup([*ids(1, count), 7]).num_tokens == count
    world.check()


@pytest.mark.parametrize("agreed", [1, 50, 127, 128, 129, 200, 256, 290])
def test_a_hit_ends_at_the_first_different_token(agreed: int) -> None:
    world = World()
    world.chat(ids(1, 300))
    assert world.lookup(ids(1, agreed) + ids(2, 100)).num_tokens == agreed


def test_equal_beginnings_share_their_pages() -> None:
    world = World()
    world.chat(ids(1, 256) + ids(2, 100))
    world.chat(ids(1, 256) + ids(3, 100))
    assert len(world.cache.pages()) == 4
    two = [world.run(ids(1, 256) + ids(seed, 100) + [5]) for seed in (2, 3)]
    assert two[0] is not None
    assert two[1] is not None
    assert two[0].pages[:2] == two[1].pages[:2]
    assert two[0].pages[2] != two[1].pages[2]
    world.check()


def test_a_tail_that_grows_takes_one_page() -> None:
    world = World()
    for count in range(10, PAGE + 1, 10):
        world.chat(ids(1, count))
        assert len(world.cache.pages()) == 1
    world.chat(ids(1, PAGE))
    assert len(world.cache.pages()) == 1
    world.check()


def test_a_shorter_beginning_adds_nothing() -> None:
    world = World()
    world.chat(ids(1, 200))
    world.chat([*ids(1, 150), 9])
    world.cache.insert(ids(1, 140), world.cache.pages())
    assert len(world.cache.pages()) == 3
    world.check()


def test_whoever_continues_a_tail_changes_nobody_elses() -> None:
    world = World()
    world.chat(ids(1, 150))
    branches = [world.run(ids(1, 150) + ids(seed, 60)) for seed in range(2, 6)]
    assert None not in branches
    for seed in range(2, 6):
        assert world.lookup(ids(1, 150) + ids(seed, 60) + [1]).num_tokens == 210
    world.check()


def test_what_was_used_longest_ago_goes_first() -> None:
    world = World(num_pages=4)
    for seed in (1, 2, 3, 4):
        world.chat(ids(seed, PAGE))
    assert world.lookup([*ids(1, PAGE), 5]).num_tokens == PAGE
    world.chat(ids(5, PAGE))
    kept = [seed for seed in range(1, 6) if world.lookup([*ids(seed, PAGE), 5]).num_tokens]
    assert kept == [1, 3, 4, 5]


def test_a_chat_loses_its_end_before_its_beginning() -> None:
    world = World(num_pages=4)
    world.chat(ids(1, 4 * PAGE))
    world.chat(ids(2, PAGE))
    assert world.lookup([*ids(1, 4 * PAGE), 5]).num_tokens == 3 * PAGE
    world.check()


def test_pages_in_use_are_never_taken() -> None:
    world = World(num_pages=4)
    request = world.run(ids(1, 3 * PAGE))
    assert request is not None
    world.chat(ids(2, PAGE))
    assert world.run(ids(3, 2 * PAGE)) is None
    assert world.lookup([*ids(1, 3 * PAGE), 5]).num_tokens == 3 * PAGE
    world.check()
    world.end(request)
    assert world.run(ids(3, 2 * PAGE)) is not None
    world.check()


def test_a_full_arena_does_not_lose_the_parent_of_a_new_tail() -> None:
    """The parent is then the only page that could be taken for the tail's copy."""
    world = World(num_pages=2)
    world.chat(ids(1, PAGE))
    page = world.cache.allocate()
    assert page is not None
    world.cache.insert([*ids(1, PAGE), 5], [page, page])
    world.arena.check([*world.cache.pages(), page])
    assert world.lookup([*ids(1, PAGE), 5]).num_tokens == PAGE


def test_clearing_gives_everything_back() -> None:
    world = World()
    world.chat(ids(1, 500), [100, 300])
    world.chat(ids(1, 200) + ids(2, 100))
    world.cache.clear()
    assert world.arena.num_free == world.arena.num_pages
    assert world.lookup(ids(1, 500)).num_tokens == 0
    world.check()


def test_without_a_disk_there_is_nothing_to_save() -> None:
    world = World()
    world.chat(ids(1, 500))
    assert world.cache.unsaved() == []


def test_a_conversation_stays_warm_beside_others() -> None:
    """Twelve turns with two unrelated requests between them in a small arena: every turn finds all
    of the one before (field experience: periodic misses when what is resumed is freed first)."""
    world = World(num_pages=24)
    history = ids(1, 900)
    world.chat(history)
    for turn in range(12):
        for other in (1, 2):
            world.chat(ids(100 + 2 * turn + other, 250))
        history = history + ids(50 + turn, 40)
        known = world.lookup(history).num_tokens
        assert known == len(history) - 40
        world.chat(history)
        world.check()
