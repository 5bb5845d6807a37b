"""``hearth bench …`` and ``hearth check …``: figures and promises of engine, window and store."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from hearth.app import compose
from hearth.app.chats.store import ChatStore
from hearth.app.models.registry import ModelRegistry
from hearth.engine.errors import UserError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    from hearth.app.profile import Profile


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    bench = commands.add_parser("bench", help="figures: decode, prefill, resume, ui")
    benches = bench.add_subparsers(dest="what", required=True)
    compose.add_bench_commands(benches)
    _own(benches, "ui", "time of a streaming answer's frames and of opening a long chat", bench_ui)
    bench.set_defaults(run=run_bench)
    check = commands.add_parser("check", help="promises: exactness, oracle, store")
    checks = check.add_subparsers(dest="what", required=True)
    compose.add_check_commands(checks)
    _own(checks, "store", "every chat in the store, against what it says of itself", check_store)
    check.set_defaults(run=run_check)


def _own(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    run: Callable[[Profile, argparse.Namespace], int],
) -> None:
    """A command that needs no model."""
    command = commands.add_parser(name, help=text)
    command.add_argument("--json", action="store_true", help="one JSON object a line")
    command.set_defaults(run=run)


def run_bench(profile: Profile, options: argparse.Namespace) -> int:
    if options.shape is not None:
        options.model = compose.synthetic_model(options.shape, options.format)
    elif options.format is not None:
        raise UserError("A model file has its own format.", action="Use --format with --shape.")
    else:
        options.model = _model(profile, options.model)
    return compose.run_bench(options, compose.start_report(options, options.model))


def run_check(profile: Profile, options: argparse.Namespace) -> int:
    options.model = _model(profile, options.model)
    return compose.run_check(options, compose.start_report(options, options.model))


def _model(profile: Profile, name: str | None) -> Path:
    """The named model, else the starter or any other. Raises UserError when there is none."""
    registry = ModelRegistry(profile.paths.models)
    path = registry.default("") if name is None else registry.find(name).path
    if path is None:
        raise UserError(
            "There is no model yet.", action="Run 'hearth models pull starter' or name --model."
        )
    return path


def bench_ui(profile: Profile, options: argparse.Namespace) -> int:
    """Frame and opening times of the conversation view, offscreen where there is no display."""
    # By name: the application does not know the window; the window knows the application.
    window_bench = import_module("hearth.ui.bench")
    window_bench.run(compose.start_report(options, None))
    return 0


def check_store(profile: Profile, options: argparse.Namespace) -> int:
    """Recompute what the store says about itself; 0 when all is well."""
    store = ChatStore(profile.paths.chats)
    problems = store.verify()
    count = len(store.chats(include_deleted=True))
    store.close()
    if options.json:
        print(json.dumps({"check": "store", "chats": count, "problems": problems}))
    else:
        for problem in problems:
            print(problem)
        print(f"{count} chats, {len(problems)} problems", file=sys.stderr)
    return 1 if problems else 0
