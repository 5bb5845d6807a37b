"""A chat's branch as the engine's prompt: the ids that were really run, then what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearth.app.chats.records import Message, Status
from hearth.engine.protocol import Prompt, Turn

if TYPE_CHECKING:
    from collections.abc import Sequence


def prompt_for(system_prompt: str, path: Sequence[Message], fingerprint: str) -> Prompt:
    """``path``: root first, ending with the user's message to be answered.

    The token history is used as far as it reaches for this very model; a chat that another model
    answered is rendered from its text.
    """
    messages = spoken(path)
    turns = tuple(Turn(message.role, message.text) for message in messages)
    head = (Turn("system", system_prompt),) if system_prompt else ()
    ids, count = token_history(messages[:-1], fingerprint)
    if count == 0:
        return Prompt(turns=head + turns)
    return Prompt(turns=head + turns, history_ids=ids, history_turns=len(head) + count)


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
