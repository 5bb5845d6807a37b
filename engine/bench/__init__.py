"""Benchmarks of the engine: figures with machine, date, command and a peer or a floor."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hearth.engine.errors import UserError
from hearth.engine.weights.shapes import FORMATS, SHAPES, is_synthetic

if TYPE_CHECKING:
    import argparse

    from hearth.engine.bench.output import Reporter

__all__ = ["add_commands", "run"]


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The engine's benchmarks as subcommands of ``hearth bench``; ``run`` runs what was chosen."""
    speeds = (
        ("decode", "tokens a second of a reply, against llama.cpp", 64, 128),
        ("prefill", "tokens a second of reading a prompt, against llama.cpp", 512, 1),
    )
    for name, text, prompt_tokens, output_tokens in speeds:
        command = _command(commands, name, text)
        command.add_argument("--prompt-tokens", type=int, default=prompt_tokens)
        command.add_argument("--output-tokens", type=int, default=output_tokens)
        command.add_argument("--repeats", type=int, default=5)
        command.add_argument(
            "--peer-python", help="a Python with llama_cpp; default: this one, when it has it"
        )
    resume = _command(commands, "resume", "time to first token after a kill, against a cold start")
    resume.add_argument("--context-tokens", type=int, default=2000)


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text)
    which = command.add_mutually_exclusive_group()
    which.add_argument("--model", help="name or path; default: the starter")
    which.add_argument("--shape", choices=SHAPES, help="synthetic weights of a true shape")
    command.add_argument(
        "--format", choices=FORMATS, help=f"how a shape's weights are stored; default: {FORMATS[0]}"
    )
    command.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    command.add_argument("--json", action="store_true", help="one JSON object a line")
    return command


def run(options: argparse.Namespace, report: Reporter) -> int:
    """Run the benchmark ``options.what`` on ``options.model``: the ``Path`` of a file or folder, or
    a synthetic model's name."""
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
        peer_python=_peer_python(options),
    )
    measure = speed.bench_decode if options.what == "decode" else speed.bench_prefill
    measure(speed_options, report)
    return 0


def _peer_python(options: argparse.Namespace) -> str | None:
    """llama.cpp reads files: there is none of a synthetic model."""
    from hearth.engine.bench import speed

    if not is_synthetic(options.model):
        return options.peer_python or speed.default_peer_python()
    if options.peer_python is not None:
        raise UserError(
            "Synthetic weights have no file that the peer could read.",
            action="Leave out --peer-python, or name a --model.",
        )
    return None
