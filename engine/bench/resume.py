"""``hearth bench resume``: a killed program comes back and a follow-up reads only what is new.

Two child processes share one cache folder. The first holds a conversation about a long document
and is killed (SIGKILL) in the middle of a reply; the second continues it in four ways. Each time to
first token is compared with reading the same prompt cold in the same process.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING

from hearth.engine.bench import corpus
from hearth.engine.bench.session import Outcome, Session
from hearth.engine.errors import MachineError
from hearth.engine.protocol import Prompt, Turn
from hearth.engine.weights.shapes import is_synthetic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearth.engine.bench.output import Reporter

REPLY_TOKENS = 64
KILL_AFTER_TOKENS = 24  # in the middle of the second reply
# English prose with the starter model's tokenizer, measured 3.9; synthetic models read bytes.
CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class History:
    """The conversation so far, as the store would keep it: texts and the exact token ids."""

    turns: tuple[Turn, ...]
    ids: tuple[int, ...]

    def ask(self, question: str) -> Prompt:
        turns = (*self.turns, Turn("user", question))
        return Prompt(turns=turns, history_ids=self.ids, history_turns=len(self.turns))

    def extended(self, prompt: Prompt, outcome: Outcome) -> History:
        turns = (*prompt.turns, Turn("assistant", outcome.text))
        return History(turns, outcome.prompt_ids + outcome.token_ids)


def bench_resume(model: Path, context_tokens: int, num_threads: int, report: Reporter) -> float:
    """Report every way of coming back; return the worst ratio to cold of those after the kill."""
    with TemporaryDirectory(prefix="hearth-bench-") as folder:
        job = {
            "model": str(model),
            "cache": folder,
            "threads": num_threads,
            "chars": context_tokens * (1 if is_synthetic(model) else CHARS_PER_TOKEN),
        }
        history = _first_life(job)
        records = _second_life({**job, "history": history})
    for record in records:
        report.record("resume", record)
    return max(float(str(record["ratio"])) for record in records if record["resumed"])


def _spawn(role: str, job: dict[str, object]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "hearth.engine.bench.resume", role]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert child.stdin is not None
    child.stdin.write(json.dumps(job) + "\n")
    child.stdin.close()
    return child


def _first_life(job: dict[str, object]) -> dict[str, object]:
    """Run the first child until it is in the middle of its second reply, then kill it."""
    child = _spawn("first", job)
    assert child.stdout is not None
    history: dict[str, object] | None = None
    for line in child.stdout:
        message = json.loads(line)
        if "history" in message:
            history = message["history"]
        elif message["tokens"] >= KILL_AFTER_TOKENS:
            child.send_signal(signal.SIGKILL)
            break
    child.wait()
    if history is None or child.returncode != -signal.SIGKILL:
        raise MachineError("The first process of the resume benchmark ended by itself.")
    return history


def _second_life(job: dict[str, object]) -> list[dict[str, str | int | float | bool | None]]:
    child = _spawn("second", job)
    assert child.stdout is not None
    records = [json.loads(line) for line in child.stdout]
    if child.wait() != 0:
        raise MachineError("The second process of the resume benchmark failed.")
    return records


# ------------------------------------------------------------------------ inside the two children


def _open(job: dict[str, object]) -> Session:
    return Session(
        Path(str(job["model"])),
        cache_folder=Path(str(job["cache"])),
        num_threads=_int(job, "threads"),
    )


def _int(job: dict[str, object], key: str) -> int:
    value = job[key]
    assert isinstance(value, int), f"{key} is a number"
    return value


def _opening(job: dict[str, object]) -> Prompt:
    text = corpus.document()[: _int(job, "chars")]
    return Prompt(turns=(Turn("user", f"{text}\n\nWhat is this speech about?"),))


def first(job: dict[str, object], out: IO[str]) -> None:
    """Hold two turns; say how far the second reply is, until somebody kills this process."""
    with _open(job) as session:
        prompt = _opening(job)
        outcome = session.run(session.request(prompt, max_tokens=REPLY_TOKENS))
        history = History((), ()).extended(prompt, outcome)
        out.write(json.dumps({"history": asdict(history)}) + "\n")
        second_turn = history.ask("Who is addressed in it?")
        tokens = 0

        def tell(event: object) -> None:
            nonlocal tokens
            tokens += len(getattr(event, "token_ids", ()))
            out.write(json.dumps({"tokens": tokens}) + "\n")
            out.flush()

        request = session.request(second_turn, max_tokens=10_000, ignore_end=True)
        session.run(request, on_tokens=tell)


def second(job: dict[str, object], out: IO[str]) -> None:
    """Come back in four ways; measure each against the same prompt read cold."""
    stored = job["history"]
    assert isinstance(stored, dict)
    turns = tuple(Turn(**turn) for turn in stored["turns"])
    history = History(turns, tuple(stored["ids"]))
    with _open(job) as session:
        follow_up = history.ask("Who is addressed in it?")
        answer = _measure(session, out, "follow-up after kill", follow_up)
        _measure(session, out, "regenerate", follow_up)
        _measure(session, out, "edit", history.ask("In which year was it written?"))
        longer = history.extended(follow_up, answer)
        _measure(session, out, "next turn", longer.ask("Why does that matter?"))
        branch = Prompt(turns=_opening(job).turns)
        _measure(session, out, "branch from the first turn", branch)


def _measure(session: Session, out: IO[str], name: str, prompt: Prompt) -> Outcome:
    warm = session.run(session.request(prompt, max_tokens=REPLY_TOKENS))
    cold_prompt = Prompt(raw_ids=warm.prompt_ids)
    cold = session.run(session.request(cold_prompt, max_tokens=REPLY_TOKENS, use_cache=False))
    usage = warm.usage
    record = {
        "case": name,
        "resumed": True,
        "prompt_tokens": usage.prompt_tokens,
        "reused": usage.reused_tokens,
        "restored": usage.restored_tokens,
        "computed": usage.computed_tokens,
        "ttft_s": usage.time_to_first_token_s,
        "cold_ttft_s": cold.usage.time_to_first_token_s,
        "ratio": usage.time_to_first_token_s / cold.usage.time_to_first_token_s,
        "same_tokens": warm.token_ids == cold.token_ids,
    }
    out.write(json.dumps(record) + "\n")
    out.flush()
    return warm


def _child_main(arguments: Sequence[str]) -> None:
    job = json.loads(sys.stdin.readline())
    {"first": first, "second": second}[arguments[0]](job, sys.stdout)


if __name__ == "__main__":
    _child_main(sys.argv[1:])
