"""The same request gives the same tokens however it is run (decision D1): on a tiny model with
attention only, and on a hybrid whose state cannot go back."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tiny_engine import Loaded, Runner, prompt_ids

from hearth.engine.protocol import Drafting, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLINGS = {
    "greedy": SamplingParams(),
    "seeded": SamplingParams(temperature=0.9, top_k=50, top_p=0.95, min_p=0.01, seed=7),
    "penalties": SamplingParams(
        temperature=0.7,
        repetition_penalty=1.2,
        presence_penalty=0.3,
        frequency_penalty=0.2,
        seed=-3,
    ),
    "greedy with penalties": SamplingParams(repetition_penalty=1.3, frequency_penalty=0.1),
}
PROMPT = prompt_ids(1, 200)


@pytest.fixture(params=["tiny", "hybrid", "hybrid float16"])
def tiny(request: pytest.FixtureRequest) -> Loaded:
    name, _, dtype = request.param.partition(" ")
    loaded: Loaded = request.getfixturevalue(f"{name}_loaded" if name == "tiny" else name)
    return replace(loaded, state_dtype=dtype or "float32")


@pytest.fixture(params=SAMPLINGS.values(), ids=SAMPLINGS.keys())
def sampling(request: pytest.FixtureRequest) -> SamplingParams:
    return request.param  # type: ignore[no-any-return]


class SpoiledDrafter:
    """Knows the truth and spoils some of it, so that blocks are accepted to every length."""

    truth: Sequence[int] = ()
    spoil = 0.2

    def __init__(self) -> None:
        self._num_known = 0
        self._random = random.Random(5)

    def extend(self, ids: Sequence[int]) -> None:
        self._num_known += len(ids)

    def propose(self, depth: int) -> list[int]:
        right = self.truth[self._num_known : self._num_known + depth]
        return [
            self._random.randrange(256) if self._random.random() < self.spoil else token
            for token in right
        ]


def truth_of(tiny: Loaded, sampling: SamplingParams, count: int = 60) -> tuple[int, ...]:
    return Runner(tiny.model()).run(PROMPT, sampling=sampling, max_tokens=count).ids


def test_lookup_drafts_change_nothing(tiny: Loaded, sampling: SamplingParams) -> None:
    truth = truth_of(tiny, sampling)
    for drafting in (Drafting.LOOKUP, Drafting.AUTO):
        reply = Runner(tiny.model()).run(
            PROMPT, sampling=sampling, max_tokens=60, drafting=drafting
        )
        assert reply.ids == truth


@pytest.mark.parametrize("spoil", [0.0, 0.15, 0.5, 1.0])
@pytest.mark.parametrize("depth", [1, 7, 15])
def test_any_drafter_changes_nothing(
    tiny: Loaded,
    sampling: SamplingParams,
    spoil: float,
    depth: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    truth = truth_of(tiny, sampling)
    drafter = type("Drafter", (SpoiledDrafter,), {"truth": [*PROMPT, *truth], "spoil": spoil})
    monkeypatch.setattr("hearth.engine.sequence.LookupDrafter", drafter)
    monkeypatch.setattr("hearth.engine.sequence.FIXED_DEPTH", depth)
    reply = Runner(tiny.model()).run(
        PROMPT, sampling=sampling, max_tokens=60, drafting=Drafting.LOOKUP
    )
    assert reply.ids == truth
    accepted = [flag for event in reply.tokens for flag in event.drafted]
    assert sum(accepted) == reply.usage.accepted_tokens
    assert len(accepted) == 60
    if spoil == 0.0:
        assert reply.usage.accepted_tokens >= 59 * depth // (depth + 1)


def test_neighbours_change_nothing(tiny: Loaded, sampling: SamplingParams) -> None:
    """Requests come and go at different times, some of them drafting."""
    prompts = [prompt_ids(seed, 30 + 37 * seed) for seed in range(6)]
    alone = [Runner(tiny.model()).run(p, sampling=sampling).ids for p in prompts]
    runner = Runner(tiny.model())
    names = []
    for index, prompt in enumerate(prompts):
        drafting = Drafting.LOOKUP if index % 2 else Drafting.OFF
        names.append(runner.submit(prompt, sampling=sampling, drafting=drafting))
        for _ in range(3 * index):
            runner.scheduler.step()
    runner.step()
    runner.check()
    assert [runner.replies[name].ids for name in names] == alone


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64, 100, 127, 128, 129, 200, 256])
def test_chunk_sizes_change_nothing(tiny: Loaded, chunk: int) -> None:
    truth = truth_of(tiny, SAMPLINGS["greedy"], 20)
    assert Runner(tiny.model(chunk=chunk)).run(PROMPT, max_tokens=20).ids == truth


@pytest.mark.parametrize("length", [1, 2, 5, 127, 128, 129, 255, 256, 257])
def test_a_cached_prompt_changes_nothing(
    tiny: Loaded, sampling: SamplingParams, length: int
) -> None:
    """The same prompt again, and prompts that share beginnings of every kind."""
    prompt = prompt_ids(3, length)
    cold = Runner(tiny.model()).run(prompt, sampling=sampling).ids
    runner = Runner(tiny.model())
    assert runner.run(prompt, sampling=sampling).ids == cold
    again = runner.run(prompt, sampling=sampling)
    assert again.ids == cold
    assert again.usage.reused_tokens == length - 1
    for shared in {0, length // 2, length - 1}:
        other = prompt[:shared] + prompt_ids(4, 40)
        expected = Runner(tiny.model()).run(other, sampling=sampling).ids
        reply = runner.run(other, sampling=sampling)
        assert reply.ids == expected
        if tiny.weights.config.linear is None:
            assert reply.usage.reused_tokens == shared
        else:  # only where a snapshot was taken
            assert reply.usage.reused_tokens in (0, length - 1)
    assert runner.run(prompt, sampling=sampling).ids == cold


def test_a_follow_up_continues_as_if_never_stopped(tiny: Loaded, sampling: SamplingParams) -> None:
    """40 tokens at once equal 1 + 12 + 27 in three requests over the same cache."""
    truth = truth_of(tiny, sampling, 40)
    runner = Runner(tiny.model())
    ids: list[int] = list(PROMPT)
    for count in (1, 12, 27):
        reply = runner.run(ids, sampling=sampling, max_tokens=count, drafting=Drafting.LOOKUP)
        if sampling.repetition_penalty == 1.0 and not sampling.presence_penalty:
            assert reply.ids == truth[len(ids) - len(PROMPT) :][:count]
        if len(ids) > len(PROMPT):
            assert reply.usage.reused_tokens >= len(ids) - 1
        ids += reply.ids


def test_identical_prompts_together(tiny: Loaded, sampling: SamplingParams) -> None:
    truth = truth_of(tiny, sampling, 40)
    runner = Runner(tiny.model())
    names = [runner.submit(PROMPT, sampling=sampling) for _ in range(5)]
    runner.step()
    runner.check()
    assert all(runner.replies[name].ids == truth for name in names)


def test_different_seeds_differ(tiny: Loaded) -> None:
    runner = Runner(tiny.model())
    texts = {
        runner.run(PROMPT, sampling=SamplingParams(temperature=1.0, seed=seed)).ids
        for seed in (0, 1, -1, 2**63, 2**64 - 1)
    }
    assert len(texts) == 4  # -1 and 2**64 - 1 are the same 64 bits
