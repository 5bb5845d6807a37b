"""How many drafted tokens are worth verifying, from this request's own record and measured times.

The depth never changes text (D1), only speed, so it may follow the clock and the recent past.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

DEPTHS = (0, 1, 3, 7, 15)
FIXED_DEPTH = 7  # for a drafting mode that the user has named
MTP_DEPTH = 3  # the module was trained for a few steps of its own
PRIOR_ACCEPTED, PRIOR_REJECTED = 1.0, 1.0  # a new request is neither a copy nor prose
MEMORY = 0.9  # weight of the past per round: about the last ten rounds count
MARGIN = 1.05  # drafting has to promise more than 5 % to be tried


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of a forward pass by its number of rows, measured on this machine."""

    rows: tuple[int, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        assert self.rows == tuple(sorted(self.rows)), "rows ascend"
        assert len(self.rows) == len(self.seconds) > 0, "one time per number of rows"

    def at(self, num_rows: int) -> float:
        """Linear between measured points, and with the last slope beyond them."""
        points = list(zip(self.rows, self.seconds, strict=True))
        for (r0, t0), (r1, t1) in pairwise(points):
            if num_rows <= r1:
                return t0 + (t1 - t0) * (num_rows - r0) / (r1 - r0)
        return points[-1][1] * num_rows / points[-1][0]


class DepthController:
    """One request's record of drafts: how likely the next drafted token is right."""

    def __init__(self, times: StepTimes) -> None:
        self._times = times
        self._accepted = PRIOR_ACCEPTED
        self._rejected = PRIOR_REJECTED

    @property
    def acceptance(self) -> float:
        return self._accepted / (self._accepted + self._rejected)

    def depth(self, other_rows: int) -> int:
        """The depth with the most expected tokens per second, beside ``other_rows`` in the pass."""
        plain = 1.0 / self._times.at(other_rows + 1)
        best, best_rate = 0, plain * MARGIN
        for depth in DEPTHS[1:]:
            rate = self._expected(depth) / self._times.at(other_rows + 1 + depth)
            if rate > best_rate:
                best, best_rate = depth, rate
        return best

    def _expected(self, depth: int) -> float:
        """Tokens of a round: 1 + p + p² + …"""
        p = self.acceptance
        return float(depth + 1) if p >= 1.0 else (1.0 - p ** (depth + 1)) / (1.0 - p)

    def learn(self, proposal: Sequence[int], emitted: Sequence[int]) -> None:
        """Compare a proposal with what came, whether it was verified or only watched."""
        compared = min(len(proposal), len(emitted))
        if compared == 0:
            return
        agreed = 0
        while agreed < compared and proposal[agreed] == emitted[agreed]:
            agreed += 1
        self._accepted = self._accepted * MEMORY + agreed
        self._rejected = self._rejected * MEMORY + (1.0 if agreed < compared else 0.0)
