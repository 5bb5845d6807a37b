"""The lookup drafter against a direct reading of its rule, and the controller of the depth."""

from __future__ import annotations

import random
from itertools import chain

import pytest

from hearth.engine.draft.depth import DepthController, StepTimes
from hearth.engine.draft.lookup import MAX_MATCH, MIN_MATCH, LookupDrafter


def slow_proposal(history: list[int], depth: int) -> list[int]:
    """Every candidate end, its match length; longest (capped) and then most recent wins."""
    last = len(history) - 1
    best: tuple[int, int] | None = None
    for end in range(MIN_MATCH - 1, last):
        length = 0
        while (
            length < MAX_MATCH and length <= end and history[end - length] == history[last - length]
        ):
            length += 1
        if length >= MIN_MATCH and (best is None or (length, end) > best):
            best = (length, end)
    if len(history) < MIN_MATCH + 2 or best is None:
        return []
    text = list(history)
    for place in range(best[1] + 1, best[1] + 1 + depth):
        text.append(text[place])
    return text[len(history) :]


@pytest.mark.parametrize("alphabet", [1, 2, 3, 5])
def test_proposals_follow_the_rule(alphabet: int) -> None:
    source = random.Random(alphabet)
    drafter, history = LookupDrafter(), []
    for _ in range(120):
        added = [source.randrange(alphabet) for _ in range(source.randrange(1, 6))]
        history += added
        drafter.extend(added)
        depth = source.randrange(16)
        assert drafter.propose(depth) == slow_proposal(history, depth)


def test_a_copy_is_proposed_and_a_period_goes_on_without_end() -> None:
    text = list(range(40))
    drafter = LookupDrafter()
    drafter.extend([*text, 99, *text[:10]])
    assert drafter.propose(15) == text[10:25]
    wave = LookupDrafter()
    wave.extend([1, 2, 3] * 5)
    assert wave.propose(15) == [1, 2, 3] * 5


@pytest.mark.parametrize("count", range(MIN_MATCH + 2))
def test_short_histories_have_no_match(count: int) -> None:
    drafter = LookupDrafter()
    drafter.extend([7] * count)
    assert drafter.propose(15) == ([] if count < MIN_MATCH + 2 else [7] * 15)


def test_the_newest_of_equally_long_matches_wins() -> None:
    suffix = list(range(20))
    drafter = LookupDrafter()
    drafter.extend(chain(suffix, [100], suffix, [200], suffix[-MIN_MATCH:]))
    assert drafter.propose(1) == [200]


# ------------------------------------------------------------------------------------------- depth

CHEAP = StepTimes((1, 16), (1.0, 1.5))  # a graphics card: rows are nearly free
CPU = StepTimes((1, 2, 4, 8, 16), (6.4, 7.1, 8.4, 15.7, 34.1))  # starter model, 2 cores
PRICEY = StepTimes((1, 2), (1.0, 2.0))  # every row costs a pass


def after(times: StepTimes, *rounds: tuple[int, int]) -> DepthController:
    """A controller that has seen rounds of (proposed, of them right)."""
    controller = DepthController(times)
    for proposed, right in rounds:
        proposal = list(range(proposed))
        emitted = [*proposal[:right], 999]
        controller.learn(proposal, emitted)
    return controller


def test_times_between_and_beyond_the_measured_ones() -> None:
    assert CPU.at(1) == 6.4
    assert CPU.at(3) == pytest.approx(7.75)
    assert CPU.at(16) == 34.1
    assert CPU.at(32) == pytest.approx(68.2)


def test_a_running_copy_gets_the_deepest_block() -> None:
    assert after(CHEAP, *[(15, 15)] * 4).depth(0) == 15


def test_rejections_lead_to_none_and_agreement_back() -> None:
    controller = after(CPU, *[(7, 0)] * 12)
    assert controller.depth(0) == 0
    for _ in range(8):  # watched, not verified: one proposed token that came true
        controller.learn([5], [5])
    assert controller.depth(0) > 0


def test_rows_that_cost_a_pass_each_are_never_worth_it() -> None:
    assert after(PRICEY, *[(15, 15)] * 20).depth(0) == 0


def test_no_proposal_teaches_nothing() -> None:
    controller = DepthController(CPU)
    before = controller.acceptance
    controller.learn([], [1])
    controller.learn([1], [])
    assert controller.acceptance == before


def test_beside_many_replies_depth_falls() -> None:
    controller = after(CPU, *[(3, 2)] * 10)
    assert controller.depth(14) <= controller.depth(0)
