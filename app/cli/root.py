"""The command line's root: arguments, logging, and one place where failures become sentences."""

from __future__ import annotations

import argparse
import faulthandler
import logging
import sys
import time
from typing import IO, TYPE_CHECKING

from hearth.app.cli.exits import EXIT_FAILED, EXIT_INTERRUPTED
from hearth.engine.errors import HearthError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearth.app.profile import Profile

KEPT_LOGS = 10


def build_parser() -> argparse.ArgumentParser:
    from hearth.app.cli import chat, doctor, measure, models

    parser = argparse.ArgumentParser(
        prog="hearth",
        description="Chat with a model on your own machine. Without a command: the window.",
    )
    parser.add_argument(
        "--temp-profile", action="store_true", help="a throw-away profile, removed at the end"
    )
    parser.add_argument(
        "--safe-mode", action="store_true", help="start without opening a model or the cache"
    )
    parser.add_argument(
        "--log-level", default="warning", choices=("debug", "info", "warning", "error")
    )
    commands = parser.add_subparsers(dest="command")
    for module in (chat, models, doctor, measure):
        module.add_commands(commands)
    return parser


def run(arguments: Sequence[str]) -> int:
    """The whole program; returns the exit code."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    options.arguments = list(arguments)
    try:
        return _run(options)
    except HearthError as error:
        print(error.sentence, file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output went away
        sys.stderr.close()
        return EXIT_FAILED


def _run(options: argparse.Namespace) -> int:
    from hearth.app.profile import Profile

    with Profile.open(temporary=options.temp_profile) as profile:
        start_logging(profile, options.log_level)
        command: Callable[[Profile, argparse.Namespace], int]
        if options.command is None:
            from hearth.app.cli.window import open_window as command
        else:
            command = options.run
        return command(profile, options)


def start_logging(profile: Profile, level: str) -> IO[str] | None:
    """A log file for this run; crashes of native code leave their traceback there too."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    path = profile.paths.logs / f"hearth-{stamp}.log"
    try:
        file = path.open("a", encoding="utf-8")
        path.chmod(0o600)
    except OSError:  # a disk that refuses a log does not keep anyone from their chats
        logging.basicConfig(handlers=[logging.NullHandler()], force=True)
        return None
    logging.basicConfig(
        stream=file,
        level=level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        force=True,
    )
    faulthandler.enable(file)
    for old in sorted(profile.paths.logs.glob("hearth-*.log"))[:-KEPT_LOGS]:
        old.unlink(missing_ok=True)
    return file
