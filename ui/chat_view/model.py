"""What the view shows of a message: plain data, made from the store's records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.app.chats.records import (
    AttachmentPart,
    ErrorPart,
    Message,
    Status,
    TextPart,
    UnreadablePart,
)
from hearth.app.usage_words import usage_words

if TYPE_CHECKING:
    from collections.abc import Sequence

STATE_WORDS = {
    Status.STOPPED: "stopped",
    Status.INTERRUPTED: "interrupted: the program ended while this was written",
    Status.FAILED: "failed",
}


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """One item of the conversation. ``version`` of ``num_versions`` counts from 1."""

    id: str
    role: str
    text: str
    reasoning: str = ""
    reasoning_s: float = 0.0
    chips: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    footer: str = ""
    is_streaming: bool = False
    version: int = 1
    num_versions: int = 1

    @property
    def is_own(self) -> bool:
        return self.role == "user"


def shown(message: Message, versions: Sequence[str]) -> ShownMessage:
    """``versions``: ids of the message's versions, oldest first."""
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    chips = [
        f"{part.name} · {_size(part.num_bytes)}"
        for part in message.parts
        if isinstance(part, AttachmentPart)
    ]
    errors = [part.message for part in message.parts if isinstance(part, ErrorPart)]
    errors += [
        f"An unreadable part ({part.kind}, {len(part.raw)} bytes); its bytes are kept."
        for part in message.parts
        if isinstance(part, UnreadablePart)
    ]
    thought = message.reasoning
    place = list(versions).index(message.id) + 1 if message.id in versions else 1
    return ShownMessage(
        id=message.id,
        role=message.role,
        text="\n\n".join(texts),
        reasoning=thought.text if thought is not None else "",
        reasoning_s=thought.seconds if thought is not None else 0.0,
        chips=tuple(chips),
        errors=tuple(errors),
        footer=footer(message),
        is_streaming=message.status is Status.STREAMING,
        version=place,
        num_versions=max(len(versions), 1),
    )


def footer(message: Message) -> str:
    """One quiet line about a reply."""
    pieces = [STATE_WORDS[message.status]] if message.status in STATE_WORDS else []
    pieces += usage_words(message.usage or {})
    if message.finish_reason in ("length", "context full"):
        pieces.append(f"ended: {message.finish_reason}")
    return "  ·  ".join(pieces)


def _size(num_bytes: int) -> str:
    if num_bytes < 1000:
        return f"{num_bytes} bytes"
    return f"{num_bytes / 1000:.0f} KB" if num_bytes < 1_000_000 else f"{num_bytes / 1e6:.1f} MB"
