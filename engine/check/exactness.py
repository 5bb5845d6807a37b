"""``hearth check exactness``: the same request gives the same tokens however it is run (D1).

Every prompt is run alone without drafting; that is the truth. Then with each kind of drafting, in a
batch with changing neighbours, after a resume in the same process and after a resume from disk in a
new engine. Greedy and seeded sampling. Token ids and text must be equal, not close.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from hearth.engine.bench import corpus
from hearth.engine.bench.session import Outcome, Session
from hearth.engine.protocol import Drafting, Prompt, SamplingParams, Turn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hearth.engine.bench.output import Reporter

BATCH = 7  # odd, so that prompts meet other neighbours in the two sampling modes
FOLLOW_UP = "Go on."


@dataclass(frozen=True, slots=True)
class Mode:
    """Greedy or seeded sampling; the seed differs by prompt."""

    name: str
    temperature: float

    def sampling(self, prompt_index: int) -> SamplingParams:
        if self.temperature == 0.0:
            return SamplingParams()
        return SamplingParams(
            temperature=self.temperature, top_k=40, top_p=0.95, min_p=0.01, seed=1000 + prompt_index
        )


MODES = (Mode("greedy", 0.0), Mode("seeded", 0.8))


@dataclass(slots=True)
class Tally:
    """How often one variant agreed with the truth."""

    variant: str
    mode: str
    compared: int = 0
    different: list[int] = field(default_factory=list)
    tokens: int = 0
    accepted_drafts: int = 0
    reused_tokens: int = 0
    restored_tokens: int = 0

    def add(self, prompt_index: int, truth: Outcome, outcome: Outcome) -> None:
        self.compared += 1
        self.tokens += len(outcome.token_ids)
        self.accepted_drafts += outcome.usage.accepted_tokens
        self.reused_tokens += outcome.usage.reused_tokens
        self.restored_tokens += outcome.usage.restored_tokens
        if (outcome.token_ids, outcome.text) != (truth.token_ids, truth.text):
            self.different.append(prompt_index)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the check runs on."""

    model: Path
    num_prompts: int
    num_tokens: int
    num_threads: int | None = None


def check_exactness(plan: Plan, report: Reporter) -> bool:
    """Run every variant in both modes; True when nothing differed anywhere."""
    everything_equal = True
    for mode in MODES:
        for tally in _tallies(plan, mode):
            report.record(
                "exactness",
                {
                    "mode": tally.mode,
                    "variant": tally.variant,
                    "prompts": tally.compared,
                    "different": len(tally.different),
                    "tokens": tally.tokens,
                    "accepted_drafts": tally.accepted_drafts,
                    "reused": tally.reused_tokens,
                    "restored": tally.restored_tokens,
                    "first_different": tally.different[0] if tally.different else None,
                },
            )
            everything_equal &= not tally.different
    return everything_equal


def _tallies(plan: Plan, mode: Mode) -> Iterator[Tally]:
    texts = corpus.prompts()[: plan.num_prompts]
    with TemporaryDirectory(prefix="hearth-check-") as folder:
        cache = Path(folder)
        with _open(plan, cache) as session:
            truth = [_alone(session, plan, mode, i, text) for i, text in enumerate(texts)]
            yield _with_drafts(session, plan, mode, texts, truth, Drafting.LOOKUP)
            if session.info.has_mtp:
                yield _with_drafts(session, plan, mode, texts, truth, Drafting.MTP)
            yield _in_batches(session, plan, mode, texts, truth)
            follow_ups = [
                _follow_up(text, outcome) for text, outcome in zip(texts, truth, strict=True)
            ]
            _fill_cache(session, plan, mode, texts, truth)
            cold = [
                _run(session, plan, mode, i, prompt, use_cache=False)
                for i, prompt in enumerate(follow_ups)
            ]
            yield _resumed(session, plan, mode, follow_ups, cold, "resumed in memory")
            session.save()
        with _open(plan, cache) as session:
            yield _resumed(session, plan, mode, follow_ups, cold, "resumed from disk")


def _open(plan: Plan, cache: Path) -> Session:
    return Session(plan.model, cache_folder=cache, num_threads=plan.num_threads)


def _run(
    session: Session, plan: Plan, mode: Mode, index: int, prompt: Prompt | str, *, use_cache: bool
) -> Outcome:
    return session.run(
        session.request(
            prompt,
            max_tokens=plan.num_tokens,
            sampling=mode.sampling(index),
            use_cache=use_cache,
        )
    )


def _alone(session: Session, plan: Plan, mode: Mode, index: int, text: str) -> Outcome:
    return _run(session, plan, mode, index, text, use_cache=False)


def _with_drafts(
    session: Session,
    plan: Plan,
    mode: Mode,
    texts: Sequence[str],
    truth: Sequence[Outcome],
    drafting: Drafting,
) -> Tally:
    tally = Tally(f"{drafting.value} drafting", mode.name)
    for index, text in enumerate(texts):
        request = session.request(
            text,
            max_tokens=plan.num_tokens,
            sampling=mode.sampling(index),
            drafting=drafting,
            use_cache=False,
        )
        tally.add(index, truth[index], session.run(request))
    return tally


def _in_batches(
    session: Session, plan: Plan, mode: Mode, texts: Sequence[str], truth: Sequence[Outcome]
) -> Tally:
    tally = Tally(f"batch of {BATCH}, drafting mixed", mode.name)
    for start in range(0, len(texts), BATCH):
        indexes = range(start, min(start + BATCH, len(texts)))
        requests = [
            session.request(
                texts[index],
                max_tokens=plan.num_tokens,
                sampling=mode.sampling(index),
                drafting=Drafting.LOOKUP if index % 2 else Drafting.OFF,
                use_cache=False,
            )
            for index in indexes
        ]
        for index, outcome in zip(indexes, session.run_all(requests), strict=True):
            tally.add(index, truth[index], outcome)
    return tally


def _follow_up(text: str, outcome: Outcome) -> Prompt:
    """The next turn after ``outcome``, with the ids that were really run as its history."""
    turns = (Turn("user", text), Turn("assistant", outcome.text), Turn("user", FOLLOW_UP))
    return Prompt(turns=turns, history_ids=outcome.prompt_ids + outcome.token_ids, history_turns=2)


def _fill_cache(
    session: Session, plan: Plan, mode: Mode, texts: Sequence[str], truth: Sequence[Outcome]
) -> None:
    """Run the first turns once more, now leaving their prefixes in the cache."""
    for index, text in enumerate(texts):
        outcome = _run(session, plan, mode, index, text, use_cache=True)
        assert outcome.token_ids == truth[index].token_ids, (
            "the first turn itself is not repeatable"
        )


def _resumed(
    session: Session,
    plan: Plan,
    mode: Mode,
    prompts: Sequence[Prompt],
    cold: Sequence[Outcome],
    variant: str,
) -> Tally:
    tally = Tally(variant, mode.name)
    for index, prompt in enumerate(prompts):
        tally.add(index, cold[index], _run(session, plan, mode, index, prompt, use_cache=True))
    return tally
