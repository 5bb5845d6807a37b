"""Reasoning through the scheduler: events, the end, cancelling, and the same ids as without."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tiny_engine import Runner

from hearth.engine.protocol import Drafting, FinishReason, Prompt, SamplingParams, Turn
from hearth.engine.text.prompt import TextModel

if TYPE_CHECKING:
    from tiny_engine import Loaded

PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}<think>\n"
PROMPT = Prompt(turns=(Turn("user", "Why is the sky blue?"),))


@pytest.fixture
def thinker(tiny: Loaded) -> Runner:
    """The tiny model never writes </think>, so all that it says is reasoning."""
    return Runner(replace(tiny, text=TextModel(tiny.text.vocabulary, PLAIN)).model())


@pytest.mark.parametrize("drafting", [Drafting.OFF, Drafting.LOOKUP])
def test_reasoning_is_reported_apart(tiny: Loaded, thinker: Runner, drafting: Drafting) -> None:
    raw = list(thinker.model.text.build(PROMPT).ids)
    sampling = SamplingParams(temperature=1.0, seed=5)
    without = Runner(tiny.model()).run(raw, sampling=sampling)
    stop = without.text[3:6]
    stopping = replace(sampling, stop=(stop,))
    reply = thinker.run(PROMPT, sampling=stopping, drafting=drafting)
    assert reply.finished is not None
    assert reply.text == ""
    assert reply.finished.reasoning == without.text.strip(), "no stop string ends reasoning"
    assert "".join(event.reasoning for event in reply.tokens) == reply.finished.reasoning
    assert reply.ids == without.ids
    assert reply.reason is FinishReason.LENGTH


def test_cancelling_shows_what_was_held_back(thinker: Runner) -> None:
    name = thinker.submit(PROMPT, max_tokens=200)
    reply = thinker.replies[name]
    thinker.step(until=lambda: len(reply.tokens) >= 7)
    thinker.scheduler.cancel(name)
    assert reply.finished is not None
    assert reply.reason is FinishReason.CANCELLED
    assert "".join(event.reasoning for event in reply.tokens) == reply.finished.reasoning
    thinker.check()


def test_a_reply_stopped_inside_its_reasoning_is_continued_from_the_cache(thinker: Runner) -> None:
    first = thinker.run(PROMPT, max_tokens=70)
    history = first.prompt_ids + first.ids
    turns = (*PROMPT.turns, Turn("assistant", "", reasoning="so"), Turn("user", "Go on."))
    again = thinker.run(Prompt(turns=turns, history_ids=history, history_turns=2))
    assert again.prompt_ids[: len(history)] == history
    assert again.usage.reused_tokens >= len(first.prompt_ids)
