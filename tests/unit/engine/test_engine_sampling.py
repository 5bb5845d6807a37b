"""The definition of p and the draw from it, against a slow reading of the definition."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from hearth.engine.errors import MachineError
from hearth.engine.protocol import SamplingParams
from hearth.engine.sampling import TokenCounts, candidates, draw, gumbel, probabilities

VOCAB = 500


def random_logits(seed: int, size: int = VOCAB) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(size) * 3).astype(np.float32)


def slow_probabilities(logits: np.ndarray, params: SamplingParams) -> dict[int, float]:
    """One step after the other over sorted lists."""
    ranked = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if params.top_k:
        last = logits[ranked[min(params.top_k, len(ranked)) - 1]]
        ranked = [i for i in ranked if logits[i] >= last]
    weights = {i: math.exp(float(logits[i]) / params.temperature) for i in ranked}
    if params.top_p < 1.0:
        wanted, mass, kept = params.top_p * sum(weights.values()), 0.0, {}
        for token in ranked:
            kept[token] = weights[token]
            mass += weights[token]
            if mass >= wanted:
                break
        weights = kept
    if params.min_p > 0.0:
        least = params.min_p * max(weights.values())
        weights = {i: w for i, w in weights.items() if w >= least}
    total = sum(weights.values())
    return {i: w / total for i, w in weights.items()}


@pytest.mark.parametrize("top_k", [0, 1, 2, 40, 64, 65, 499, 500, 10_000])
@pytest.mark.parametrize("top_p", [1.0, 0.999, 0.9, 0.3, 0.001])
@pytest.mark.parametrize("min_p", [0.0, 0.05])
def test_filters_follow_the_definition(top_k: int, top_p: float, min_p: float) -> None:
    for seed in range(4):
        params = SamplingParams(temperature=0.5 + seed / 2, top_k=top_k, top_p=top_p, min_p=min_p)
        logits = random_logits(seed)
        slow = slow_probabilities(logits, params)
        fast = probabilities(logits, params)
        assert set(np.flatnonzero(fast)) == set(slow)
        assert all(abs(fast[i] - p) < 1e-9 for i, p in slow.items())


def test_ties_at_the_kth_value_are_all_kept() -> None:
    logits = np.array([1, 3, 2, 2, 2, 0], dtype=np.float32)
    ids, _ = candidates(logits, SamplingParams(temperature=1.0, top_k=2))
    assert ids.tolist() == [1, 2, 3, 4]


def test_greedy_ties_go_to_the_lowest_id() -> None:
    assert draw(np.array([0, 5, 1, 5], dtype=np.float32), SamplingParams(), 3) == 1


def test_all_equal_logits_and_extreme_temperatures() -> None:
    flat = np.zeros(VOCAB, dtype=np.float32)
    ids, _ = candidates(flat, SamplingParams(temperature=1.0, top_p=0.5))
    assert len(ids) == VOCAB // 2
    logits = random_logits(1)
    for temperature in (1e-6, 1e-3, 1e6):
        drawn = draw(logits, SamplingParams(temperature=temperature, seed=1), 0)
        assert 0 <= drawn < VOCAB
    assert draw(logits, SamplingParams(temperature=1e-6), 0) == logits.argmax()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_no_numbers_are_an_error(bad: float) -> None:
    logits = random_logits(1)
    logits[17] = bad
    for params in (SamplingParams(), SamplingParams(temperature=1.0, top_k=5)):
        with pytest.raises(MachineError):
            draw(logits, params, 0)


# ------------------------------------------------------------------------------------------- noise


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.7, top_k=6),
        SamplingParams(temperature=1.5, top_p=0.8, min_p=0.05),
    ],
)
def test_draws_follow_p(params: SamplingParams) -> None:
    """Chi-squared over 8,000 positions; and over 8,000 seeds at one position."""
    logits = random_logits(4, 10) / 2
    p = probabilities(logits, params)
    support = np.flatnonzero(p)
    count = 8_000
    for by_seed in (False, True):
        drawn = Counter(
            draw(logits, SamplingParams(**_options(params), seed=n), 7)
            if by_seed
            else draw(logits, SamplingParams(**_options(params), seed=99), n)
            for n in range(count)
        )
        assert set(drawn) <= set(support.tolist())
        chi2 = sum((drawn[i] - count * p[i]) ** 2 / (count * p[i]) for i in support)
        degrees = len(support) - 1
        assert chi2 < degrees + 5 * (2 * degrees) ** 0.5, f"chi2 {chi2:.1f} for {degrees}"


def _options(params: SamplingParams) -> dict[str, float]:
    names = ("temperature", "top_k", "top_p", "min_p")
    return {name: getattr(params, name) for name in names}


def test_neighbouring_positions_are_independent() -> None:
    noise = np.stack([gumbel(5, position, np.arange(2)) for position in range(20_000)])
    first = noise[:, 0].argsort().argsort().astype(float)
    for other in (noise[:, 1], np.roll(noise[:, 0], 1)):
        rank = other.argsort().argsort().astype(float)
        assert abs(np.corrcoef(first, rank)[0, 1]) < 0.03


def test_noise_depends_on_seed_position_and_id_alone() -> None:
    """Whatever else is a candidate, an id's noise stays."""
    whole = gumbel(3, 11, np.arange(100))
    some = np.array([5, 50, 99])
    assert gumbel(3, 11, some).tolist() == whole[some].tolist()
    assert np.isfinite(whole).all()
    for seed, position in ((4, 11), (3, 12), (3, 2**40)):
        assert not (gumbel(seed, position, np.arange(100)) == whole).any()


# --------------------------------------------------------------------------------------- penalties


def slow_penalties(
    logits: np.ndarray, params: SamplingParams, prompt: list[int], reply: list[int]
) -> np.ndarray:
    result = logits.copy()
    for token in set(prompt) | set(reply):
        factor = np.float32(params.repetition_penalty)
        result[token] = result[token] / factor if result[token] > 0 else result[token] * factor
    for token, times in Counter(reply).items():
        result[token] -= np.float32(params.presence_penalty)
        result[token] -= np.float32(times) * np.float32(params.frequency_penalty)
    return result


@pytest.mark.parametrize("drafted", [[], [3], [3, 3, 400, 7]])
def test_penalties_look_at_the_tentative_prefix(drafted: list[int]) -> None:
    params = SamplingParams(
        repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.25, temperature=1.0
    )
    prompt, reply = [1, 2, 2, 300], [2, 5, 5, 7]
    counts = TokenCounts([*prompt, VOCAB + 5], VOCAB)  # padding ids of another file are ignored
    counts.add(reply[:2])
    counts.add(reply[2:])
    logits = random_logits(2)
    before = logits.copy()
    for _ in range(2):  # looking changes nothing
        result = counts.penalised(logits, params, drafted)
        assert np.array_equal(result, slow_penalties(logits, params, prompt, reply + drafted))
        assert np.array_equal(logits, before)
