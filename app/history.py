"""A chat's branch as the engine's prompt: the ids that were really run, then what is new."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from hearth.app.chats.records import Message, Status
from hearth.engine.protocol import Prompt, Thinking, Turn

if TYPE_CHECKING:
    from collections.abc import Sequence


def prompt_for(
    system_prompt: str,
    path: Sequence[Message],
    fingerprint: str,
    thinking: Thinking | None = None,
) -> Prompt:
    """``path``: root first, ending with the user's message to be answered; ``fingerprint`` is a
    ``key``.

    The token history is used as far as it reaches for this very model; a chat that another model
    answered is rendered from its text.
    """
    messages = spoken(path)
    turns = tuple(_turn(message) for message in messages)
    head = (Turn("system", system_prompt),) if system_prompt else ()
    ids, count = token_history(messages[:-1], fingerprint)
    if count == 0:
        return Prompt(turns=head + turns, thinking=thinking)
    return Prompt(
        turns=head + turns,
        history_ids=ids,
        history_turns=len(head) + count,
        thinking=thinking,
    )


def _turn(message: Message) -> Turn:
    reasoning = message.reasoning if message.role == "assistant" else None
    return Turn(message.role, message.text, reasoning.text if reasoning is not None else "")


def key(fingerprint: str, system_prompt: str, effort: str | None = None) -> str:
    """What token ids are valid for: the model, and the system turn that stands before them. A
    changed system prompt is thus read from the next message on.

    Templates put the ``effort`` of thinking into the system turn, so it counts too. Whether the
    model thinks at all does not: that is said anew before each reply, and a long chat is not read
    again for it.
    """
    if not system_prompt and effort is None:
        return fingerprint
    head = system_prompt if effort is None else f"{system_prompt}\0{effort}"
    digest = hashlib.sha256(head.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{fingerprint}+{digest[:16]}"


def model_of(message_key: str) -> str:
    """The model's fingerprint in a message's key."""
    return message_key.partition("+")[0]


def num_covered(prompt: Prompt) -> int:
    """Messages before the last turn whose tokens the prompt does not have as history."""
    head = 1 if prompt.turns[0].role == "system" else 0
    return len(prompt.turns) - max(prompt.history_turns, head) - 1


def num_tokens(path: Sequence[Message]) -> int:
    """Tokens of a branch, as far as they are known; none is counted twice."""
    messages = spoken(path)
    total, place = 0, len(messages) - 1
    while place >= 0:
        total += len(messages[place].token_ids or ())
        place -= 1 + messages[place].covers
    return total


def spoken(path: Sequence[Message]) -> list[Message]:
    """Messages that the model is given: replies that failed before their first word are not."""
    return [m for m in path if m.role != "assistant" or m.text or m.token_ids]


def token_history(messages: Sequence[Message], fingerprint: str) -> tuple[tuple[int, ...], int]:
    """Ids of the longest beginning of ``messages`` that ends with a reply and is known in ids of
    this model, and how many messages that is."""
    for count in range(len(messages), 0, -1):
        if messages[count - 1].role == "assistant":
            ids = _joined(messages[:count], fingerprint)
            if ids:
                return ids, count
    return (), 0


def prompt_ids(path: Sequence[Message], fingerprint: str) -> tuple[int, ...] | None:
    """What the model was given before the reply at the end of ``path``; None when unknown."""
    ids = _joined(path[:-1], fingerprint)
    return ids or None


def _joined(messages: Sequence[Message], fingerprint: str) -> tuple[int, ...]:
    """All slices from the first message to the last; empty when one is missing."""
    slices: list[tuple[int, ...]] = []
    place = len(messages) - 1
    while place >= 0:
        message = messages[place]
        known = message.token_ids is not None and message.model_fingerprint == fingerprint
        if not known or message.status is Status.FAILED:
            return ()
        slices.append(message.token_ids or ())
        place -= 1 + message.covers
    if place != -1:
        return ()
    return tuple(token for piece in reversed(slices) for token in piece)
