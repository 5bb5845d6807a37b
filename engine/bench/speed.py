"""``hearth bench decode`` and ``prefill``: tokens per second beside a peer and a floor.

Our runs and the peer's alternate, so that both see the same machine. The floor of a decode step is
the time to read the weights once at the memory bandwidth measured in the same run.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hearth.engine.bench import corpus, peer_llama
from hearth.engine.bench.session import Session
from hearth.engine.errors import UserError
from hearth.engine.protocol import Prompt
from hearth.engine.weights.shapes import is_synthetic

if TYPE_CHECKING:
    from pathlib import Path

    from hearth.engine.bench.output import Reporter

BANDWIDTH_PROBE_BYTES = 256 << 20  # several times the last-level cache of a desktop processor


@dataclass(frozen=True, slots=True)
class SpeedOptions:
    """What is measured; ``peer_python`` is a Python with llama_cpp, None for no peer."""

    model: Path
    prompt_tokens: int
    output_tokens: int
    repeats: int
    num_threads: int
    peer_python: str | None


@dataclass(frozen=True, slots=True)
class Sample:
    """One run. Seconds for the whole prompt and for the tokens after the first."""

    prefill_s: float
    decode_s: float


def bench_decode(options: SpeedOptions, report: Reporter) -> None:
    """Decode speed after a prompt, greedy, without drafting."""
    ours, peer, weight_bytes = _measure(options)
    count = options.output_tokens - 1
    own_rate = [count / sample.decode_s for sample in ours]
    peer_rate = [options.output_tokens / sample.decode_s for sample in peer]
    floor_ms = weight_bytes / read_bandwidth(options.num_threads) * 1e3
    _report("decode", options, report, own_rate, peer_rate, floor_ms=floor_ms)


def bench_prefill(options: SpeedOptions, report: Reporter) -> None:
    """Prefill speed of a prompt that nothing has read before."""
    ours, peer, _ = _measure(options)
    own_rate = [options.prompt_tokens / sample.prefill_s for sample in ours]
    peer_rate = [options.prompt_tokens / sample.prefill_s for sample in peer]
    _report("prefill", options, report, own_rate, peer_rate)


def _measure(options: SpeedOptions) -> tuple[list[Sample], list[Sample], int]:
    ours: list[Sample] = []
    peer: list[Sample] = []
    with Session(options.model, num_threads=options.num_threads) as session:
        prompt_ids = _prompt_ids(options, session)
        _run_ours(session, prompt_ids, options.output_tokens)  # warm-up: first touch of memory
        for _ in range(options.repeats):
            ours.append(_run_ours(session, prompt_ids, options.output_tokens))
            if options.peer_python is not None:
                peer.append(_run_peer(options, prompt_ids))
        return ours, peer, session.info.weight_bytes


def _prompt_ids(options: SpeedOptions, session: Session) -> tuple[int, ...]:
    """Real text; for synthetic weights ids from all over the vocabulary, the same every time."""
    if not is_synthetic(options.model):
        return real_ids(session, options.prompt_tokens)
    draw = random.Random(0)  # noqa: S311 - no secret
    rows = session.info.vocab_size
    return tuple(draw.randrange(rows) for _ in range(options.prompt_tokens))


def real_ids(session: Session, num_tokens: int) -> tuple[int, ...]:
    """The first ``num_tokens`` token ids of the document, as this model's tokenizer cuts it."""
    chars = num_tokens * 8  # more than any tokenizer needs for English prose
    prompt = session.request(corpus.document()[:chars], max_tokens=1)
    ids = session.run(prompt).prompt_ids
    if len(ids) < num_tokens:
        raise UserError(f"The document has only {len(ids)} tokens; ask for at most that many.")
    return ids[:num_tokens]


def _run_ours(session: Session, prompt_ids: tuple[int, ...], output_tokens: int) -> Sample:
    request = session.request(
        Prompt(raw_ids=prompt_ids), max_tokens=output_tokens, use_cache=False, ignore_end=True
    )
    usage = session.run(request).usage
    return Sample(usage.prefill_s, usage.decode_s)


def _run_peer(options: SpeedOptions, prompt_ids: tuple[int, ...]) -> Sample:
    assert options.peer_python is not None
    command = [options.peer_python, peer_llama.__file__, "--model", str(options.model)]
    command += ["--threads", str(options.num_threads)]
    command += ["--decode-tokens", str(options.output_tokens)]
    done = subprocess.run(
        command, input=json.dumps(prompt_ids), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise UserError(
            f"The peer could not run: {done.stderr.strip().splitlines()[-1]}",
            action="Name a Python that has llama-cpp-python with --peer-python.",
        )
    answer = json.loads(done.stdout)
    return Sample(answer["prefill_s"], answer["decode_s"])


def read_bandwidth(num_threads: int) -> float:
    """Bytes per second that this machine reads from memory, best of five."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    data = torch.ones(BANDWIDTH_PROBE_BYTES // 4)
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        data.sum()
        best = min(best, time.perf_counter() - started)
    torch.set_num_threads(before)
    return BANDWIDTH_PROBE_BYTES / best


def _report(
    kind: str,
    options: SpeedOptions,
    report: Reporter,
    own: list[float],
    peer: list[float],
    *,
    floor_ms: float | None = None,
) -> None:
    values: dict[str, str | int | float | bool | None] = {
        "threads": options.num_threads,
        "prompt_tokens": options.prompt_tokens,
        "output_tokens": options.output_tokens,
        "repeats": options.repeats,
        "best_tok_s": max(own),
        "median_tok_s": statistics.median(own),
    }
    if floor_ms is not None:
        values |= {"step_ms": 1e3 / max(own), "floor_ms": floor_ms}
    if peer:
        values |= {
            "peer": "llama.cpp",
            "peer_best_tok_s": max(peer),
            "peer_median_tok_s": statistics.median(peer),
            "ratio_best": max(own) / max(peer),
            "ratio_median": statistics.median(own) / statistics.median(peer),
        }
    report.record(kind, values)


def default_peer_python() -> str | None:
    """This Python when it has llama_cpp, else None."""
    from importlib.util import find_spec

    return sys.executable if find_spec("llama_cpp") is not None else None
