"""What the store hands out: frozen records of chats, messages and their parts.

Positions and lengths in text are code points (``char_*``); token ids are exact and never
re-derived from text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

ChatId = str
MessageId = str
Role = Literal["system", "user", "assistant"]


class Status(Enum):
    """Where a message stands in its life."""

    COMPLETE = "complete"
    STREAMING = "streaming"  # only while a reply is being generated
    STOPPED = "stopped"  # the user pressed Stop; the text is kept
    INTERRUPTED = "interrupted"  # the program died while it was streaming; rebuilt from the journal
    FAILED = "failed"  # the engine reported a failure; what had arrived is kept


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text exactly as typed, pasted or generated."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """What the model thought before its answer, and for how long. Not searched, not copied."""

    text: str
    seconds: float

    def __post_init__(self) -> None:
        assert self.text, "no reasoning is no part"


@dataclass(frozen=True, slots=True)
class AttachmentPart:
    """A long paste or a dropped text file. The exact bytes live in a blob; the prompt receives
    ``text``, their decoding."""

    name: str
    blob_sha256: str
    num_bytes: int
    encoding: str
    text: str


@dataclass(frozen=True, slots=True)
class ErrorPart:
    """One sentence about why a reply failed; never sent to the model."""

    message: str


@dataclass(frozen=True, slots=True)
class UnreadablePart:
    """A stored part that this version cannot read. Its raw bytes stay in the database."""

    kind: str
    raw: bytes


Part = TextPart | ReasoningPart | AttachmentPart | ErrorPart | UnreadablePart


def reply_parts(text: str, reasoning: ReasoningPart | None, error: str | None) -> tuple[Part, ...]:
    """A reply's parts in the order in which they came about."""
    answer = TextPart(text) if text else None
    failure = ErrorPart(error) if error is not None else None
    return tuple(part for part in (reasoning, answer, failure) if part is not None)


@dataclass(frozen=True, slots=True)
class Message:
    """One node of a chat's tree.

    ``token_ids``: for an assistant message the ids of the reply that were really run or produced
    (end of turn included); for a user or system message the ids that its turn added to the prompt
    (template scaffolding included). None when unknown. ``covers`` counts the messages right before
    this one whose tokens are in its ids too (a chat that another model had begun). The token
    history of a branch is the concatenation of its slices, valid for one ``model_fingerprint``.
    """

    id: MessageId
    chat_id: ChatId
    parent_id: MessageId | None
    role: Role
    parts: tuple[Part, ...]
    status: Status
    created_at: float  # seconds since the epoch, UTC
    token_ids: tuple[int, ...] | None = None
    covers: int = 0
    model_fingerprint: str | None = None
    model_name: str | None = None
    usage: dict[str, float] | None = None  # fields of engine.protocol.Usage
    finish_reason: str | None = None

    @property
    def text(self) -> str:
        """What a reader sees and what the model is given: attachments first, then text."""
        pieces = [part.text for part in self.parts if isinstance(part, AttachmentPart | TextPart)]
        return "\n\n".join(pieces) if len(pieces) > 1 else "".join(pieces)

    @property
    def reasoning(self) -> ReasoningPart | None:
        """What a reply thought before its text."""
        return next((part for part in self.parts if isinstance(part, ReasoningPart)), None)


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation as the list shows it. ``leaf_id`` is the end of the branch in view."""

    id: ChatId
    title: str
    created_at: float
    updated_at: float
    leaf_id: MessageId | None
    system_prompt: str = ""
    pinned: bool = False
    deleted_at: float | None = None


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A message that matches. ``char_start``/``char_end`` mark the first match in ``snippet``."""

    chat_id: ChatId
    chat_title: str
    message_id: MessageId
    role: Role
    snippet: str
    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening the store found and mended, for one banner."""

    interrupted: tuple[MessageId, ...] = ()
    notices: tuple[str, ...] = field(default_factory=tuple)  # whole sentences for the user
    read_only: bool = False
