"""Which rows of a pass continue which recurrent state, and how.

A segment is a run of consecutive positions of one request. A verify pass cannot know which of its
rows will be kept, so it writes no state behind them: it reads the committed state, replays the rows
that the pass before kept, writes that, and goes on from there for its own rows, whose inputs it
leaves in a window. A pass over rows that are kept for certain (a prompt) commits them at once.

Every request has two copies of its state. A pass reads copy ``side`` and writes the other one, so
that nothing read in a pass is written in it, whatever the order of its chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from typing import Any

FIRST_ROW, NUM_ROWS, SLOT, SIDE, NUM_REPLAYED, COMMITS = range(6)
TABLE_COLUMNS = 8


@dataclass(frozen=True, slots=True)
class Segments:
    """The segments of one pass.

    table int32 [S, 8]: first row, number of rows (0: only replay), slot of the state (negative: no
    segment), side to read, rows of the window to replay, whether the rows are kept for certain.
    row_segment int32 [M]: each row's segment.
    """

    table: torch.Tensor
    row_segment: torch.Tensor

    def __post_init__(self) -> None:
        assert self.table.dtype == self.row_segment.dtype == torch.int32, "indexes are int32"
        assert self.table.shape[1] == TABLE_COLUMNS, "the table has its columns"

    @property
    def count(self) -> int:
        return self.table.shape[0]

    def read(self, index: int) -> list[int]:
        """One segment's fields (for references)."""
        return [int(value) for value in self.table[index]]


@dataclass(frozen=True, slots=True)
class StateView:
    """One layer's part of the state of every request; float32 but for ``recurrent``, which may be
    float16. The first two dimensions are side and slot.

    recurrent [2, R, Hv, tiles, Dk, tile] (``DeltaShape.state_shape``); conv [2, R, K - 1, C]: raw
    rows, oldest first; and the windows: raw [2, R, W, C], keys_values
    [2, R, W, Hk * Dk + Hv * Dv], gates [2, R, W, 2 * Hv].
    """

    recurrent: torch.Tensor
    conv: torch.Tensor
    raw: torch.Tensor
    keys_values: torch.Tensor
    gates: torch.Tensor


def strides(tensor: torch.Tensor) -> tuple[int, int]:
    """Elements from one side, and from one slot, to the next."""
    return tensor.stride(0), tensor.stride(1)


class SegmentReader:
    """Reads one segment's fields inside a kernel."""

    def __init__(self, kernel: Any, table: Any, index: Any) -> None:
        from hearth.kernels.emit import i64

        self._kernel = kernel
        self._line = kernel.at(table, kernel.b.mul(index, i64(TABLE_COLUMNS)))
        self.side = self.field(SIDE)
        self.slot = self.field(SLOT)

    def field(self, column: int) -> Any:
        from hearth.kernels.emit import I64, i64

        return self._kernel.b.sext(self._kernel.load(self._line, i64(column)), I64)

    def is_live(self) -> Any:
        from hearth.kernels.emit import i64

        return self._kernel.b.icmp_signed(">=", self.slot, i64(0))

    def commits(self) -> Any:
        from hearth.kernels.emit import i64

        return self._kernel.b.icmp_signed("!=", self.field(COMMITS), i64(0))

    def at(self, base: Any, side_stride: Any, slot_stride: Any, *, written: bool) -> Any:
        """Where this request's part of a state tensor begins, on the side read or written."""
        from hearth.kernels.emit import i64

        b = self._kernel.b
        side = b.sub(i64(1), self.side) if written else self.side
        offset = b.add(b.mul(side, side_stride), b.mul(self.slot, slot_stride))
        return self._kernel.at(base, offset)
