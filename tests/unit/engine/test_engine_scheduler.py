"""Admission, cancelling, memory pressure, and every way a reply ends."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tiny_engine import CONTEXT, END_ID, Loaded, Runner, prompt_ids, with_end

from hearth.engine.protocol import Drafting, FinishReason, Prompt, SamplingParams, Turn

PROMPT = prompt_ids(11, 150)
SEEDED = SamplingParams(temperature=1.0, seed=3)


def truth(tiny: Loaded, count: int = 60, sampling: SamplingParams = SEEDED) -> tuple[int, ...]:
    return Runner(tiny.model()).run(PROMPT, max_tokens=count, sampling=sampling).ids


def test_the_tiny_model_is_worth_testing(tiny: Loaded) -> None:
    """Its greedy text depends on the whole prompt and is no single repeated token."""
    runner = Runner(tiny.model())
    first = runner.run(PROMPT, max_tokens=60).ids
    other = runner.run([PROMPT[0] ^ 1, *PROMPT[1:]], max_tokens=60).ids
    assert len(set(first)) > 20
    assert first != other


# ------------------------------------------------------------------------------------- what is said


def test_reading_comes_first_and_counts(tiny: Loaded) -> None:
    runner = Runner(tiny.model(chunk=64))
    reply = runner.run(PROMPT)
    assert reply.prompt_ids == tuple(PROMPT)
    assert [event.done_tokens for event in reply.reading] == [0, 64, 128, 150]
    assert all(event.prompt_ids is None for event in reply.reading[1:])
    usage = reply.usage
    assert (usage.prompt_tokens, usage.computed_tokens, usage.output_tokens) == (150, 150, 40)
    assert usage.rounds == 40
    again = runner.run([*PROMPT, *reply.ids, 5])
    assert again.reading[0].done_tokens == again.reading[0].reused_tokens == 189
    assert again.usage.computed_tokens == 2


def test_a_chat_is_rendered_and_its_history_is_not(tiny: Loaded) -> None:
    runner = Runner(tiny.model())
    first = Prompt(turns=(Turn("user", "the house <|im_end|> ~ ß"),))
    reply = runner.run(first, sampling=SEEDED)
    assert reply.prompt_ids.count(END_ID) == 1, "what the user typed is no control token"
    history = reply.prompt_ids + reply.ids
    turns = (*first.turns, Turn("assistant", "not what was said"), Turn("user", "go on"))
    follow = runner.run(Prompt(turns, history_ids=history, history_turns=2), sampling=SEEDED)
    assert follow.prompt_ids[: len(history)] == history
    assert follow.usage.reused_tokens == len(history) - 1


def test_a_long_prompt_asks_to_be_saved_while_the_reply_runs(tiny: Loaded) -> None:
    """Whatever the last piece's size: 300 tokens are pieces of 256 and 44."""
    runner = Runner(tiny.model(chunk=256))
    name = runner.submit(prompt_ids(1, 300))
    while not runner.replies[name].tokens:
        assert not runner.scheduler.wants_save, "nothing could be saved yet"
        runner.scheduler.step()
    assert runner.scheduler.wants_save
    runner.step()


def test_a_short_prompt_is_saved_with_its_reply(tiny: Loaded) -> None:
    runner = Runner(tiny.model())
    name = runner.submit(prompt_ids(1, 20))
    while not runner.replies[name].tokens:
        runner.scheduler.step()
    assert not runner.scheduler.wants_save
    runner.step()
    assert runner.scheduler.wants_save
    private = Runner(tiny.model())
    private.run(prompt_ids(1, 300), use_cache=False)
    assert not private.scheduler.wants_save


# ---------------------------------------------------------------------------------- how replies end


@pytest.mark.parametrize("drafting", [Drafting.OFF, Drafting.LOOKUP])
def test_length(tiny: Loaded, drafting: Drafting) -> None:
    expected = truth(tiny)
    for count in (1, 2, 9):
        reply = Runner(tiny.model()).run(
            PROMPT, max_tokens=count, sampling=SEEDED, drafting=drafting
        )
        assert reply.reason is FinishReason.LENGTH
        assert reply.ids == expected[:count]


@pytest.mark.parametrize("drafting", [Drafting.OFF, Drafting.LOOKUP])
def test_the_context_fills_up_and_never_shifts(tiny: Loaded, drafting: Drafting) -> None:
    prompt = prompt_ids(12, 200)
    whole = Runner(tiny.model()).run(prompt, max_tokens=100, drafting=drafting)
    runner = Runner(tiny.model(context=256))
    reply = runner.run(prompt, max_tokens=None, drafting=drafting)
    assert reply.reason is FinishReason.CONTEXT_FULL
    assert reply.ids == whole.ids[:56]
    exact = runner.run(prompt, max_tokens=56, drafting=drafting)
    assert exact.reason is FinishReason.CONTEXT_FULL
    assert exact.ids == reply.ids


def test_a_prompt_of_all_but_one_token_of_the_context(tiny: Loaded) -> None:
    reply = Runner(tiny.model(context=256)).run(prompt_ids(1, 255), max_tokens=None)
    assert (reply.reason, len(reply.ids)) == (FinishReason.CONTEXT_FULL, 1)


def test_a_prompt_beyond_the_context_is_refused_with_numbers(tiny: Loaded) -> None:
    runner = Runner(tiny.model(context=256))
    for length in (256, 300):
        reply = runner.run(prompt_ids(1, length))
        assert reply.failed is not None
        assert f"{length}" in reply.failed.message
        assert "256" in reply.failed.message
        assert not reply.reading
    assert runner.run(prompt_ids(1, 20)).reason is FinishReason.LENGTH


def test_an_empty_prompt_is_refused(tiny: Loaded) -> None:
    assert Runner(tiny.model()).run([]).failed is not None


@pytest.mark.parametrize("place", [0, 1, 4, 13])
@pytest.mark.parametrize("drafting", [Drafting.OFF, Drafting.LOOKUP])
def test_end_of_turn(
    tiny: Loaded, place: int, drafting: Drafting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also inside an accepted block: what was drafted behind the end is dropped everywhere."""
    expected = truth(tiny)
    end = expected[place]
    place = expected.index(end)
    draft_the_truth(monkeypatch, expected)
    runner = Runner(with_end(tiny, end).model())
    reply = runner.run(PROMPT, sampling=SEEDED, ignore_end=False, drafting=drafting)
    assert reply.reason is FinishReason.END_OF_TURN
    assert reply.ids == expected[: place + 1]
    assert_continues(runner, tiny, [*PROMPT, *reply.ids])


def draft_the_truth(monkeypatch: pytest.MonkeyPatch, expected: tuple[int, ...]) -> None:
    class Oracle:
        def __init__(self) -> None:
            self.known = 0

        def extend(self, ids: list[int]) -> None:
            self.known += len(ids)

        def propose(self, depth: int) -> list[int]:
            start = self.known - len(PROMPT)
            return list(expected[start : start + depth])

    monkeypatch.setattr("hearth.engine.sequence.LookupDrafter", Oracle)


def assert_continues(runner: Runner, tiny: Loaded, history: list[int]) -> None:
    """A follow-up over the kept cache equals a cold run, and reads almost nothing again."""
    prompt = [*history, *prompt_ids(77, 9)]
    cold = Runner(tiny.model()).run(prompt, sampling=SEEDED)
    warm = runner.run(prompt, sampling=SEEDED, ignore_end=True)
    shared = min(len(cold.ids), len(warm.ids))
    assert warm.ids == cold.ids[:shared]
    assert shared > 0
    assert warm.usage.reused_tokens >= len(history) - 1


@pytest.mark.parametrize("drafting", [Drafting.OFF, Drafting.LOOKUP])
@pytest.mark.parametrize("start", [0, 3, 10, 25])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_stop_strings(
    tiny: Loaded, start: int, length: int, drafting: Drafting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut exactly, across tokens; ids are those whose text is shown."""
    sampling = SamplingParams(temperature=1.0, seed=5, top_k=200)
    whole = Runner(tiny.model()).run(PROMPT, sampling=sampling, max_tokens=60)
    draft_the_truth(monkeypatch, whole.ids)
    stop = whole.text[start : start + length]
    stopping = SamplingParams(temperature=1.0, seed=5, top_k=200, stop=("never this", stop))
    runner = Runner(tiny.model())
    reply = runner.run(PROMPT, sampling=stopping, max_tokens=60, drafting=drafting)
    assert reply.reason is FinishReason.STOP_STRING
    assert reply.text == whole.text[: whole.text.index(stop)]
    assert reply.ids == whole.ids[: len(reply.ids)]
    decoded = tiny.text.vocabulary.decode(reply.ids)
    assert decoded.startswith(reply.text)
    without_last = tiny.text.vocabulary.decode(reply.ids[:-1])
    assert not reply.ids or len(without_last) < len(reply.text) or "\ufffd" in without_last
    assert_continues(runner, tiny, [*PROMPT, *reply.ids])


def test_a_held_back_beginning_of_a_stop_string_is_shown_at_the_end(tiny: Loaded) -> None:
    whole = Runner(tiny.model()).run(PROMPT, sampling=SEEDED, max_tokens=20)
    stop = whole.text[-3:] + "never"
    sampling = SamplingParams(temperature=1.0, seed=3, stop=(stop,))
    reply = Runner(tiny.model()).run(PROMPT, sampling=sampling, max_tokens=20)
    assert (reply.reason, reply.text) == (FinishReason.LENGTH, whole.text)


# ------------------------------------------------------------------------------------------- cancel


@pytest.mark.parametrize("num_steps", [1, 2, 3, 4, 7, 9])
@pytest.mark.parametrize("drafting", [Drafting.OFF, Drafting.LOOKUP])
def test_cancel_within_one_step(
    tiny: Loaded, num_steps: int, drafting: Drafting, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = truth(tiny)
    draft_the_truth(monkeypatch, expected)
    runner = Runner(tiny.model(chunk=64))
    name = runner.submit(PROMPT, sampling=SEEDED, drafting=drafting, max_tokens=60)
    for _ in range(num_steps):
        runner.scheduler.step()
    runner.scheduler.cancel(name)
    runner.check()
    reply = runner.replies[name]
    assert reply.reason is FinishReason.CANCELLED
    assert reply.ids == expected[: len(reply.ids)]
    history = [*PROMPT, *reply.ids]
    if num_steps < 3:  # the prompt was not read yet: what was read is kept
        assert runner.run(PROMPT, sampling=SEEDED).usage.reused_tokens == 64 * num_steps
    else:
        assert_continues(runner, tiny, history)


def test_cancel_what_waits_or_is_unknown(tiny: Loaded) -> None:
    runner = Runner(tiny.model(max_requests=1))
    first, second, third = (runner.submit(prompt_ids(i, 10)) for i in range(3))
    runner.scheduler.step()
    runner.scheduler.cancel(second)
    runner.scheduler.cancel("nobody")
    runner.step()
    runner.check()
    runner.scheduler.cancel(first)
    assert runner.replies[second].failed is not None
    assert runner.replies[first].reason is runner.replies[third].reason is FinishReason.LENGTH


def test_cancel_all(tiny: Loaded) -> None:
    runner = Runner(tiny.model(max_requests=2))
    names = [runner.submit(prompt_ids(i, 10)) for i in range(4)]
    runner.scheduler.step()
    runner.scheduler.cancel_all()
    runner.check()
    assert all(runner.replies[n].finished or runner.replies[n].failed for n in names)


# --------------------------------------------------------------------------------------- sharing


def test_more_requests_than_places_run_in_order(tiny: Loaded) -> None:
    runner = Runner(tiny.model(max_requests=2))
    names = [runner.submit(prompt_ids(i, 20 + i), max_tokens=5 + i) for i in range(7)]
    alone = [
        Runner(tiny.model()).run(prompt_ids(i, 20 + i), max_tokens=5 + i).ids for i in range(7)
    ]
    runner.step()
    runner.check()
    assert [runner.replies[name].ids for name in names] == alone


def test_a_short_question_does_not_wait_for_a_long_document(tiny: Loaded) -> None:
    runner = Runner(tiny.model(chunk=64))
    long = runner.submit(prompt_ids(1, 900), max_tokens=4)
    runner.scheduler.step()
    short = runner.submit(prompt_ids(2, 20), max_tokens=4)
    for _ in range(6):
        runner.scheduler.step()
    assert runner.replies[short].finished is not None
    assert not runner.replies[long].tokens
    runner.step()
    runner.check()


def test_running_replies_go_on_while_a_document_is_read(tiny: Loaded) -> None:
    """Every pass that reads gives each running reply its next token."""
    runner = Runner(tiny.model(chunk=64))
    talking = runner.submit(prompt_ids(1, 20), max_tokens=60)
    runner.scheduler.step()
    reading = runner.submit(prompt_ids(2, 640), max_tokens=4)
    while not runner.replies[reading].tokens:
        before = len(runner.replies[talking].tokens)
        runner.scheduler.step()
        assert len(runner.replies[talking].tokens) == before + 1
    steps = [event.done_tokens for event in runner.replies[reading].reading]
    assert max(b - a for a, b in pairwise(steps)) <= 32, "short passes beside a reply"
    runner.step()
    runner.check()


# ------------------------------------------------------------------------------------ memory


def test_the_cache_gives_way_to_requests(tiny: Loaded) -> None:
    """Nine pages: one context and one spare. Forty chats through it, all equal to cold runs."""
    runner = Runner(tiny.model(num_pages=9))
    for seed in range(12):
        prompt = prompt_ids(seed % 5, 100 + 70 * (seed % 11))
        cold = Runner(tiny.model()).run(prompt, max_tokens=30)
        assert runner.run(prompt, max_tokens=30).ids == cold.ids


def test_a_whole_context_fits_beside_its_own_kept_prefix(tiny: Loaded) -> None:
    runner = Runner(tiny.model(num_pages=9))
    prompt = prompt_ids(1, CONTEXT - 60)
    first = runner.run(prompt, max_tokens=None)
    again = runner.run(prompt, max_tokens=None)
    assert first.reason is again.reason is FinishReason.CONTEXT_FULL
    assert first.ids == again.ids
    assert again.usage.reused_tokens == len(prompt) - 1


@pytest.mark.parametrize("num_pages", [9, 12, 17])
def test_requests_that_do_not_fit_together_take_turns(tiny: Loaded, num_pages: int) -> None:
    """Four chats of up to five pages each over nine pages: some give up theirs and go on later,
    nobody fails, and no token changes."""
    prompts = [prompt_ids(seed, 250 + 90 * seed) for seed in range(4)]
    options = {"max_tokens": 150, "sampling": SEEDED}
    alone = [Runner(tiny.model()).run(p, **options).ids for p in prompts]
    runner = Runner(tiny.model(num_pages=num_pages))
    names = [
        runner.submit(p, drafting=Drafting.LOOKUP if i % 2 else Drafting.OFF, **options)
        for i, p in enumerate(prompts)
    ]
    runner.step()
    runner.check()
    assert [runner.replies[name].ids for name in names] == alone


def test_a_request_without_cache_leaves_nothing(tiny: Loaded) -> None:
    runner = Runner(tiny.model())
    first = runner.run(PROMPT, use_cache=False)
    assert runner.model.arena.num_free == runner.model.arena.num_pages
    assert runner.run(PROMPT).usage.reused_tokens == 0
    hidden = runner.run(PROMPT, use_cache=False)
    assert hidden.usage.reused_tokens == 0
    assert hidden.ids == first.ids


def test_paused_requests_can_be_cancelled(tiny: Loaded) -> None:
    runner = Runner(tiny.model(num_pages=9))
    names = [runner.submit(prompt_ids(i, 600), max_tokens=300) for i in range(3)]
    for _ in range(60):
        runner.scheduler.step()
    for name in reversed(names):
        runner.scheduler.cancel(name)
    runner.check()
    assert all(runner.replies[n].reason is FinishReason.CANCELLED for n in names)
    assert runner.run(prompt_ids(0, 600)).reason is FinishReason.LENGTH


# ------------------------------------------------------------------------------------------ errors


def test_numbers_that_are_none_end_one_request_with_a_sentence(tiny: Loaded) -> None:
    model = tiny.model()
    runner = Runner(model)
    good = runner.submit(prompt_ids(1, 10))
    bad = runner.submit(prompt_ids(2, 10))
    runner.scheduler.step()
    forward = model.decoder.forward

    def broken(*sizes: Any) -> object:
        logits = forward(*sizes)
        logits[1:] = np.nan
        return logits

    model.decoder.forward = broken  # type: ignore[method-assign, assignment]
    runner.scheduler.step()
    model.decoder.forward = forward  # type: ignore[method-assign]
    runner.step()
    runner.check()
    assert runner.replies[good].reason is FinishReason.LENGTH
    failed = runner.replies[bad].failed
    assert failed is not None
    assert "not numbers" in failed.message


def test_after_an_unexpected_error_everything_is_given_back(tiny: Loaded) -> None:
    model = tiny.model(max_requests=2)
    runner = Runner(model)
    names = [runner.submit(prompt_ids(i, 10)) for i in range(4)]
    runner.scheduler.step()
    runner.scheduler.fail_all("It broke.")
    runner.check()
    assert all(runner.replies[n].failed for n in names)
    more = [runner.submit(prompt_ids(i, 10)) for i in range(4)]
    runner.step()
    runner.check()
    assert all(runner.replies[n].finished for n in more)
