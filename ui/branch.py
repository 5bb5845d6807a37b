"""The branch of a chat that is in view, as the conversation view shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearth.ui.chat_view.model import ShownMessage, shown

if TYPE_CHECKING:
    from hearth.app.conversation import Conversations
    from hearth.app.replies import Running


def branch(conversations: Conversations, chat_id: str | None) -> list[ShownMessage]:
    """Root first; a reply that is being written with the text it has so far."""
    store = conversations.store
    leaf = store.chat(chat_id).leaf_id if chat_id is not None else None
    if chat_id is None or leaf is None:
        return []
    versions = store.versions(chat_id)
    result = []
    for message in store.path(leaf):
        item = shown(message, versions.get(message.id, [message.id]))
        running = conversations.running(message.id)
        result.append(item if running is None else _so_far(item, running))
    return result


def _so_far(item: ShownMessage, running: Running) -> ShownMessage:
    return replace(
        item,
        text=running.text,
        reasoning=running.reasoning,
        reasoning_s=running.reasoning_s,
    )
