"""The engine's promises, shown on this machine: exactness, and agreement with an oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from hearth.engine.bench.output import Reporter

__all__ = ["add_commands", "run"]


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The engine's checks as subcommands of ``hearth check``; ``run`` runs what was chosen."""
    exactness = _command(
        commands, "exactness", "the same tokens drafted or not, alone or in a batch, resumed or not"
    )
    exactness.add_argument("--prompts", type=int, default=56)
    exactness.add_argument("--tokens", type=int, default=48, help="reply tokens per prompt")
    exactness.add_argument("--threads", type=int, default=None)
    oracle = _command(commands, "oracle", "logits and greedy tokens against transformers (float32)")
    oracle.add_argument("--prompts", type=int, default=10)
    oracle.add_argument("--tokens", type=int, default=200, help="greedy tokens per prompt")


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text)
    command.add_argument("--model", help="name or path; default: the starter")
    command.add_argument("--json", action="store_true", help="one JSON object a line")
    return command


def run(options: argparse.Namespace, report: Reporter) -> int:
    """Check ``options.what`` on the file or folder ``options.model`` (a ``Path``).

    Returns 0 when the promise held, 1 when it did not.
    """
    if options.what == "exactness":
        from hearth.engine.check.exactness import Plan, check_exactness

        plan = Plan(options.model, options.prompts, options.tokens, options.threads)
        held = check_exactness(plan, report)
    else:
        from hearth.engine.check.oracle import check_oracle

        held = check_oracle(options.model, options.prompts, options.tokens, report)
    report.record("verdict", {"check": options.what, "held": held})
    return 0 if held else 1
