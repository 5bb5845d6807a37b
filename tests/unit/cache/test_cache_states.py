"""Snapshots for recurrent models: a hit ends exactly where a state is, in memory and on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from cache_world import PAGE, World, state_for

from hearth.engine.cache.states import StatePayload

if TYPE_CHECKING:
    from pathlib import Path

IDS = list(range(1000, 1600))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(folder=tmp_path, requires_state=True)


def test_a_payload_survives_its_bytes() -> None:
    state = StatePayload({"s": torch.randn(3, 4).half(), "conv": torch.arange(5.0)})
    again = StatePayload.from_bytes(state.to_bytes())
    assert again is not None
    assert again.tensors.keys() == state.tensors.keys()
    for name, tensor in state.tensors.items():
        assert torch.equal(again.tensors[name], tensor)
        assert again.tensors[name].dtype == tensor.dtype
    assert state.num_bytes == again.num_bytes == 24 + 20
    assert StatePayload.from_bytes(b"not a payload at all") is None


def test_a_hit_ends_at_a_snapshot(world: World) -> None:
    world.chat(IDS[:400], [50, 200, 256])
    for count, known in [(50, 0), (51, 50), (200, 50), (201, 200), (256, 200), (257, 256)]:
        assert world.lookup(IDS[:count]).num_tokens == known
    assert world.lookup([*IDS[:400], 1]).num_tokens == 400
    assert world.lookup([*IDS[:399], 1, 2]).num_tokens == 256


def test_pages_without_a_snapshot_are_no_hit(world: World) -> None:
    request = world.run(IDS[:300])
    assert request is not None
    other = World(requires_state=True)
    other.cache.insert([], [])
    pages = [other.cache.allocate() for _ in range(3)]
    other.cache.insert(IDS[:300], [page for page in pages if page is not None])
    assert other.cache.lookup(IDS[:301]).num_tokens == 0


@pytest.mark.parametrize("grown", [60, PAGE, 300])
def test_a_snapshot_stays_when_its_page_fills_up(world: World, grown: int) -> None:
    world.chat(IDS[:50])
    world.chat(IDS[:grown])
    assert world.lookup([*IDS[:50], 1]).num_tokens == 50
    assert world.lookup([*IDS[:55], 1]).num_tokens == 50
    assert len(world.cache.pages()) == -(-grown // PAGE)
    world.check()


def test_a_snapshot_is_found_in_whichever_branch_holds_it(world: World) -> None:
    world.chat([*IDS[:50], 1, 2, 3])
    world.chat([*IDS[:50], 4, 5, 6], [40])
    world.chat([*IDS[:50], 7, 8, 9])
    assert world.lookup([*IDS[:50], 10]).num_tokens == 40
    assert world.lookup([*IDS[:50], 1, 2, 3, 4]).num_tokens == 53


def test_snapshots_come_back_from_disk(world: World) -> None:
    world.chat(IDS[:400], [50, 200, 256])
    assert world.save() == 4
    assert world.save() == 0
    assert len(world.files(".state")) == 4
    for count, known in [(50, 0), (51, 50), (201, 200), (257, 256), (400, 256), (401, 400)]:
        world.restart()
        found = world.lookup(IDS[:count])
        assert (found.num_tokens, found.restored_tokens) == (known, known)
        assert world.lookup(IDS[:count]).restored_tokens == 0
        world.check()


def test_a_new_snapshot_of_a_saved_page_is_saved_alone(world: World) -> None:
    world.chat(IDS[:PAGE])
    world.save()
    world.chat(IDS[:PAGE], [60])
    before = world.files()
    world.chat([*IDS[:60], 1])
    world.cache.insert(IDS[:60], world.cache.pages(), state_for(IDS[:60]))
    world.save()
    added = set(world.files()) - set(before)
    assert {path.suffix for path in added} == {".state", ".tail"}
    world.restart()
    assert world.lookup([*IDS[:60], 2]).num_tokens == 60


@pytest.mark.parametrize("damage", ["gone", "short", "flipped", "other"])
def test_a_lost_snapshot_costs_its_distance_to_the_one_before(world: World, damage: str) -> None:
    world.chat(IDS[:400], [50, 200, 300])
    world.save()
    victims = [path for path in world.files(".state") if path.name.split("-")[1] == "016"]
    assert len(victims) == 1  # 400 = 3 * 128 + 16
    others = [path for path in world.files(".state") if path not in victims]
    data = victims[0].read_bytes()
    match damage:
        case "gone":
            victims[0].unlink()
        case "short":
            victims[0].write_bytes(data[:-1])
        case "flipped":
            victims[0].write_bytes(data[:150] + bytes([data[150] ^ 1]) + data[151:])
        case "other":
            victims[0].write_bytes(others[0].read_bytes())
    world.restart()
    assert world.lookup([*IDS[:400], 1]).num_tokens == 300
    world.check()


def test_a_lost_page_costs_its_distance_to_the_snapshot_before(world: World) -> None:
    world.chat(IDS[:400], [50, 200, 300])
    world.save()
    page_sizes = {path: path.stat().st_size for path in world.files(".page")}
    assert len(page_sizes) == 3
    by_depth = sorted(page_sizes, key=lambda path: path.stat().st_mtime_ns)
    by_depth[2].write_bytes(b"")
    world.restart()
    assert world.lookup([*IDS[:400], 1]).num_tokens == 200
    world.check()


def test_a_state_alone_may_come_from_disk(world: World) -> None:
    """The pages are in memory, one snapshot of them only on disk."""
    world.chat(IDS[:250], [100, 200])
    world.save()
    world.restart()
    assert world.lookup([*IDS[:200], 1]).num_tokens == 200
    found = world.lookup([*IDS[:250], 1])
    assert (found.num_tokens, found.reused_tokens, found.restored_tokens) == (250, 250, 0)
    assert world.lookup([*IDS[:100], 1]).num_tokens == 100


def test_short_of_memory_a_leaf_without_snapshot_goes_first() -> None:
    world = World(num_pages=4, requires_state=True)
    pages = [world.cache.allocate() for _ in range(2)]
    owned = [page for page in pages if page is not None]
    world.chat([5, 6, 7])
    world.cache.insert(IDS[:256], owned)  # newer, but nothing can go on from it
    for page in owned:
        world.arena.release(page)
    world.chat([8, 9])
    world.chat([10, 11])
    assert world.lookup([5, 6, 7, 8]).num_tokens == 3
    world.check()


def test_no_memory_for_a_restore_leaves_what_is_known(world: World) -> None:
    world.num_pages = 5
    world.restart()
    world.chat(IDS[:400], [100])
    world.save()
    world.restart()
    assert world.lookup([*IDS[:100], 1]).num_tokens == 100
    holder = world.run([1] * 500)
    assert holder is not None
    found = world.lookup([*IDS[:400], 1])
    assert found.num_tokens in {0, 100}
    world.check()
