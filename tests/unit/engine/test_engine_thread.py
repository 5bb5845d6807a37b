"""The engine as the application sees it: commands in, events out, one thread."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import TYPE_CHECKING

import pytest
from tiny_engine import CONTEXT, prompt_ids, write_model

from hearth.engine.engine import Engine, EngineConfig
from hearth.engine.protocol import (
    Drafting,
    Event,
    Failed,
    Finished,
    FinishReason,
    Loaded,
    LoadFailed,
    Loading,
    Prompt,
    Reading,
    Request,
    SamplingParams,
    Saved,
    Tokens,
    Turn,
    Unloaded,
)
from hearth.kernels import jit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT_S = 60.0
ASK = Prompt(turns=(Turn("user", "the light"),))


class Client:
    """An engine with its events so far."""

    def __init__(self, config: EngineConfig | None = None) -> None:
        self.wakes = 0
        self.engine = Engine(config or EngineConfig(num_threads=2), self._wake)
        self.events: list[Event] = []

    def _wake(self) -> None:
        self.wakes += 1

    def wait_for(self, *kinds: type, request_id: str | None = None) -> Event:
        """The next event of one of ``kinds``. Earlier ones are dropped, unless it is one request's
        event that is wanted."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            for place, event in enumerate(self.events):
                same = request_id is None or getattr(event, "request_id", None) == request_id
                if isinstance(event, kinds) and same:
                    del self.events[0 if request_id is None else place : place + 1]
                    return event
            self.events += self.engine.wait(1.0)
        raise AssertionError(f"no {kinds} within {LIMIT_S} s")

    def load(self, path: Path, **options: int) -> Loaded:
        self.engine.load(path, **options)
        event = self.wait_for(Loaded, LoadFailed)
        assert isinstance(event, Loaded), event
        return event

    def run(self, request: Request) -> Finished:
        self.engine.submit(request)
        event = self.wait_for(Finished, Failed, request_id=request.id)
        assert isinstance(event, Finished), event
        self.events.clear()
        return event


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    yield made
    made.engine.close()


def ask(name: str, prompt: Prompt = ASK, **options: object) -> Request:
    defaults = {"max_tokens": 30, "ignore_end": True, "sampling": SamplingParams(1.0, seed=2)}
    return Request(name, prompt, **(defaults | options))  # type: ignore[arg-type]


def test_a_turn_from_loading_to_the_end(client: Client, tiny_path: Path) -> None:
    client.engine.load(tiny_path)
    stages = []
    while not isinstance(event := client.wait_for(Loading, Loaded), Loaded):
        stages.append(event)
    assert {"Loading weights", "Warming up"} <= {stage.stage for stage in stages}  # type: ignore[union-attr]
    assert event.info.context_length == CONTEXT
    assert event.info.name == "Tiny"
    client.engine.submit(ask("a"))
    first = client.wait_for(Reading, Tokens, Finished)
    assert isinstance(first, Reading)
    assert first.prompt_ids is not None
    text, ids = "", []
    while not isinstance(event := client.wait_for(Tokens, Finished, Reading), Finished):
        if isinstance(event, Tokens):
            text += event.text
            ids += event.token_ids
            assert len(event.drafted) == len(event.token_ids)
    assert (event.text, list(event.token_ids)) == (text, ids)
    assert event.reason is FinishReason.LENGTH
    assert client.wakes > 0


def test_without_a_model_requests_get_an_answer(client: Client) -> None:
    client.engine.submit(ask("a"))
    failed = client.wait_for(Failed)
    assert isinstance(failed, Failed)
    assert "No model is open" in failed.message
    client.engine.cancel("a")
    client.engine.save()
    assert client.wait_for(Saved) == Saved(0, 0)
    assert client.engine.count_tokens("the") is None
    assert client.engine.token_texts([1]) == []


def test_nothing_is_compiled_inside_a_request(client: Client, tiny_path: Path) -> None:
    client.load(tiny_path)
    compiled = set(jit.compiler()._addresses)
    requests = [
        ask("a", Prompt(raw_ids=tuple(prompt_ids(1, 700))), drafting=Drafting.LOOKUP),
        ask("b", sampling=SamplingParams(repetition_penalty=1.1)),
    ]
    for request in requests:
        client.engine.submit(request)
    for request in requests:
        client.wait_for(Finished, request_id=request.id)
    assert set(jit.compiler()._addresses) == compiled


def test_load_failures_are_sentences(client: Client, tmp_path: Path, tiny_path: Path) -> None:
    client.engine.load(tmp_path / "missing.gguf")
    missing = client.wait_for(Loaded, LoadFailed)
    assert isinstance(missing, LoadFailed)
    client.engine.load(tiny_path, context_length=10 * CONTEXT)
    too_long = client.wait_for(Loaded, LoadFailed)
    assert isinstance(too_long, LoadFailed)
    assert "1,024" in too_long.message
    client.load(tiny_path)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("not enough memory"), KeyError(1)])
def test_unexpected_load_errors_are_answered_too(
    client: Client, tiny_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("hearth.engine.loading.load_weights", fail)
        client.engine.load(tiny_path)
        assert isinstance(client.wait_for(Loaded, LoadFailed), LoadFailed)
    client.load(tiny_path)


def test_an_unexpected_error_in_a_pass_is_answered_and_the_thread_lives(
    client: Client, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.load(tiny_path)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("hearth.engine.scheduler.run_round", fail)
        client.engine.submit(ask("a"))
        client.engine.submit(ask("b"))
        failed = [client.wait_for(Failed, request_id=name) for name in ("a", "b")]
        assert all("kept" in event.message for event in failed)  # type: ignore[union-attr]
    assert client.run(ask("c")).reason is FinishReason.LENGTH


def test_the_last_of_several_loads_wins(client: Client, tmp_path: Path, tiny_path: Path) -> None:
    other = write_model(tmp_path / "other.gguf", seed=1)
    client.engine.load(tiny_path)
    client.engine.load(other)
    client.engine.load(tiny_path)
    client.engine.load(other)
    while client.wait_for(Loaded).info.path != str(other):  # type: ignore[attr-defined]
        pass
    assert client.run(ask("a")).reason is FinishReason.LENGTH


def test_loading_stops_when_it_is_not_wanted_any_more(
    client: Client, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unload arrives while weights are read: no Loaded comes, Unloaded does."""
    from hearth.engine import loading

    started, go_on = threading.Event(), threading.Event()
    real = loading.load_weights

    def slow(*arguments: object) -> object:
        started.set()
        go_on.wait(LIMIT_S)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("hearth.engine.loading.load_weights", slow)
    client.engine.load(tiny_path)
    assert started.wait(LIMIT_S)
    client.engine.unload()
    go_on.set()
    assert isinstance(client.wait_for(Loaded, Unloaded, LoadFailed), Unloaded)
    client.engine.submit(ask("a"))
    assert isinstance(client.wait_for(Failed, Finished), Failed)


def test_cancel_and_continue(client: Client, tiny_path: Path) -> None:
    client.load(tiny_path)
    whole = client.run(ask("whole", max_tokens=500, use_cache=False))
    client.engine.submit(ask("a", max_tokens=500))
    reading = client.wait_for(Reading)
    client.wait_for(Tokens)
    client.engine.cancel("a")
    stopped = client.wait_for(Finished)
    assert isinstance(stopped, Finished)
    assert isinstance(reading, Reading)
    assert stopped.token_ids == whole.token_ids[: len(stopped.token_ids)]
    assert reading.prompt_ids is not None
    history = reading.prompt_ids + stopped.token_ids
    rest = client.run(ask("b", Prompt(raw_ids=history), max_tokens=20))
    expected = whole.token_ids[len(stopped.token_ids) :][:20]
    assert rest.token_ids[: len(expected)] == expected
    assert rest.usage.reused_tokens == len(history) - 1


def test_unloading_ends_requests_and_frees_the_memory(client: Client, tiny_path: Path) -> None:
    client.load(tiny_path)
    model = client.engine._loop._model
    assert model is not None
    references = [
        weakref.ref(thing)
        for thing in (
            model.decoder,
            model.arena.pages,
            model.decoder._weights.token_embd.data,
            model.decoder._weights.output.data,
        )
    ]
    del model
    client.engine.submit(ask("a", max_tokens=900))
    client.wait_for(Tokens)
    client.engine.unload()
    stopped = client.wait_for(Finished)
    assert isinstance(stopped, Finished)
    assert stopped.reason is FinishReason.CANCELLED
    client.wait_for(Unloaded)
    deadline = time.monotonic() + LIMIT_S  # threads let go of what they did last in their own time
    while any(reference() is not None for reference in references):
        assert time.monotonic() < deadline, "the model's memory is not given back"
        gc.collect()
        client.engine.wait(0.01)


# ------------------------------------------------------------------------------------------ saving


@pytest.fixture
def kept(tmp_path: Path) -> EngineConfig:
    return EngineConfig(cache_folder=tmp_path / "cache", num_threads=2)


def test_a_chat_continues_after_a_restart(kept: EngineConfig, tiny_path: Path) -> None:
    prompt = Prompt(raw_ids=tuple(prompt_ids(5, 300)))
    first = Client(kept)
    first.load(tiny_path)
    truth = first.run(ask("a", prompt))
    first.engine.save()
    first.wait_for(Saved)
    first.engine.close()
    second = Client(kept)
    second.load(tiny_path)
    again = second.run(ask("a", prompt))
    assert again.token_ids == truth.token_ids
    assert again.usage.restored_tokens == 299
    history = (*prompt_ids(5, 300), *truth.token_ids, 9, 9)
    follow = second.run(ask("b", Prompt(raw_ids=history)))
    assert follow.usage.reused_tokens + follow.usage.restored_tokens == len(history) - 3
    second.engine.close()
    cold = Client()
    cold.load(tiny_path)
    assert cold.run(ask("b", Prompt(raw_ids=history))).token_ids == follow.token_ids
    cold.engine.close()


def test_closing_saves_within_its_time(kept: EngineConfig, tiny_path: Path) -> None:
    first = Client(kept)
    first.load(tiny_path)
    first.engine.submit(ask("a", Prompt(raw_ids=tuple(prompt_ids(6, 200))), max_tokens=900))
    first.wait_for(Tokens)
    started = time.monotonic()
    first.engine.close()
    first.engine.close()
    assert time.monotonic() - started < 5.0
    assert not first.engine._thread.is_alive()
    second = Client(kept)
    second.load(tiny_path)
    again = second.run(ask("a", Prompt(raw_ids=tuple(prompt_ids(6, 200)))))
    assert again.usage.restored_tokens == 199
    second.engine.close()


def test_a_page_that_cannot_be_written_harms_nothing(
    kept: EngineConfig, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hearth.engine.cache.disk import DiskTier

    def fail(*_: object) -> int:
        raise ValueError("no reason")

    monkeypatch.setattr(DiskTier, "save", fail)
    client = Client(kept)
    client.load(tiny_path)
    truth = client.run(ask("a"))
    client.engine.save()
    assert isinstance(client.wait_for(Saved), Saved)
    assert client.run(ask("b")).token_ids == truth.token_ids
    client.engine.unload()
    client.wait_for(Unloaded)
    client.engine.close()


# ------------------------------------------------------------------------------------ other threads


def test_counting_tokens_from_many_threads(client: Client, tiny_path: Path) -> None:
    client.load(tiny_path)
    text, counts = "the light <|im_end|>", list[int | None]()
    threads = [
        threading.Thread(target=lambda: counts.append(client.engine.count_tokens(text)))
        for _ in range(8)
    ]
    client.engine.submit(ask("a"))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [18] * 8
    assert client.engine.count_tokens("half \ud800") is None
    assert client.engine.token_texts([257, 259]) == [(257, "the"), (259, "<|im_end|>")]
    client.wait_for(Finished)


def test_many_requests_from_many_threads(client: Client, tiny_path: Path) -> None:
    client.load(tiny_path)
    names = [f"r{number}" for number in range(24)]
    threads = [
        threading.Thread(target=client.engine.submit, args=(ask(name, max_tokens=8),))
        for name in names
    ]
    for thread in threads:
        thread.start()
    done = {}
    while len(done) < len(names):
        event = client.wait_for(Finished, Failed)
        assert isinstance(event, Finished), event
        done[event.request_id] = event.token_ids
    assert set(done) == set(names)
    assert len(set(done.values())) == 1
    for thread in threads:
        thread.join()
