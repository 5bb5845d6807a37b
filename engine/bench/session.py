"""A loaded engine that is driven step by step: what benchmarks and checks run on."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from hearth.engine.engine import Engine, EngineConfig
from hearth.engine.errors import MachineError, UserError
from hearth.engine.protocol import (
    Drafting,
    Failed,
    Finished,
    FinishReason,
    Loaded,
    LoadFailed,
    ModelInfo,
    Prompt,
    Reading,
    Request,
    SamplingParams,
    Saved,
    Tokens,
    Turn,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

WAIT_S = 0.5  # how often a waiting loop looks whether it has waited too long
LOAD_LIMIT_S = 600.0
STALL_LIMIT_S = 300.0  # no event at all for so long means a hang, on any machine


@dataclass(frozen=True, slots=True)
class Outcome:
    """One finished request."""

    text: str
    token_ids: tuple[int, ...]
    prompt_ids: tuple[int, ...]
    reason: FinishReason
    usage: Usage


@dataclass(slots=True)
class _Running:
    prompt_ids: tuple[int, ...] = ()
    text: str = ""
    token_ids: list[int] = field(default_factory=list)


class Session:
    """Owns an engine with one model; a context manager, used from one thread."""

    def __init__(
        self,
        model: Path,
        *,
        cache_folder: Path | None = None,
        num_threads: int | None = None,
        context_length: int | None = None,
    ) -> None:
        self._numbers = itertools.count()
        self._engine = Engine(EngineConfig(cache_folder=cache_folder, num_threads=num_threads))
        started = time.perf_counter()
        self._engine.load(model, context_length=context_length)
        self.info = self._wait_for_model()
        self.load_s = time.perf_counter() - started

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()

    def _wait_for_model(self) -> ModelInfo:
        deadline = time.perf_counter() + LOAD_LIMIT_S
        while time.perf_counter() < deadline:
            for event in self._engine.wait(WAIT_S):
                if isinstance(event, Loaded):
                    return event.info
                if isinstance(event, LoadFailed):
                    self._engine.close()
                    raise UserError(event.message)
        self._engine.close()
        raise MachineError(f"The model did not open within {LOAD_LIMIT_S:.0f} seconds.")

    # ------------------------------------------------------------------------------- requests

    def request(
        self,
        prompt: Prompt | str,
        *,
        max_tokens: int,
        sampling: SamplingParams | None = None,
        drafting: Drafting = Drafting.OFF,
        use_cache: bool = True,
        ignore_end: bool = False,
    ) -> Request:
        """A request with an id of its own; a plain string becomes a single user turn."""
        if isinstance(prompt, str):
            prompt = Prompt(turns=(Turn("user", prompt),))
        return Request(
            id=f"bench-{next(self._numbers)}",
            prompt=prompt,
            sampling=sampling or SamplingParams(),
            max_tokens=max_tokens,
            drafting=drafting,
            use_cache=use_cache,
            ignore_end=ignore_end,
        )

    def run(self, request: Request, on_tokens: Callable[[Tokens], None] | None = None) -> Outcome:
        """Run one request to its end; ``on_tokens`` sees its Tokens events as they come."""
        return self.run_all([request], on_tokens)[0]

    def run_all(
        self, requests: Iterable[Request], on_tokens: Callable[[Tokens], None] | None = None
    ) -> list[Outcome]:
        """Submit all at once and wait for all; outcomes in the order of ``requests``."""
        batch = list(requests)
        order = [request.id for request in batch]
        running = {request.id: _Running() for request in batch}
        outcomes: dict[str, Outcome] = {}
        for request in batch:
            self._engine.submit(request)
        last_event = time.perf_counter()
        while len(outcomes) < len(order):
            events = self._engine.wait(WAIT_S)
            if events:
                last_event = time.perf_counter()
            elif time.perf_counter() - last_event > STALL_LIMIT_S:
                raise MachineError("The engine has stopped answering.")
            for event in events:
                self._note(event, running, outcomes)
                if on_tokens is not None and isinstance(event, Tokens):
                    on_tokens(event)
        return [outcomes[request_id] for request_id in order]

    @staticmethod
    def _note(event: object, running: dict[str, _Running], outcomes: dict[str, Outcome]) -> None:
        match event:
            case Reading(request_id=name, prompt_ids=ids) if ids is not None:
                running[name].prompt_ids = ids
            case Tokens(request_id=name):
                running[name].text += event.text
                running[name].token_ids += event.token_ids
            case Finished(request_id=name):
                seen = running[name]
                assert seen.text == event.text, "streamed text differs from the finished text"
                outcomes[name] = Outcome(
                    event.text, event.token_ids, seen.prompt_ids, event.reason, event.usage
                )
            case Failed(message=message):
                raise UserError(message)
            case _:
                pass

    def cancel(self, request_id: str) -> None:
        self._engine.cancel(request_id)

    def save(self) -> Saved:
        """Write the cache to disk and wait for it."""
        self._engine.save()
        deadline = time.perf_counter() + STALL_LIMIT_S
        while time.perf_counter() < deadline:
            for event in self._engine.wait(WAIT_S):
                if isinstance(event, Saved):
                    return event
        raise MachineError("The engine did not save its cache.")
