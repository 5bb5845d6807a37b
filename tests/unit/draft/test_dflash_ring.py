"""The ring of a drafter's layer: whatever was written, the last rows lie in order."""

from __future__ import annotations

import pytest
import torch

from hearth.engine.draft.dflash_context import FIRST_SLOTS, LayerRing


@pytest.mark.parametrize("window", [None, 2, 12, FIRST_SLOTS, FIRST_SLOTS + 1, 700])
@pytest.mark.parametrize("sizes", [(1500,), (1, 600, 1, 1, 897), (3,) * 500, (255, 2, 511, 2)])
@pytest.mark.parametrize("start", [0, 1001])
def test_the_last_rows_in_order(window: int | None, sizes: tuple[int, ...], start: int) -> None:
    ring, done = LayerRing(2, window), 0
    rows = torch.arange(3000.0).view(1500, 2)
    for size in sizes:
        chunk = rows[done : done + size]
        ring.write(start + done, chunk, -chunk)
        done += size
        kept = done if window is None else min(done, window - 1)
        keys, values = ring.view().ordered()
        assert torch.equal(keys, rows[done - kept : done])
        assert torch.equal(values, -keys)
    assert (ring.first, ring.end) == (start + done - kept, start + done)


def test_room_is_taken_when_it_is_needed() -> None:
    """A window from a file must not reserve gigabytes for a short chat."""
    ring = LayerRing(2, 1 << 26)
    ring.write(5, torch.zeros(3, 2), torch.zeros(3, 2))
    assert ring.view().keys.shape[0] == FIRST_SLOTS


def test_a_gap_is_a_bug() -> None:
    ring = LayerRing(2, 8)
    ring.write(5, torch.zeros(3, 2), torch.zeros(3, 2))
    with pytest.raises(AssertionError, match="follow each other"):
        ring.write(9, torch.zeros(1, 2), torch.zeros(1, 2))
