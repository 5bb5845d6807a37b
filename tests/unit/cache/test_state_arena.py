"""Which copy of a state is current, what its window holds, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from hearth.engine.cache.state_arena import StateArena, state_bytes
from hearth.engine.model.config import LinearAttention

SIZES = LinearAttention(
    num_key_heads=1, num_value_heads=2, key_head_dim=16, value_head_dim=16, conv_kernel_dim=4
)


@pytest.fixture
def arena() -> StateArena:
    arena = StateArena(SIZES, num_layers=3, num_slots=2, window_rows=8)
    arena.begin(1, {}, 0)
    return arena


def test_rows_that_may_be_dropped_must_fit_the_window(arena: StateArena) -> None:
    with pytest.raises(AssertionError, match="fits the window"):
        arena.line(1, 0, 9, commits=False)
    arena.line(1, 0, 900, commits=True)
    assert arena[1].position == 900


def test_kept_rows_count_when_they_are_replayed(arena: StateArena) -> None:
    arena.line(1, 0, 5, commits=True)
    assert arena.line(1, 0, 8, commits=False)[3:5] == (1, 0)
    arena.keep(1, 3)
    assert arena[1].position == 8
    first_row, num_rows, slot, side, replayed, commits = arena.line(1, 4, 2, commits=False)
    assert (first_row, num_rows, slot, side, replayed, commits) == (4, 2, 1, 0, 3, 0)
    assert arena[1].num_tokens == 8


def test_more_rows_than_there_were_cannot_be_kept(arena: StateArena) -> None:
    arena.line(1, 0, 2, commits=False)
    with pytest.raises(AssertionError, match="only rows of the window"):
        arena.keep(1, 3)


def test_a_state_whose_tokens_were_taken_back_fits_no_text(arena: StateArena) -> None:
    arena.line(1, 0, 9, commits=True)
    arena.line(1, 0, 2, commits=False)
    arena.keep(1, -4)
    assert arena[1].position < 0


def test_a_snapshot_of_another_model_does_not_fit(arena: StateArena) -> None:
    snapshot = arena.snapshot(1)
    assert arena.fits(snapshot)
    assert not arena.fits(snapshot | {"conv": torch.zeros(3, 3, 7)})
    assert not arena.fits(snapshot | {"recurrent": snapshot["recurrent"].half()})
    assert not arena.fits({"conv": snapshot["conv"]})


def test_a_slot_takes_what_is_said(arena: StateArena) -> None:
    parts = arena.view(0)
    stored = (parts.recurrent, parts.conv, parts.raw, parts.keys_values, parts.gates)
    of_slot = sum(part[:, 0].numel() * part.element_size() for part in stored)
    assert state_bytes(SIZES, window_rows=8, dtype="float32") == of_slot
