"""What a view has to know: plain updates from the conversation to a window or a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hearth.app.chats.records import ChatId, Message, MessageId
    from hearth.engine.protocol import ModelInfo


@dataclass(frozen=True, slots=True)
class ModelLoading:
    """``done`` and ``total`` are bytes."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class ModelReady:
    info: ModelInfo


@dataclass(frozen=True, slots=True)
class ModelFailed:
    sentence: str


@dataclass(frozen=True, slots=True)
class ModelClosed:
    pass


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """A reply has been created (it may still wait for the model or for other replies)."""

    message: Message


@dataclass(frozen=True, slots=True)
class ReplyReading:
    """The prompt is being read; tokens."""

    chat_id: ChatId
    message_id: MessageId
    done: int
    total: int
    reused: int
    restored: int


@dataclass(frozen=True, slots=True)
class ReplyText:
    """More of a reply: of its answer, or of the reasoning before it."""

    chat_id: ChatId
    message_id: MessageId
    text: str
    num_tokens: int
    num_drafted: int
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class ReplyFinished:
    message: Message


@dataclass(frozen=True, slots=True)
class ChatChanged:
    """Title, branch in view or another property of a chat."""

    chat_id: ChatId


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence for a banner."""

    sentence: str


Update = (
    ModelLoading
    | ModelReady
    | ModelFailed
    | ModelClosed
    | ReplyStarted
    | ReplyReading
    | ReplyText
    | ReplyFinished
    | ChatChanged
    | Notice
)
