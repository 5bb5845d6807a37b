"""Thinking in a conversation: settings to requests, reasoning to the store and back to prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hearth.app import history
from hearth.app.chats.records import ReasoningPart, Status, TextPart
from hearth.app.chats.store import ChatStore
from hearth.app.conversation import Conversations
from hearth.app.request_settings import thinking
from hearth.app.settings import Settings, ThinkingChoice
from hearth.app.updates import ReplyFinished, ReplyText
from hearth.engine.protocol import FinishReason, Thinking, Turn

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def settings() -> Settings:
    return Settings()


@pytest.fixture
def thinker(store: ChatStore, engine: Any, model_path: Path, settings: Settings) -> Conversations:
    """Conversations with a model that can think."""
    engine.can_think = True
    conversations = Conversations(store, engine, settings)
    conversations.open_model(model_path)
    conversations.pump()
    return conversations


@pytest.mark.parametrize(
    ("mode", "effort", "expected"),
    [
        ("auto", "auto", None),
        ("on", "auto", Thinking()),
        ("off", "auto", Thinking(enabled=False)),
        ("auto", "low", Thinking(effort="low")),
        ("off", "low", Thinking(enabled=False, effort="low")),
    ],
)
def test_settings_in_the_engines_words(mode: Any, effort: Any, expected: Thinking | None) -> None:
    assert thinking(ThinkingChoice(mode=mode, effort=effort)) == expected


def test_only_a_model_that_can_think_is_told_how(
    conversations: Conversations, store: ChatStore, engine: Any
) -> None:
    conversations.settings.thinking.mode = "on"
    conversations.settings.thinking.effort = "low"
    conversations.send(store.create_chat().id, "hi")
    assert engine.requests[0].prompt.thinking is None


def test_reasoning_reaches_view_and_store(
    thinker: Conversations, store: ChatStore, engine: Any
) -> None:
    reply_id = thinker.send(store.create_chat().id, "hi")
    request = engine.requests[0]
    engine.read(request)
    engine.write(request, "", reasoning="so ")
    updates = [u for u in thinker.pump() if isinstance(u, ReplyText)]
    assert [(u.reasoning, u.text) for u in updates] == [("so ", "")]
    running = thinker.running(reply_id)
    assert running is not None
    running.reasoning_began_at = 100.0
    engine.write(request, "Yes", reasoning="be it")
    thinker.pump()
    running.reasoning_ended_at = 112.0
    engine.finish(request, "Yes", reasoning="so be it")
    [finished] = [u.message for u in thinker.pump() if isinstance(u, ReplyFinished)]
    assert finished.parts == (ReasoningPart("so be it", 12.0), TextPart("Yes"))
    assert store.message(reply_id) == finished


def test_a_reply_stopped_inside_its_reasoning_is_kept(
    thinker: Conversations, store: ChatStore, engine: Any
) -> None:
    chat = store.create_chat().id
    reply_id = thinker.send(chat, "hi")
    request = engine.requests[0]
    ids = engine.read(request)
    engine.write(request, "", reasoning="so")
    engine.finish(request, "", FinishReason.CANCELLED, reasoning="so")
    thinker.pump()
    reply = store.message(reply_id)
    assert (reply.status, reply.text) == (Status.STOPPED, "")
    assert reply.reasoning is not None
    thinker.send(chat, "go on")
    prompt = engine.requests[1].prompt
    assert prompt.history_ids == (*ids, *(100 + ord(c) for c in "so"))


def test_reasoning_is_journalled(
    thinker: Conversations, store: ChatStore, engine: Any, tmp_path: Path
) -> None:
    import shutil

    now = [100.0]
    thinker._replies._clock = lambda: now[0]
    reply_id = thinker.send(store.create_chat().id, "hi")
    for reasoning, text in (("so ", ""), ("be it", ""), ("", "Yes")):
        engine.write(engine.requests[0], text, reasoning=reasoning)
        thinker.pump()
        now[0] += 1.0
    shutil.copytree(tmp_path / "chats", tmp_path / "killed")
    killed = ChatStore(tmp_path / "killed")
    reply = killed.message(reply_id)
    assert reply.status is Status.INTERRUPTED
    assert (reply.reasoning and reply.reasoning.text, reply.text) == ("so be it", "Yes")
    killed.close()


def test_a_chat_of_another_model_is_rendered_with_its_reasoning(
    thinker: Conversations, store: ChatStore, engine: Any, model_path: Path
) -> None:
    chat = store.create_chat().id
    thinker.send(chat, "hi")
    request = engine.requests[0]
    engine.read(request)
    engine.write(request, "Yes", reasoning="so")
    engine.finish(request, "Yes", reasoning="so")
    thinker.pump()
    other = model_path.with_name("beta.gguf")
    other.write_bytes(b"GGUF")
    thinker.open_model(other)
    thinker.pump()
    thinker.send(chat, "why")
    turns = (Turn("user", "hi"), Turn("assistant", "Yes", reasoning="so"), Turn("user", "why"))
    prompt = engine.requests[1].prompt
    assert (prompt.turns, prompt.history_ids) == (turns, ())


def test_another_effort_is_read_anew_and_the_switch_is_not(
    thinker: Conversations, store: ChatStore, engine: Any, settings: Settings
) -> None:
    chat = store.create_chat().id
    used = []
    for mode, effort in [("auto", "auto"), ("off", "auto"), ("off", "low"), ("on", "low")]:
        settings.thinking.mode, settings.thinking.effort = mode, effort  # type: ignore[assignment]
        thinker.send(chat, "hi")
        engine.answer("Yes")
        thinker.pump()
        used.append(bool(engine.requests[-1].prompt.history_ids))
    assert used == [False, True, False, True]


def test_keys_of_chats_without_an_effort_stay_as_they_were() -> None:
    assert history.key("print", "") == "print"
    assert history.key("print", "Be kind.") == "print+5499befb38dbf3fc"
    assert history.model_of(history.key("print", "", "low")) == "print"
