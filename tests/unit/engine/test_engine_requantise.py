"""A model whose head is narrowed at the opening answers, says so, and has its own fingerprint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearth.engine.engine import Engine, EngineConfig
from hearth.engine.protocol import Finished, Loaded, Prompt, Request
from hearth.engine.weights.requantise import KEEP, Requantise

if TYPE_CHECKING:
    from pathlib import Path

    from hearth.engine.protocol import ModelInfo

WAIT_S = 60.0


def run(path: Path, policy: Requantise) -> tuple[ModelInfo, Finished]:
    engine = Engine(EngineConfig(num_threads=2, requantise=policy))
    try:
        engine.load(path)
        info = wait_for(engine, Loaded).info
        prompt = Prompt(raw_ids=tuple(range(40, 60)))
        engine.submit(Request("one", prompt, max_tokens=16, ignore_end=True))
        return info, wait_for(engine, Finished)
    finally:
        engine.close()


def wait_for(engine: Engine, kind: type[Any]) -> Any:
    for _ in range(200):
        for event in engine.wait(WAIT_S / 200):
            if isinstance(event, kind):
                return event
    raise AssertionError(f"no {kind.__name__}")


def test_a_narrowed_head_answers_and_is_told(tiny_path: Path) -> None:
    kept, whole = run(tiny_path, KEEP)
    narrowed, reply = run(tiny_path, Requantise(head="int8"))
    assert kept.requantised is None
    assert narrowed.requantised == "head int8 g64 (made here)"
    assert narrowed.fingerprint != kept.fingerprint, "kept prefixes of one are not the other's"
    assert narrowed.weight_bytes < kept.weight_bytes
    assert len(reply.token_ids) == len(whole.token_ids) == 16
