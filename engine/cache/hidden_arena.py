"""The final hidden states that the MTP module still needs: those of each request's last rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(slots=True)
class SlotRows:
    """Row ``last`` of the slot's rows belongs to the last kept token; None before the first."""

    last: int | None = None


class HiddenArena:
    """Owns float32 [slots, window rows, H]; engine thread only."""

    def __init__(self, num_slots: int, window_rows: int, hidden_size: int) -> None:
        self._rows = torch.zeros(num_slots, window_rows, hidden_size)
        self._slots = [SlotRows() for _ in range(num_slots)]

    def last(self, slot: int) -> torch.Tensor | None:
        """float32 [H] of the last kept token, a view."""
        row = self._slots[slot].last
        return None if row is None else self._rows[slot, row]

    def take(self, slot: int, hidden: torch.Tensor, *, commits: bool) -> None:
        """Rows [n, H] of a pass; without ``commits`` it is said later how many are kept."""
        rows = hidden[-1:] if commits else hidden
        self._rows[slot, : len(rows)] = rows
        self._slots[slot].last = len(rows) - 1

    def keep(self, slot: int, num_rows: int) -> None:
        """The first ``num_rows`` of the rows taken are kept. Without any, tokens before them were
        taken back too (a stop string), and nothing goes on from here."""
        self._slots[slot].last = num_rows - 1 if num_rows > 0 else None

    def begin(self, slot: int, hidden: torch.Tensor | None) -> None:
        """Go on behind a token with this state [H]; None: before the first."""
        self._slots[slot].last = None if hidden is None else 0
        if hidden is not None:
            self._rows[slot, 0] = hidden
