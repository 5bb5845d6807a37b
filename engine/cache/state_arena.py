"""Recurrent and convolution state of every running request: two copies and a window each.

Which copy is current, how many tokens it has seen and how many rows of the window behind it are
kept is decided here; the kernels follow it through a table (kernels/segments.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hearth.kernels.deltanet import DeltaShape
from hearth.kernels.segments import StateView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearth.engine.model.config import LinearAttention

LOST = -1 << 40  # the position of a state that fits no text
STATE_DTYPES = {"float32": torch.float32, "float16": torch.float16}


@dataclass(slots=True)
class SlotState:
    """One request's state: copy ``side`` has seen ``num_tokens``; the first ``num_kept`` of
    ``num_rows`` rows in the window come behind them."""

    side: int = 0
    num_tokens: int = 0
    num_rows: int = 0
    num_kept: int = 0

    @property
    def position(self) -> int:
        """Tokens that the next row comes behind."""
        return self.num_tokens + self.num_kept


def delta_shape(sizes: LinearAttention) -> DeltaShape:
    return DeltaShape(
        sizes.num_key_heads,
        sizes.num_value_heads,
        sizes.key_head_dim,
        sizes.value_head_dim,
        sizes.is_tiled,
    )


def state_bytes(sizes: LinearAttention, *, window_rows: int, dtype: str) -> int:
    """What one request needs in one layer: two copies, and two windows."""
    matrix = sizes.num_value_heads * sizes.key_head_dim * sizes.value_head_dim
    channels = sizes.conv_dim
    row = channels + (channels - sizes.key_size) + 2 * sizes.num_value_heads
    floats = (sizes.conv_kernel_dim - 1) * channels + window_rows * row
    return 2 * (matrix * STATE_DTYPES[dtype].itemsize + 4 * floats)


class StateArena:
    """Owns the tensors; engine thread only. Memory is touched when a slot is first used."""

    def __init__(
        self,
        sizes: LinearAttention,
        *,
        num_layers: int,
        num_slots: int,
        window_rows: int,
        dtype: str = "float32",
    ) -> None:
        lead = (2, num_slots, num_layers)
        channels, heads = sizes.conv_dim, sizes.num_value_heads
        of_layer = delta_shape(sizes).state_shape
        self.recurrent = torch.empty(*lead, *of_layer, dtype=STATE_DTYPES[dtype])
        self.conv = torch.empty(*lead, sizes.conv_kernel_dim - 1, channels)
        self._raw = torch.empty(*lead, window_rows, channels)
        self._keys_values = torch.empty(*lead, window_rows, channels - sizes.key_size)
        self._gates = torch.empty(*lead, window_rows, 2 * heads)
        self._window_rows = window_rows
        self._slots = [SlotState() for _ in range(num_slots)]

    def view(self, layer: int) -> StateView:
        """The part of one linear layer."""
        parts = (self.recurrent, self.conv, self._raw, self._keys_values, self._gates)
        return StateView(*(part[:, :, layer] for part in parts))

    def __getitem__(self, slot: int) -> SlotState:
        return self._slots[slot]

    # ----------------------------------------------------------------------------------- one pass

    def line(self, slot: int, first_row: int, num_rows: int, *, commits: bool) -> tuple[int, ...]:
        """The table's line for a segment of this request, whose state moves on with the pass."""
        state = self._slots[slot]
        assert commits or num_rows <= self._window_rows, "what may be dropped fits the window"
        line = (first_row, num_rows, slot, state.side, state.num_kept, int(commits))
        state.side = 1 - state.side
        state.num_tokens += state.num_kept + (num_rows if commits else 0)
        state.num_rows, state.num_kept = (0 if commits else num_rows), 0
        return line

    def keep(self, slot: int, num_rows: int) -> None:
        """The first ``num_rows`` of the last pass's rows are part of the text. Negative: tokens
        that the state has seen were taken back (a stop string): it belongs to no text any more."""
        state = self._slots[slot]
        assert num_rows <= state.num_rows, "only rows of the window can be kept"
        if num_rows < 0:
            state.num_tokens = LOST
        state.num_kept = max(num_rows, 0)

    # ---------------------------------------------------------------------------------- snapshots

    @property
    def snapshot_bytes(self) -> int:
        return self.recurrent[0, 0].nbytes + self.conv[0, 0].nbytes

    def snapshot(self, slot: int) -> dict[str, torch.Tensor]:
        """A copy of a state that has no rows left in its window."""
        state = self._slots[slot]
        assert state.num_kept == 0, "kept rows are replayed before a snapshot is taken"
        return {
            "recurrent": self.recurrent[state.side, slot].clone(),
            "conv": self.conv[state.side, slot].clone(),
        }

    def fits(self, tensors: Mapping[str, torch.Tensor]) -> bool:
        """Whether a snapshot (which may come from disk) is one of this model's."""
        wanted = {"recurrent": self.recurrent[0, 0], "conv": self.conv[0, 0]}
        return all(
            name in tensors
            and tensors[name].shape == part.shape
            and tensors[name].dtype == part.dtype
            for name, part in wanted.items()
        )

    def begin(self, slot: int, tensors: Mapping[str, torch.Tensor], num_tokens: int) -> None:
        """Go on behind ``num_tokens`` from a snapshot that fits; from zeros before the first."""
        assert num_tokens == 0 or self.fits(tensors), "the snapshot is one of this model's"
        self._slots[slot] = SlotState(num_tokens=num_tokens)
        if num_tokens:
            self.recurrent[0, slot] = tensors["recurrent"]
            self.conv[0, slot] = tensors["conv"]
        else:
            self.recurrent[0, slot] = 0.0
            self.conv[0, slot] = 0.0
