"""What can be said to ``hearth chat`` on the command line, and about thinking while it runs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pydantic import ValidationError

from hearth.engine.errors import UserError

if TYPE_CHECKING:
    from hearth.app.settings import Settings, ThinkingChoice

MODES = ("auto", "on", "off")
EFFORTS = ("low", "medium", "high", "xhigh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="a model's name or path (default: the chosen model)")
    parser.add_argument("--prompt", help="say this, print the answer and leave")
    parser.add_argument("--file", action="append", default=[], help="attach a text file")
    parser.add_argument("--chat", help="continue the chat with this id")
    parser.add_argument("--last", action="store_true", help="continue the latest chat")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--max-tokens", type=int, help="longest answer; 0 is no limit")
    parser.add_argument(
        "--think",
        action=argparse.BooleanOptionalAction,
        help="let the model think before it answers (default: as the settings say)",
    )
    parser.add_argument("--effort", choices=EFFORTS, help="how much it thinks")
    parser.add_argument("--drafting", choices=("auto", "off", "lookup", "mtp"))
    parser.add_argument(
        "--keep-bf16",
        action="store_true",
        help="weights as published, whatever the settings narrow",
    )


def defaults(options: argparse.Namespace) -> argparse.Namespace:
    """The options of ``hearth chat`` for a program that was started without a command."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args([], namespace=options)


def override(settings: Settings, options: argparse.Namespace) -> None:
    chosen = settings.sampling
    """What the options say, for this run only. Raises UserError for an impossible value."""
    for name in ("temperature", "seed", "max_tokens"):
        value = getattr(options, name)
        try:
            if value is not None:
                setattr(chosen, name, value)
        except ValidationError as error:
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{flag} {value} is impossible: {error.errors()[0]['msg']}.") from error
    if options.drafting is not None:
        settings.speed.drafting = options.drafting
    if options.think is not None:
        settings.thinking.mode = "on" if options.think else "off"
    if options.effort is not None:
        settings.thinking.effort = options.effort
    if options.keep_bf16:
        settings.wide_weights.keep_all()


def choose_thinking(choice: ThinkingChoice, word: str) -> str:
    """Follow a word of the user's, or none; returns what is chosen now. An effort asks for thinking
    too, and "auto" forgets both."""
    if word in EFFORTS:
        choice.mode, choice.effort = "on", word  # type: ignore[assignment]
    elif word in MODES:
        choice.mode = word  # type: ignore[assignment]
        choice.effort = "auto" if word == "auto" else choice.effort
    elif word:
        raise UserError(f"Say one of {', '.join((*MODES, *EFFORTS))}.")
    effort = f", effort {choice.effort}" if choice.effort != "auto" else ""
    return f"Thinking: {choice.mode}{effort}."
