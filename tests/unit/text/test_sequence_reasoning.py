"""Reasoning in a request: rounds of several tokens, stop strings, cancelling, the end."""

from __future__ import annotations

import pytest
from family import FAMILY, text_model

from hearth.engine.draft.depth import StepTimes
from hearth.engine.events import EventQueue
from hearth.engine.protocol import (
    FinishReason,
    Prompt,
    Request,
    SamplingParams,
    Thinking,
    Tokens,
    Turn,
)
from hearth.engine.sequence import Sequence

TEXT = text_model(FAMILY)
END, CLOSE, CALL = 257, 259, 260


def sequence(*stop: str, thinks: bool = True, max_tokens: int | None = None) -> Sequence:
    prompt = Prompt(turns=(Turn("user", "Hi"),), thinking=Thinking(enabled=thinks))
    sampling = SamplingParams(stop=stop)
    request = Request("r", prompt, sampling, max_tokens=max_tokens)
    return Sequence(
        request,
        TEXT.build(prompt),
        TEXT,
        StepTimes((1, 16), (1.0, 2.0)),
        slot=0,
        submitted=0.0,
        context_length=1000,
    )


def spell(*parts: str | int) -> list[int]:
    ids: list[int] = []
    for part in parts:
        ids += [part] if isinstance(part, int) else TEXT.vocabulary.encode(part)
    return ids


def run(one: Sequence, ids: list[int], step: int) -> tuple[str, str]:
    """Commit ids in rounds of ``step``; what the rounds showed."""
    reasoning = text = ""
    for start in range(0, len(ids), step):
        if one.finish_reason is None:
            emitted = one.commit(ids[start : start + step])
            reasoning, text = reasoning + emitted.reasoning, text + emitted.text
    return reasoning, text


REPLY = spell("I thínk\n", CLOSE, "\n\nYés, it stops", END)


@pytest.mark.parametrize("step", range(1, len(REPLY) + 2))
def test_rounds_of_any_size_show_the_same(step: int) -> None:
    one = sequence()
    assert run(one, REPLY, step) == ("I thínk", "Yés, it stops")
    assert (one.shown_reasoning, one.shown_text) == ("I thínk", "Yés, it stops")
    assert one.reply_ids == REPLY
    assert one.finish_reason is FinishReason.END_OF_TURN


@pytest.mark.parametrize("step", [1, 3, 100])
@pytest.mark.parametrize(
    ("stop", "text", "kept"),
    [
        ("it", "Yés, ", spell("I thínk\n", CLOSE, "\n\nYés, ")),
        ("Y", "", spell("I thínk\n", CLOSE)),
        ("thínk", "Yés, it stops", REPLY),
    ],
)
def test_stop_strings_look_at_the_answer_only(
    stop: str, text: str, kept: list[int], step: int
) -> None:
    one = sequence(stop)
    assert run(one, REPLY, step) == ("I thínk", text)
    assert one.reply_ids == kept


@pytest.mark.parametrize("step", [1, 3, 100])
@pytest.mark.parametrize(
    ("stop", "text", "kept"), [("x", "  ", "\n  "), ("  x", "", ""), ("=", "  x ", "\n  x ")]
)
def test_stop_strings_behind_an_indentation(stop: str, text: str, kept: str, step: int) -> None:
    one = sequence(stop)
    assert run(one, spell("so", CLOSE, "\n  x = 1"), step) == ("so", text)
    assert one.reply_ids == spell("so", CLOSE, kept)


def test_cancelling_inside_the_reasoning_keeps_it() -> None:
    one = sequence()
    half = spell("I thí")[:-1]
    reasoning, text = run(one, half, 2)
    rest = one.finish(FinishReason.CANCELLED)
    assert (reasoning + rest.reasoning, text + rest.text) == ("I th\ufffd", "")
    assert one.reply_ids == half


def test_reasoning_counts_as_tokens_of_the_reply() -> None:
    one = sequence(max_tokens=4)
    assert run(one, spell("a b c d"), 2) == ("a b", "")
    assert one.finish_reason is FinishReason.LENGTH
    assert one.reply_ids == spell("a b ")


def test_a_call_ends_the_reasoning_and_stays_as_text() -> None:
    one = sequence()
    assert run(one, spell("so ", CALL, "f", 261, END), 2) == ("so", "<tool_call>f</tool_call>")


def test_without_thinking_nothing_changes() -> None:
    one = sequence(thinks=False)
    assert run(one, spell(" \n</think> a ", END), 2) == ("", " \n</think> a ")


def test_waiting_events_are_joined() -> None:
    queue = EventQueue(None)
    queue.push(Tokens("r", "", (1,), (False,), "so "))
    queue.push(Tokens("r", "Yes", (2, 3), (False, True), "it is"))
    assert queue.take() == [Tokens("r", "Yes", (1, 2, 3), (False, False, True), "so it is")]
