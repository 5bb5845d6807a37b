"""Drafting with the model's own MTP module changes nothing but speed, and what the module keeps is
the same whatever was drafted before."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tiny_engine import Loaded, Runner, prompt_ids

from hearth.engine.protocol import Drafting, SamplingParams
from hearth.engine.sequence import Sequence

if TYPE_CHECKING:
    from numpy.typing import NDArray

PROMPT = prompt_ids(1, 150)
SAMPLINGS = [SamplingParams(), SamplingParams(temperature=0.9, top_p=0.95, seed=3)]
Seen = dict[int, "NDArray[np.float32]"]


@pytest.fixture(params=SAMPLINGS, ids=["greedy", "seeded"])
def sampling(request: pytest.FixtureRequest) -> SamplingParams:
    return request.param  # type: ignore[no-any-return]


def script(monkeypatch: pytest.MonkeyPatch, truth: list[int], spoil: float) -> Seen:
    """Drafts become the truth, some of it spoiled. Returns the first step's logits of every round
    by the number of known tokens."""
    seen: Seen = {}
    chance = random.Random(9)

    def guess(self: Sequence, logits: NDArray[np.float32], place: int) -> int:
        at = len(self.ids) + place
        if place == 0:
            seen[at] = logits.copy()
        is_right = at < len(truth) and chance.random() >= spoil
        return truth[at] if is_right else chance.randrange(256)

    monkeypatch.setattr(Sequence, "guess", guess)
    return seen


def test_text_is_the_same(hybrid: Loaded, sampling: SamplingParams) -> None:
    truth = Runner(hybrid.model()).run(PROMPT, sampling=sampling).ids
    reply = Runner(hybrid.model()).run(PROMPT, sampling=sampling, drafting=Drafting.MTP)
    assert reply.ids == truth
    assert reply.usage.drafted_tokens > 60


@pytest.mark.parametrize("spoil", [0.0, 0.3, 1.0])
def test_what_is_kept_is_the_same_whatever_was_drafted(
    hybrid: Loaded, sampling: SamplingParams, spoil: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = Runner(hybrid.model()).run(PROMPT, sampling=sampling).ids
    expected = script(monkeypatch, [], 1.0)
    options: dict[str, Any] = {"sampling": sampling, "drafting": Drafting.MTP}
    assert Runner(hybrid.model()).run(PROMPT, **options).ids == truth
    seen = script(monkeypatch, [*PROMPT, *truth], spoil)
    reply = Runner(hybrid.model()).run(PROMPT, **options)
    assert reply.ids == truth
    if spoil == 0.0:
        assert reply.usage.tokens_per_round is not None
        assert reply.usage.tokens_per_round > 3.0
    assert all(np.array_equal(seen[count], expected[count]) for count in seen)


def test_cuts_neighbours_and_resuming_change_no_draft(
    hybrid: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module's logits behind the whole text, computed in five ways."""
    options: dict[str, Any] = {"drafting": Drafting.MTP, "max_tokens": 4}
    expected = script(monkeypatch, [], 1.0)
    text = [*PROMPT, *Runner(hybrid.model()).run(PROMPT, drafting=Drafting.MTP).ids]
    for chunk in (1, 7, 64, 200):
        seen = script(monkeypatch, [], 1.0)
        Runner(hybrid.model(chunk=chunk)).run(text[:170], **options)
        assert np.array_equal(seen[171], expected[171])
    seen = script(monkeypatch, [], 1.0)
    runner = Runner(hybrid.model())
    runner.run(text[:165], **options)
    assert runner.run(text[:170], **options).usage.reused_tokens > 160
    assert np.array_equal(seen[171], expected[171])
    seen = script(monkeypatch, [], 1.0)
    runner = Runner(hybrid.model())
    runner.submit(text[:170], **options)
    for seed in (1, 2):
        runner.submit(prompt_ids(seed, 40), **(options | {"drafting": Drafting.OFF}))
    runner.step()
    assert np.array_equal(seen[171], expected[171])


def test_without_the_module_it_is_refused(tiny: Loaded) -> None:
    runner = Runner(tiny.model())
    name = runner.submit([1, 2, 3], drafting=Drafting.MTP)
    runner.step()
    failed = runner.replies[name].failed
    assert failed is not None
    assert "no MTP module" in failed.message
