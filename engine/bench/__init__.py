"""What ``hearth bench`` runs: figures with machine, date, command and a peer or a floor."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "parser"]


def parser() -> argparse.ArgumentParser:
    """Arguments of the engine's benchmarks (``bench ui`` belongs to the window)."""
    root = argparse.ArgumentParser(prog="hearth bench", description=__doc__)
    commands = root.add_subparsers(dest="what", required=True)
    for name, prompt_tokens, output_tokens in (("decode", 64, 128), ("prefill", 512, 1)):
        command = _command(commands, name)
        command.add_argument("--prompt-tokens", type=int, default=prompt_tokens)
        command.add_argument("--output-tokens", type=int, default=output_tokens)
        command.add_argument("--repeats", type=int, default=5)
        command.add_argument(
            "--peer-python", help="a Python with llama_cpp; default: this one, when it has it"
        )
    _command(commands, "resume").add_argument("--context-tokens", type=int, default=2000)
    return root


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name)
    command.add_argument("--model", type=Path, required=True, help="a GGUF file or a model folder")
    command.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    command.add_argument("--json", action="store_true", help="one JSON object a line")
    return command


def main(arguments: Sequence[str]) -> int:
    """Run one benchmark; returns the exit code."""
    from hearth.engine.bench.output import Reporter

    options = parser().parse_args(arguments)
    report = Reporter(as_json=options.json)
    report.machine(["bench", *arguments])
    if options.what == "resume":
        from hearth.engine.bench.resume import bench_resume

        bench_resume(options.model, options.context_tokens, options.threads, report)
        return 0
    from hearth.engine.bench import speed

    speed_options = speed.SpeedOptions(
        model=options.model,
        prompt_tokens=options.prompt_tokens,
        output_tokens=max(options.output_tokens, 2) if options.what == "decode" else 1,
        repeats=options.repeats,
        num_threads=options.threads,
        peer_python=options.peer_python or speed.default_peer_python(),
    )
    run = speed.bench_decode if options.what == "decode" else speed.bench_prefill
    run(speed_options, report)
    return 0
