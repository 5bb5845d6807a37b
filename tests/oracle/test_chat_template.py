"""Templates through the sandbox and through transformers' renderer: the same text or no text.

HEARTH_LLAMA_CPP names llama.cpp's source folder, which holds published templates of the family.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from jinja2 import TemplateError

from hearth.engine.errors import UserError
from hearth.engine.text.template import ChatTemplate

OURS = Path(__file__).parents[1] / "unit" / "text" / "qwen_template.jinja"
SOURCES = os.environ.get("HEARTH_LLAMA_CPP")
PUBLISHED = sorted(Path(SOURCES, "models", "templates").glob("Qwen3*.jinja")) if SOURCES else []
Message = dict[str, Any]


def call(name: str, **arguments: Any) -> Message:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


USER: Message = {"role": "user", "content": " Größe 缓 <b>&'\" \u2028 "}
SYSTEM: Message = {"role": "system", "content": "Be kind.\n"}
REPLY: Message = {"role": "assistant", "content": "Yes.", "reasoning_content": "So\nit is."}
CALLS: Message = {
    "role": "assistant",
    "content": "Look:",
    "tool_calls": [call("weather", city="Köln", days=[1, {"a": None}], x=2.5), call("clock")],
}
RESULTS: list[Message] = [{"role": "tool", "content": text} for text in ("7 °C", '{"a": 1}')]
PARTS: Message = {
    "role": "user",
    "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "video"}],
}
TOOLS: list[Message] = [
    {"type": "function", "function": {"name": "weather", "description": "Größe <b>'"}},
    {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}},
]
CHATS: list[list[Message]] = [
    [USER],
    [SYSTEM, USER],
    [SYSTEM, USER, REPLY, USER],
    [USER, CALLS, *RESULTS, REPLY, USER, REPLY],
    [USER, CALLS, *RESULTS],
    [PARTS, REPLY, PARTS],
    [SYSTEM],
    [USER, SYSTEM],
    [{"role": "system", "content": PARTS["content"]}, USER],
    [USER, {"role": "critic", "content": "x"}],
    [],
]
VARIABLES: list[dict[str, Any]] = [
    {},
    {"enable_thinking": False},
    {"reasoning_effort": "low", "preserve_thinking": False},
    {"reasoning_effort": "none"},
    {"tools": TOOLS, "add_vision_id": True, "reasoning_effort": "medium"},
]


def by_transformers(source: str, chat: list[Message], variables: dict[str, Any]) -> str | None:
    """None when the template refuses."""
    from transformers.utils.chat_template_utils import render_jinja_template

    rest = {name: value for name, value in variables.items() if name != "tools"}
    try:
        rendered, _ = render_jinja_template(
            [chat],
            chat_template=source,
            tools=variables.get("tools"),
            add_generation_prompt=True,
            **rest,
        )
    except (TemplateError, TypeError):
        return None
    return str(rendered[0])


def by_hearth(source: str, chat: list[Message], variables: dict[str, Any]) -> str | None:
    try:
        return ChatTemplate(source).render(chat, **variables)
    except UserError:
        return None


@pytest.mark.parametrize("path", [OURS, *PUBLISHED], ids=lambda path: path.stem)
def test_the_same_text(path: Path) -> None:
    source = path.read_text("utf-8")
    rendered = {}
    for number, chat in enumerate(CHATS):
        for place, variables in enumerate(VARIABLES):
            ours = by_hearth(source, chat, variables)
            assert ours == by_transformers(source, chat, variables), (chat, variables)
            rendered[number, place] = ours
    assert sum(text is not None for text in rendered.values()) >= 20
