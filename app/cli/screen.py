"""What ``hearth chat`` prints: for a person's eyes, or one JSON object a line."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.app.chats.records import ErrorPart
from hearth.app.updates import (
    ModelFailed,
    ModelLoading,
    ModelReady,
    Notice,
    ReplyFinished,
    ReplyReading,
    ReplyText,
)
from hearth.app.usage_words import usage_words

if TYPE_CHECKING:
    from hearth.app.chats.records import Message
    from hearth.app.updates import Update

DIM, PLAIN = "\033[2m", "\033[0m"


@dataclass(slots=True)
class _Shown:
    """What the terminal has printed of the running reply."""

    reading: bool = False
    reasoning: bool = False  # the reasoning is on the screen, and nothing of the answer


class Screen:
    """Answers go to the standard output, everything else to the standard error."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._shown = _Shown()

    def _emit(self, **values: object) -> None:
        print(json.dumps(values, ensure_ascii=True), flush=True)

    def say(self, text: str) -> None:
        if not self._as_json:
            print(text, file=sys.stderr, flush=True)

    def _progress(self, text: str) -> None:
        """A line that the next one replaces; only for a person's screen."""
        if not self._as_json and sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def show(self, update: Update) -> None:
        match update:
            case ModelLoading(stage, done, total):
                self._progress(f"{stage} … {done / max(total, 1):.0%}")
            case ModelReady(info):
                self._progress("")
                made_here = f", {info.requantised}" if info.requantised else ""
                context = f"{info.context_length:,} tokens of context"
                self.say(f"{info.name}{made_here}, {context}. /help helps.")
                if self._as_json:
                    self._emit(
                        event="model",
                        name=info.name,
                        context=info.context_length,
                        requantised=info.requantised,
                        can_think=info.can_think,
                    )
            case ReplyReading(done=done, total=total):
                self._progress(f"Reading … {done:,} of {total:,} tokens")
                self._shown.reading = True
            case ReplyText():
                self._text(update)
            case ReplyFinished(message):
                self._finished(message)
            case ModelFailed(sentence) | Notice(sentence):
                self.say(sentence)
                if self._as_json:
                    self._emit(event="notice", text=sentence)
            case _:
                pass

    def _text(self, update: ReplyText) -> None:
        if self._as_json:
            reasoning = {"reasoning": update.reasoning} if update.reasoning else {}
            self._emit(event="text", text=update.text, **reasoning, tokens=update.num_tokens)
            return
        if self._shown.reading:
            self._progress("")
            self._shown.reading = False
        if update.reasoning and sys.stdout.isatty():  # a file gets the answer only
            self._write(f"{DIM}{update.reasoning}{PLAIN}")
            self._shown.reasoning = True
        if update.text and self._shown.reasoning:
            self._write("\n\n")
            self._shown.reasoning = False
        self._write(update.text)

    def _write(self, text: str) -> None:
        encoding = sys.stdout.encoding or "utf-8"
        print(text.encode(encoding, "replace").decode(encoding), end="", flush=True)

    def _finished(self, message: Message) -> None:
        usage = message.usage or {}
        self._shown.reasoning = False
        errors = [part.message for part in message.parts if isinstance(part, ErrorPart)]
        if self._as_json:
            thought = message.reasoning
            self._emit(
                event="reply",
                chat=message.chat_id,
                message=message.id,
                status=message.status.value,
                text=message.text,
                reasoning=thought.text if thought is not None else "",
                reasoning_s=thought.seconds if thought is not None else 0.0,
                token_ids=list(message.token_ids or ()),
                usage=usage,
                finish_reason=message.finish_reason,
                error=" ".join(errors) or None,
            )
            return
        print(flush=True)
        for sentence in errors:
            self.say(sentence)
        if usage:
            self.say(f"[{' · '.join(usage_words(usage))}]")
