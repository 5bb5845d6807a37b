"""``hearth bench …`` and ``hearth check …``: hand over to the engine's (or the window's) own."""

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

    from hearth.app.profile import Profile


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    bench = commands.add_parser(
        "bench", help="figures: decode, prefill, resume, ui", add_help=False
    )
    bench.add_argument("what", nargs="?", default="--help")
    bench.set_defaults(run=run_bench, takes_rest=True)
    check = commands.add_parser("check", help="promises: exactness, oracle, store", add_help=False)
    check.add_argument("what", nargs="?", default="--help")
    check.set_defaults(run=run_check, takes_rest=True)


def run_bench(profile: Profile, options: argparse.Namespace) -> int:
    if options.what == "ui":
        window_bench = import_module("hearth.ui.bench")
        return int(window_bench.main(options.rest))
    return compose.run_bench([options.what, *_with_model(profile, options)])


def run_check(profile: Profile, options: argparse.Namespace) -> int:
    if options.what == "store":
        return check_store(profile, as_json="--json" in options.rest)
    return compose.run_check([options.what, *_with_model(profile, options)])


def _with_model(profile: Profile, options: argparse.Namespace) -> list[str]:
    """The arguments with ``--model`` as a path; the starter when none is named."""
    rest: list[str] = list(options.rest)
    if options.what.startswith("-") or "--help" in rest or "-h" in rest:
        return rest
    registry = ModelRegistry(profile.paths.models)
    if "--model" in rest:
        place = rest.index("--model") + 1
        if place >= len(rest):
            raise UserError("--model needs a name or a path.")
        rest[place] = str(registry.find(rest[place]).path)
        return rest
    path = registry.default("")
    if path is None:
        raise UserError(
            "There is no model yet.", action="Run 'hearth models pull starter' or name --model."
        )
    return ["--model", str(path), *rest]


def check_store(profile: Profile, *, as_json: bool) -> int:
    """Recompute what the store says about itself; 0 when all is well."""
    store = ChatStore(profile.paths.chats)
    problems = store.verify()
    count = len(store.chats(include_deleted=True))
    store.close()
    if as_json:
        print(json.dumps({"check": "store", "chats": count, "problems": problems}))
    else:
        for problem in problems:
            print(problem)
        print(f"{count} chats, {len(problems)} problems", file=sys.stderr)
    return 1 if problems else 0
