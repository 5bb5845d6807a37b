"""What ``hearth check exactness`` and ``oracle`` run: promises, shown on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "parser"]


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="hearth check", description=__doc__)
    commands = root.add_subparsers(dest="what", required=True)
    exactness = _command(commands, "exactness")
    exactness.add_argument("--prompts", type=int, default=56)
    exactness.add_argument("--tokens", type=int, default=48, help="reply tokens per prompt")
    exactness.add_argument("--threads", type=int, default=None)
    oracle = _command(commands, "oracle")
    oracle.add_argument("--prompts", type=int, default=10)
    oracle.add_argument("--tokens", type=int, default=200, help="greedy tokens per prompt")
    return root


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name)
    command.add_argument("--model", type=Path, required=True, help="a GGUF file or a model folder")
    command.add_argument("--json", action="store_true", help="one JSON object a line")
    return command


def main(arguments: Sequence[str]) -> int:
    """Run one check; 0 when the promise held, 1 when it did not."""
    from hearth.engine.bench.output import Reporter

    options = parser().parse_args(arguments)
    report = Reporter(as_json=options.json)
    report.machine(["check", *arguments])
    if options.what == "exactness":
        from hearth.engine.check.exactness import Plan, check_exactness

        plan = Plan(options.model, options.prompts, options.tokens, options.threads)
        held = check_exactness(plan, report)
    else:
        from hearth.engine.check.oracle import check_oracle

        held = check_oracle(options.model, options.prompts, options.tokens, report)
    report.record("verdict", {"check": options.what, "held": held})
    return 0 if held else 1
