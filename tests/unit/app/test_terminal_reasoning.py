"""Reasoning in the terminal: dim before the answer, a field of its own in JSON, never in a file."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

import pytest

from hearth.app.cli.chat import Terminal
from hearth.app.cli.chat_options import add_arguments, override
from hearth.app.settings import Settings
from hearth.engine.errors import UserError

if TYPE_CHECKING:
    from hearth.app.chats.store import ChatStore
    from hearth.app.conversation import Conversations


def say(conversations: Conversations, engine: Any, *, as_json: bool = False) -> None:
    def answer(request: Any) -> None:
        engine.read(request)
        engine.write(request, "", reasoning="so ")
        engine.write(request, "Y", reasoning="it is")
        engine.write(request, "es")
        engine.finish(request, "Yes", reasoning="so it is")

    engine.on_submit = answer
    terminal = Terminal(conversations, as_json=as_json)
    terminal._chat_id = conversations.store.create_chat().id
    terminal.say("hi")


def test_a_screen_shows_it_dim(
    conversations: Conversations,
    engine: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    say(conversations, engine)
    dim = "\033[2mso \033[0m\033[2mit is\033[0m"
    assert capsys.readouterr().out == f"{dim}\n\nYes\n"


def test_a_file_gets_the_answer_only(
    conversations: Conversations, engine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    say(conversations, engine)
    assert capsys.readouterr().out == "Yes\n"


def test_json_has_fields_for_it(
    conversations: Conversations, engine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    say(conversations, engine, as_json=True)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    texts = [(e.get("reasoning"), e["text"]) for e in events if e["event"] == "text"]
    assert texts == [("so ", ""), ("it is", "Y"), (None, "es")]
    [reply] = [e for e in events if e["event"] == "reply"]
    assert (reply["reasoning"], reply["text"]) == ("so it is", "Yes")
    assert reply["reasoning_s"] >= 0.0


@pytest.mark.parametrize(
    ("words", "mode", "effort"),
    [
        ([], "auto", "auto"),
        (["--think"], "on", "auto"),
        (["--no-think"], "off", "auto"),
        (["--effort", "low"], "auto", "low"),
    ],
)
def test_options_override_the_settings(words: list[str], mode: str, effort: str) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    settings = Settings()
    override(settings, parser.parse_args(words))
    assert (settings.thinking.mode, settings.thinking.effort) == (mode, effort)


def test_think_is_a_command(
    conversations: Conversations, engine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(conversations, as_json=False)
    said = []
    for line in ("/think", "/think on", "/think  low", "/think off", "/think auto", "/think big"):
        try:
            terminal._obey(line)
            said.append(capsys.readouterr().err.splitlines()[0])
        except UserError as error:
            said.append(error.sentence)
    assert said == [
        "Thinking: auto.",
        "Thinking: on.",
        "Thinking: on, effort low.",
        "Thinking: off, effort low.",
        "Thinking: auto.",
        "Say one of auto, on, off, low, medium, high, xhigh.",
    ]
    assert engine.requests == []


def test_a_wish_without_effect_is_said(
    conversations: Conversations, store: ChatStore, capsys: pytest.CaptureFixture[str]
) -> None:
    Terminal(conversations, as_json=False).check_can_think()
    assert "no switch for thinking" in capsys.readouterr().err


def test_json_says_why_a_reply_failed(
    conversations: Conversations, engine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.on_submit = lambda request: engine.fail(request, "The template refuses this chat.")
    terminal = Terminal(conversations, as_json=True)
    assert terminal.say("hi") == 1
    [reply] = [
        event
        for event in map(json.loads, capsys.readouterr().out.splitlines())
        if event["event"] == "reply"
    ]
    assert reply["error"] == "The template refuses this chat."
