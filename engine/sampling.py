"""The definition of p, and the draw from it.

logits -> penalties -> temperature -> top-k -> top-p -> min-p; then the Gumbel-max draw with noise
keyed by (seed, absolute position, token id). The draw depends on nothing else, so seeded text is
the same with and without drafts, alone and in a batch: a draft is accepted iff it equals the draw
(a point mass under exact acceptance).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from hearth.engine.protocol import SamplingParams

Floats = "NDArray[np.float32]"


class TokenCounts:
    """What the penalties look at: ids of the prompt, and how often each id is in the reply."""

    def __init__(self, prompt_ids: Iterable[int]) -> None:
        self._prompt = frozenset(prompt_ids)
        self._reply: Counter[int] = Counter()

    def add(self, ids: Iterable[int]) -> None:
        self._reply.update(ids)

    def penalised(
        self, logits: NDArray[np.float32], params: SamplingParams, drafted: Sequence[int]
    ) -> NDArray[np.float32]:
        """A copy of ``logits`` with penalties for the prefix that ends with ``drafted``."""
        result = logits.copy()
        counts = self._reply + Counter(drafted)
        if params.repetition_penalty != 1.0:
            seen = _ids(self._prompt | counts.keys(), len(logits))
            values = result[seen]
            factor = np.float32(params.repetition_penalty)
            result[seen] = np.where(values > 0, values / factor, values * factor)
        if params.presence_penalty or params.frequency_penalty:
            seen = _ids(counts, len(logits))
            repeats = np.array([counts[int(i)] for i in seen], dtype=np.float32)
            result[seen] -= np.float32(params.presence_penalty) + repeats * np.float32(
                params.frequency_penalty
            )
        return result


def _ids(ids: Iterable[int], size: int) -> NDArray[np.int64]:
    return np.array(sorted(i for i in ids if i < size), dtype=np.int64)


def needs_counts(params: SamplingParams) -> bool:
    """Whether any penalty is on."""
    return (
        params.repetition_penalty != 1.0
        or params.presence_penalty != 0.0
        or params.frequency_penalty != 0.0
    )


def draw(logits: NDArray[np.float32], params: SamplingParams, position: int) -> int:
    """The token at absolute ``position``; ``logits`` float32 [V], penalties already applied.

    Greedy ties go to the lowest id.
    """
    if params.temperature == 0.0:
        return int(logits.argmax())
    ids, scaled = candidates(logits, params)
    noisy = scaled + gumbel(params.seed, position, ids)
    return int(ids[noisy.argmax()])


def candidates(
    logits: NDArray[np.float32], params: SamplingParams
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Ids that the filters keep, ascending, and their logits over the temperature (float64)."""
    ids = _top_k(logits, params.top_k)
    scaled = logits[ids].astype(np.float64) / params.temperature
    scaled -= scaled.max()
    if params.top_p < 1.0:
        keep = _top_p(scaled, params.top_p)
        ids, scaled = ids[keep], scaled[keep]
    if params.min_p > 0.0:
        keep = scaled >= np.log(params.min_p)
        ids, scaled = ids[keep], scaled[keep]
    return ids, scaled


def _top_k(logits: NDArray[np.float32], top_k: int) -> NDArray[np.int64]:
    """The k largest (all that tie with the k-th too), ascending by id; 0 keeps everything."""
    if top_k == 0 or top_k >= len(logits):
        return np.arange(len(logits))
    threshold = np.partition(logits, -top_k)[-top_k]
    return np.flatnonzero(logits >= threshold)


def _top_p(scaled: NDArray[np.float64], top_p: float) -> NDArray[np.int64]:
    """Indexes, ascending, of the smallest most likely set with at least ``top_p`` of the mass."""
    weights = np.exp(scaled)
    order = np.argsort(-weights, kind="stable")
    mass = np.cumsum(weights[order])
    count = int(np.searchsorted(mass, top_p * mass[-1])) + 1
    return np.sort(order[:count])


def probabilities(logits: NDArray[np.float32], params: SamplingParams) -> NDArray[np.float64]:
    """p over the whole vocabulary (tests and diagnostics)."""
    result = np.zeros(len(logits))
    if params.temperature == 0.0:
        result[int(logits.argmax())] = 1.0
        return result
    ids, scaled = candidates(logits, params)
    weights = np.exp(scaled)
    result[ids] = weights / weights.sum()
    return result


def gumbel(seed: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard Gumbel noise for each id, from a counter-based hash (splitmix64's finaliser)."""
    with np.errstate(over="ignore"):
        key = _mix(np.uint64(seed & 0xFFFFFFFFFFFFFFFF) + _GOLDEN)
        key = _mix(key ^ (np.uint64(position) + _GOLDEN))
        bits = _mix(key ^ _mix(ids.astype(np.uint64) + _GOLDEN))
    uniform = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54
    return -np.log(-np.log(uniform))


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64] | np.uint64:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
