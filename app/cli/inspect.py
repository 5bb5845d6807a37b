"""``hearth models inspect``: what a model is, and what it needs on a card, as bars of text."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from hearth.app import compose
from hearth.app.cli.exits import EXIT_FAILED, EXIT_OK
from hearth.app.memory_words import (
    FREE,
    as_data,
    card_words,
    detail_words,
    fit_words,
    part_title,
    requantised_words,
)
from hearth.app.models.plans import left_to_device
from hearth.app.models.registry import ModelRegistry
from hearth.app.settings import SettingsFile
from hearth.engine.errors import UserError
from hearth.engine.memory import KvFormat, MemoryWish, StateFormat, size_words

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from hearth.app.compose import ModelFacts
    from hearth.app.profile import Profile
    from hearth.app.settings import WideWeights
    from hearth.engine.memory import PlannedMemory

BAR_CELLS = 40
EIGHTHS = "▏▎▍▌▋▊▉"


def add_command(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser("inspect", help="what a model is, and what fits on a card")
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("--shape", help="a published shape instead: qwen3.8-27b and others")
    parser.add_argument("--format", help="how the shape's weights are stored: w4a16 and others")
    parser.add_argument(
        "--card", default="", metavar="SIZE|NAME",
        help="24GB, 'RTX 4090' or cpu (default: the card that is here, else the processor)",
    )  # fmt: skip
    parser.add_argument("--context", type=int, metavar="N", help="tokens (default: all that fit)")
    parser.add_argument("--kv", choices=[kv.value for kv in KvFormat], help="keys and values")
    parser.add_argument("--state", choices=[s.value for s in StateFormat], help="recurrent states")
    parser.add_argument("--requests", type=int, metavar="N", help="replies at the same time")
    parser.add_argument("--no-mtp", action="store_true", help="leave the MTP module out")
    parser.add_argument(
        "--keep-bf16",
        action="store_true",
        help="count embedding, head and MTP as published",
    )
    parser.set_defaults(run=inspect_model)
    parser.add_argument("--json", action="store_true", help="JSON on standard output")


def inspect_model(profile: Profile, options: argparse.Namespace) -> int:
    """Exit code 1 and the sentence on standard error when the settings are impossible."""
    wide_weights = SettingsFile(profile.paths.settings_file).values.wide_weights
    if options.keep_bf16:
        wide_weights.keep_all()
    opened = compose.open_headers(_path(profile, options), wide_weights)
    facts, plan = opened.facts, opened.plan(options.card, _wish(options, wide_weights))
    if options.json:
        print(json.dumps({**asdict(facts), "memory": as_data(plan)}))
    else:
        print("\n".join([*_facts(facts), "", *memory_table(plan)]))
    if plan.refusal is None:
        return EXIT_OK
    print(plan.refusal.sentence, file=sys.stderr)
    return EXIT_FAILED


def _path(profile: Profile, options: argparse.Namespace) -> Path:
    """A model at hand, or the name of a shape without weights."""
    if options.shape is None and options.format is not None:
        raise UserError("A model file has its own format.", action="Use --format with --shape.")
    if bool(options.name) == (options.shape is not None):
        raise UserError("Nothing or too much is named.", action="Name a model, or use --shape.")
    if options.shape is not None:
        return compose.synthetic_model(options.shape, options.format)
    return ModelRegistry(profile.paths.models).find(options.name).path


def _wish(options: argparse.Namespace, wide_weights: WideWeights) -> MemoryWish:
    return MemoryWish(
        context=options.context,
        kv=KvFormat(options.kv) if options.kv else None,
        state=StateFormat(options.state) if options.state else None,
        max_requests=options.requests,
        use_mtp=not options.no_mtp,
        requantise=left_to_device(wide_weights),
    )


def _facts(facts: ModelFacts) -> list[str]:
    return [
        f"{name.replace('_', ' '):<24}{f'{value:,}' if isinstance(value, int) else value}"
        for name, value in asdict(facts).items()
        if value is not None
    ]


def memory_table(plan: PlannedMemory) -> list[str]:
    """One line a part with a bar in proportion to all that is needed, then the figures."""
    whole = plan.needed_bytes
    rows = [(part_title(plan, part.id), part.num_bytes) for part in plan.parts]
    if plan.free_bytes >= 0:
        rows.append((FREE, plan.free_bytes))
    lines = [card_words(plan), ""]
    for title, num_bytes in rows:
        cells = bar(num_bytes / whole) if title != FREE else ""
        lines.append(f"{title:<24}{size_words(num_bytes):>12}  {cells}".rstrip())
    lines += ["", *(f"{name:<24}{value}" for name, value in detail_words(plan))]
    notes = [requantised_words(plan), fit_words(plan) if plan.refusal is None else ""]
    return [*lines, "", *(note for note in notes if note)]


def bar(share: float) -> str:
    """``share`` of ``BAR_CELLS`` in blocks; anything that is there shows at least a sliver."""
    eighths = max(round(share * BAR_CELLS * 8), 1 if share > 0.0 else 0)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (EIGHTHS[rest - 1] if rest else "")
