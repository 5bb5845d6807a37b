"""Conversations with the real store and the real engine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from hearth.app import compose
from hearth.app.chats.records import Message, Status
from hearth.app.chats.store import ChatStore
from hearth.app.conversation import Conversations
from hearth.app.profile import paths_below
from hearth.app.settings import Settings
from hearth.app.updates import ModelReady, ReplyFinished, ReplyText

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.model, pytest.mark.slow]
LIMIT_S = 60.0


def open_all(root: Path, model: Path) -> Conversations:
    paths = paths_below(root)
    settings = Settings()
    settings.sampling.temperature = 0.0
    settings.sampling.max_tokens = 24
    engine = compose.build_engine(paths, settings)
    conversations = Conversations(ChatStore(paths.chats), engine, settings)
    conversations.open_model(model)
    wait_for(conversations, lambda update: isinstance(update, ModelReady))
    return conversations


def wait_for(conversations: Conversations, is_it: Callable[[object], bool]) -> object:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        for update in conversations.wait(0.2):
            if is_it(update):
                return update
    raise AssertionError("it did not happen")


def answer(conversations: Conversations, reply_id: str) -> Message:
    update = wait_for(
        conversations, lambda u: isinstance(u, ReplyFinished) and u.message.id == reply_id
    )
    assert isinstance(update, ReplyFinished)
    return update.message


def test_a_chat_goes_on_after_a_restart_from_the_disk(tmp_path: Path, starter_model: Path) -> None:
    conversations = open_all(tmp_path, starter_model)
    chat = conversations.store.create_chat()
    first = answer(conversations, conversations.send(chat.id, "Name three colours. " * 20))
    again = answer(conversations, conversations.regenerate(first.id))
    assert again.text == first.text  # greedy
    assert again.usage is not None
    assert again.usage["reused_tokens"] > 0.9 * again.usage["prompt_tokens"]
    running = conversations.send(chat.id, "Tell me a very long story.")
    wait_for(conversations, lambda update: isinstance(update, ReplyText))
    conversations.stop(running)
    stopped = answer(conversations, running)
    assert stopped.status in (Status.STOPPED, Status.COMPLETE)
    assert stopped.text
    conversations.close()

    later = open_all(tmp_path, starter_model)
    more = answer(later, later.send(chat.id, "Thank you. One more?"))
    assert more.usage is not None
    assert more.usage["restored_tokens"] > 0.5 * more.usage["prompt_tokens"]
    assert later.context_used(chat.id) == more.usage["prompt_tokens"] + more.usage["output_tokens"]
    assert later.store.verify() == []
    later.close()
