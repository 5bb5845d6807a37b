"""From a drafter's logits to drafted tokens: a walk over the candidates of each row.

DFlash2's rows depend on each other by edges between neighbouring tokens; the first DFlash's are
independent. Either way a token comes with the very distribution that it was drawn from, which an
exact acceptance test needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from hearth.engine.sampling import gumbel
from hearth.kernels.embed import embed
from hearth.kernels.linear import linear
from hearth.kernels.selector import edge_scores, top_candidates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hearth.engine.draft.dflash_weights import SelectorWeights
    from hearth.kernels.packing import PackedLinear

INDEPENDENT_CANDIDATES = 64  # of a row without a selector; any q is exact, more only costs memory


class Draw(Protocol):
    """How a token is drawn from its row."""

    @property
    def temperature(self) -> float: ...

    def pick(self, position: int, ids: NDArray[np.int64], q: NDArray[np.float64]) -> int:
        """Index into ``ids`` (ascending) of the token at ``position``, whose law is ``q``."""


@dataclass(frozen=True, slots=True)
class UniformDraw:
    """By inverse distribution function of ``noise``: token position -> a number in [0, 1)."""

    temperature: float
    noise: Mapping[int, float]

    def pick(self, position: int, ids: NDArray[np.int64], q: NDArray[np.float64]) -> int:
        index = int(np.searchsorted(np.cumsum(q), self.noise[position], side="right"))
        return min(index, len(ids) - 1)  # the sum of q may fall short of 1 by a rounding


@dataclass(frozen=True, slots=True)
class CoupledDraw:
    """With the noise that the target's own draw at that position will use: where both laws agree,
    so do the tokens. For an acceptance that compares draws, never for one that compares laws."""

    temperature: float
    seed: int

    def pick(self, position: int, ids: NDArray[np.int64], q: NDArray[np.float64]) -> int:
        with np.errstate(divide="ignore"):
            return int(np.argmax(np.log(q) + gumbel(self.seed, position, ids)))


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A realised row: the candidates' ids, ascending, and the law that the token was drawn from.

    A greedy draft is a point mass.
    """

    ids: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    def __post_init__(self) -> None:
        assert len(self.ids) == len(self.probabilities), "a probability for every candidate"
        assert abs(float(self.probabilities.sum()) - 1.0) < 1e-9, "probabilities sum to one"


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafted tokens behind an anchor, and the row that each came from."""

    ids: tuple[int, ...]
    rows: tuple[Row, ...]


class Lattice:
    """One request's rows: hidden [K, H] behind the drafter's norm, logits [K, ids that exist]."""

    def __init__(
        self,
        hidden: torch.Tensor,
        logits: torch.Tensor,
        selector: SelectorWeights | None,
        num_candidates: int,
    ) -> None:
        self._logits = logits
        self._selector = selector
        self._num_candidates = num_candidates
        self._projected = None if selector is None else _projected(hidden, selector)

    def walk(self, anchor_id: int, anchor_position: int, draw: Draw | None) -> Proposal:
        """Greedy without a ``draw``; ties go to the lowest id."""
        ids: list[int] = []
        rows: list[Row] = []
        before = anchor_id
        for index in range(len(self._logits)):
            candidates, scores = self._scores(index, before)
            q, chosen = _drawn(candidates, scores, anchor_position + 1 + index, draw)
            before = int(candidates[chosen])
            ids.append(before)
            rows.append(Row(candidates, q))
        return Proposal(tuple(ids), tuple(rows))

    def _scores(self, index: int, before: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Candidates of a row and their scores behind the token ``before``, computed in float32."""
        logits = self._logits[index]
        candidates = top_candidates(logits, self._num_candidates)
        scores = logits[candidates]
        if self._selector is not None and self._projected is not None:
            (predecessor,) = _codebook_rows(torch.tensor([before]), self._selector.predecessors)
            successors = _codebook_rows(candidates, self._selector.successors)
            scores = edge_scores(scores, predecessor, self._projected[index], successors)
        return candidates.numpy(), scores.double().numpy()


def _drawn(
    ids: NDArray[np.int64], scores: NDArray[np.float64], position: int, draw: Draw | None
) -> tuple[NDArray[np.float64], int]:
    """The law of a row's token, and the index of the token."""
    if draw is None:
        best = int(scores.argmax())
        return (np.arange(len(ids)) == best).astype(np.float64), best
    assert draw.temperature > 0.0, "a draw at temperature zero is greedy"
    scaled = scores / draw.temperature
    weights = np.exp(scaled - scaled.max())
    q = weights / weights.sum()
    return q, draw.pick(position, ids, q)


def _projected(hidden: torch.Tensor, selector: SelectorWeights) -> torch.Tensor:
    out = torch.empty(len(hidden), selector.projection.shape[0])
    linear(hidden, selector.projection, out)
    return out


def _codebook_rows(ids: torch.Tensor, codebook: PackedLinear) -> torch.Tensor:
    out = torch.empty(len(ids), codebook.shape[1])
    embed(ids.int(), codebook, out)
    return out
