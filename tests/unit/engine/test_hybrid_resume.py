"""A hybrid goes on from snapshots as if it had never stopped: follow-up, retry, edit, branch, after
a restart, after being killed, and with prompts of every length behind a hit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
import torch
from tiny_engine import Loaded, Reply, Runner, prompt_ids

from hearth.engine.cache.disk import DiskTier, ModelKey
from hearth.engine.cache.prefix import PrefixCache
from hearth.engine.protocol import Drafting, FinishReason, Prompt, SamplingParams, Turn
from hearth.engine.snapshots import EVERY_TOKENS, snapshot_points
from hearth.engine.text.prompt import BuiltPrompt

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hearth.engine.rows import Model

SYSTEM = Turn("system", "Answer in one line. " * 6)


@pytest.fixture(params=["float32", "float16"])
def loaded(hybrid: Loaded, request: pytest.FixtureRequest) -> Loaded:
    return replace(hybrid, state_dtype=request.param)


def save(model: Model) -> None:
    """What the engine's saver does, at once."""
    for job in model.cache.unsaved():
        job.write()
        model.arena.release(job.page)


def on_disk(loaded: Loaded, folder: Path) -> Callable[[], Runner]:
    """Starts the program anew over the same folder."""

    def start() -> Runner:
        model = loaded.model()
        config, page_floats = loaded.weights.config, model.arena.page_bytes // 4
        num_layers = config.num_attention_layers
        key = ModelKey("w", "a", "float32", page_floats, num_layers, "r", head_dim=config.head_dim)
        started = loaded.model(disk=DiskTier(folder, key))
        started.arena.pages.fill_(float("nan"))  # what is not restored must not be read
        return Runner(started)

    return start


@dataclass
class Chat:
    """Turns and the ids really run, as the application keeps them."""

    turns: tuple[Turn, ...]
    ids: tuple[int, ...] = ()
    num_covered: int = 0

    def ask(self, runner: Runner, text: str, *, cold: bool = False, tokens: int = 20) -> Reply:
        prompt = Prompt((*self.turns, Turn("user", text)), self.ids, self.num_covered)
        drafting = Drafting.OFF if cold else Drafting.LOOKUP
        return runner.run(prompt, max_tokens=tokens, use_cache=not cold, drafting=drafting)

    def after(self, text: str, reply: Reply) -> Chat:
        turns = (*self.turns, Turn("user", text), Turn("assistant", reply.text))
        return Chat(turns, (*reply.prompt_ids, *reply.ids), len(turns))


def check(chat: Chat, runner: Runner, cold: Runner, text: str) -> Reply:
    """The reply equals the one that is computed from nothing."""
    reply = chat.ask(runner, text)
    assert reply.ids == chat.ask(cold, text, cold=True).ids
    return reply


def test_follow_up_retry_edit_and_branch(loaded: Loaded) -> None:
    runner, cold = Runner(loaded.model()), Runner(loaded.model())
    start = Chat((SYSTEM,))
    first = check(start, runner, cold, "What is a lighthouse?")
    after_first = start.after("What is a lighthouse?", first)
    second = check(after_first, runner, cold, "And who keeps it?")
    assert second.usage.reused_tokens >= len(after_first.ids) - 1, "all but the last, not run token"
    after_second = after_first.after("And who keeps it?", second)
    third = check(after_second, runner, cold, "Why?")
    assert third.usage.reused_tokens >= len(after_second.ids) - 1
    retry = check(after_first, runner, cold, "And who keeps it?")
    assert retry.usage.prompt_tokens - retry.usage.reused_tokens < 15, "the turn is not read again"
    edit = check(after_first, runner, cold, "And who built it?")
    assert edit.usage.reused_tokens >= len(after_first.ids) - 1
    other = check(start, runner, cold, "What is a pier?")
    assert other.usage.reused_tokens > len(SYSTEM.text), "the system prompt is not read again"
    branch = check(after_first.after("And who built it?", edit), runner, cold, "When?")
    assert branch.usage.reused_tokens > edit.usage.prompt_tokens


def test_the_same_after_a_restart(loaded: Loaded, tmp_path: Path) -> None:
    start, cold = on_disk(loaded, tmp_path), Runner(loaded.model())
    runner, chat = start(), Chat((SYSTEM,))
    for text in ("What is a lighthouse?", "And who keeps it?"):
        reply = check(chat, runner, cold, text)
        chat = chat.after(text, reply)
    save(runner.model)
    reply = check(chat, start(), cold, "Why?")
    assert reply.usage.restored_tokens >= len(chat.ids) - 1
    assert reply.usage.reused_tokens == 0


def test_the_same_after_being_killed_in_a_reply(loaded: Loaded, tmp_path: Path) -> None:
    start, cold = on_disk(loaded, tmp_path), Runner(loaded.model())
    runner, chat = start(), Chat((SYSTEM,))
    prompt = Prompt((*chat.turns, Turn("user", "Tell me about the sea. " * 20)))
    name = runner.submit(prompt, max_tokens=200, drafting=Drafting.LOOKUP)
    runner.step(until=lambda: len(runner.replies[name].tokens) > 12)
    save(runner.model)  # nothing that happens later reaches the disk
    shown = runner.replies[name]
    ids = [token for event in shown.tokens for token in event.token_ids]
    text = "".join(event.text for event in shown.tokens)
    turns = (*prompt.turns, Turn("assistant", text))
    chat = Chat(turns, (*shown.prompt_ids, *ids), len(turns))
    reply = check(chat, start(), cold, "Go on.")
    assert reply.usage.restored_tokens > 400, "the prompt is not read again"


@pytest.mark.slow
def test_tails_of_every_length_behind_a_hit(hybrid: Loaded) -> None:
    """1 to 130 tokens behind a snapshot, whatever page and chunk they end in."""
    runner, cold = Runner(hybrid.model()), Runner(hybrid.model())
    head = prompt_ids(11, 170)
    runner.run(head, max_tokens=1)
    for length in range(1, 131):
        prompt = [*head, length, *prompt_ids(100 + length, length - 1)]  # unlike any before it
        reply = runner.run(prompt, max_tokens=8)
        assert reply.ids == cold.run(prompt, max_tokens=8, use_cache=False).ids
        assert reply.usage.reused_tokens == len(head)


def test_a_stop_string_over_several_rounds(loaded: Loaded) -> None:
    """Tokens that the state has seen are taken back: it is not kept, and nothing is wrong."""
    runner, cold = Runner(loaded.model()), Runner(loaded.model())
    chat = Chat((SYSTEM,))
    whole = chat.ask(cold, "Count.", cold=True, tokens=40).text
    stop = whole[20:26]
    sampling = SamplingParams(stop=(stop,))
    prompt = Prompt((*chat.turns, Turn("user", "Count.")))
    for drafting in (Drafting.OFF, Drafting.LOOKUP):
        reply = runner.run(prompt, max_tokens=40, sampling=sampling, drafting=drafting)
        assert reply.reason is FinishReason.STOP_STRING
        assert reply.text == whole[: whole.index(stop)]
        check(chat.after("Count.", reply), runner, cold, "Again.")


def test_a_long_prompt_that_was_cancelled_goes_on(hybrid: Loaded) -> None:
    prompt = prompt_ids(5, EVERY_TOKENS + 300)
    cold = Runner(hybrid.model(context=4096)).run(prompt, max_tokens=6).ids
    runner = Runner(hybrid.model(context=4096))
    name = runner.submit(prompt)
    reading = runner.replies[name].reading
    runner.step(until=lambda: bool(reading) and reading[-1].done_tokens > EVERY_TOKENS)
    runner.scheduler.cancel(name)
    reply = runner.run(prompt, max_tokens=6)
    assert reply.ids == cold
    assert reply.usage.reused_tokens >= EVERY_TOKENS


def test_with_little_memory_the_next_lower_snapshot_serves(hybrid: Loaded) -> None:
    model = hybrid.model()
    assert model.decoder.states is not None
    size = model.decoder.states.snapshot_bytes
    cache = PrefixCache(model.arena, requires_state=True, snapshot_bytes=2 * size)
    runner, cold = Runner(replace(model, cache=cache)), Runner(hybrid.model())
    chat = Chat((SYSTEM,))
    for text in ("One?", "Two?", "Three?"):
        reply = check(chat, runner, cold, text)
        chat = chat.after(text, reply)
    assert check(chat, runner, cold, "Four?").usage.reused_tokens >= len(chat.ids) - 1


def test_two_requests_pause_and_go_on_when_pages_are_short(hybrid: Loaded) -> None:
    prompts = [prompt_ids(seed, 150) for seed in (1, 2, 3)]
    expected = [Runner(hybrid.model()).run(p, max_tokens=150).ids for p in prompts]
    runner = Runner(hybrid.model(num_pages=6, context=512))
    names = [runner.submit(p, max_tokens=150) for p in prompts]
    runner.step()
    assert [runner.replies[name].ids for name in names] == expected
    runner.check()


def test_points_lie_at_ends_of_messages() -> None:
    ends = (10, 30, 50, 70, 90, 110, 120)
    points = snapshot_points(BuiltPrompt(tuple(range(120)), ends))
    assert points == (10, 30, 70, 90, 110)
    assert snapshot_points(BuiltPrompt((1,), (1,))) == ()
    assert snapshot_points(BuiltPrompt(tuple(range(500)), (500,))) == (499,)
    long = snapshot_points(BuiltPrompt(tuple(range(5000)), (100, 4990, 5000)))
    assert long == (100, EVERY_TOKENS, 2 * EVERY_TOKENS, 4990)


def test_float16_states_are_half_as_large(hybrid: Loaded) -> None:
    model = replace(hybrid, state_dtype="float16").model()
    assert model.decoder.states is not None
    assert model.decoder.states.recurrent.dtype == torch.float16
