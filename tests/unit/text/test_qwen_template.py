"""What the hybrid family's chat templates do, through the sandbox, with a template of our own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hearth.engine.errors import UserError
from hearth.engine.text.template import ChatTemplate

TEMPLATE = ChatTemplate((Path(__file__).parent / "qwen_template.jinja").read_text("utf-8"))
XHIGH = (
    "Reasoning effort is set to xhigh. Please think carefully through the task, validate key "
    "assumptions, consider plausible alternatives, and prioritize correctness, consistency, and "
    "clarity in the final answer."
)
LOW = (
    "Reasoning effort is set to low. Keep your thinking brief and focused, moving directly to the "
    "conclusion without unnecessary elaboration."
)
OPEN, CLOSED = "<think>\n", "<think>\n\n</think>\n\n"
Message = dict[str, Any]


def turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def message(role: str, content: Any, **others: Any) -> Message:
    return {"role": role, "content": content, **others}


def chat(*messages: Message, **variables: Any) -> str:
    """Rendered with medium effort, which adds no sentence."""
    return TEMPLATE.render(messages, **({"reasoning_effort": "medium"} | variables))


def call(name: str, **arguments: Any) -> Message:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


USER = message("user", "Hi")
ASKED = turn("user", "Hi")
REPLY = "<|im_start|>assistant\n"
WEATHER: Message = {
    "type": "function",
    "function": {"name": "weather", "description": "Größe <b>", "parameters": {"z": 1, "a": "缓"}},
}
CLOCK: Message = {"type": "function", "function": {"name": "clock"}}


# ------------------------------------------------------------------------ thinking and its effort


def test_turns_are_framed_and_trimmed() -> None:
    rendered = chat(message("system", " Be kind.\n"), message("user", "\n Hi  there \n"))
    assert rendered == turn("system", "Be kind.") + turn("user", "Hi  there") + REPLY + OPEN


def test_without_a_reply_to_open() -> None:
    assert chat(USER, add_generation_prompt=False) == ASKED


@pytest.mark.parametrize(
    ("variables", "opening"),
    [({}, OPEN), ({"enable_thinking": True}, OPEN), ({"enable_thinking": False}, CLOSED)],
)
def test_the_reply_begins_inside_or_behind_the_think_block(
    variables: dict[str, Any], opening: str
) -> None:
    assert chat(USER, **variables) == ASKED + REPLY + opening


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({}, XHIGH),
        ({"reasoning_effort": "xhigh"}, XHIGH),
        ({"reasoning_effort": "medium"}, ""),
        ({"reasoning_effort": "low"}, LOW),
        ({"reasoning_effort": "low", "enable_thinking": False}, ""),
        ({"enable_thinking": False}, ""),
    ],
)
def test_effort_is_a_sentence_at_the_head_of_the_system_turn(
    variables: dict[str, Any], sentence: str
) -> None:
    opening = CLOSED if variables.get("enable_thinking") is False else OPEN
    alone = TEMPLATE.render([USER], **variables)
    assert alone == (turn("system", sentence) if sentence else "") + ASKED + REPLY + opening
    blank = "\n\n" if sentence else ""
    with_system = TEMPLATE.render([message("system", "Be kind."), USER], **variables)
    assert with_system.startswith(turn("system", f"{sentence}{blank}Be kind.") + ASKED)
    with_tools = TEMPLATE.render([USER], tools=[CLOCK], **variables)
    assert with_tools.startswith(f"<|im_start|>system\n{sentence}{blank}# Tools\n")


def test_another_effort_is_an_error() -> None:
    with pytest.raises(UserError, match="reasoning_effort"):
        TEMPLATE.render([USER], reasoning_effort="high")


# --------------------------------------------------------------------------------------- history

HISTORY = (
    message("user", "1"),
    message("assistant", "one", reasoning_content="\nthought 1\n"),
    message("user", "2"),
    message("assistant", "two", reasoning_content="thought 2"),
)


def thought(reasoning: str, content: str) -> str:
    return turn("assistant", f"<think>\n{reasoning}\n</think>\n\n{content}")


@pytest.mark.parametrize("variables", [{}, {"preserve_thinking": True}])
def test_reasoning_of_every_turn_is_kept(variables: dict[str, Any]) -> None:
    rendered = chat(*HISTORY, USER, **variables)
    first = turn("user", "1") + thought("thought 1", "one")
    second = turn("user", "2") + thought("thought 2", "two")
    assert rendered == first + second + ASKED + REPLY + OPEN


def test_or_only_behind_the_last_query() -> None:
    rendered = chat(*HISTORY, preserve_thinking=False)
    first = turn("user", "1") + turn("assistant", "one")
    assert rendered == first + turn("user", "2") + thought("thought 2", "two") + REPLY + OPEN


def test_a_turn_without_reasoning_has_an_empty_block() -> None:
    expected = ASKED + thought("", "Hello") + ASKED + REPLY + OPEN
    for others in ({}, {"reasoning_content": ""}, {"reasoning_content": None}):
        assert chat(USER, message("assistant", "Hello", **others), USER) == expected


def test_reasoning_is_not_looked_for_in_the_content() -> None:
    content = "<think>\nno\n</think>\n\nHello"
    rendered = chat(USER, message("assistant", content), USER)
    assert rendered == ASKED + thought("", content) + ASKED + REPLY + OPEN


def test_a_message_that_is_all_tool_response_is_no_query() -> None:
    results = message("user", " <tool_response>\n7\n</tool_response> ")
    reply = message("assistant", "x", reasoning_content="why")
    rendered = chat(USER, reply, results, preserve_thinking=False)
    assert thought("why", "x") in rendered
    real = message("user", "<tool_response>\n7\n</tool_response> and?")
    rendered = chat(USER, reply, real, preserve_thinking=False)
    assert turn("assistant", "x") in rendered


# ----------------------------------------------------------------------------------------- tools


def test_tools_are_json_lines_in_the_system_turn() -> None:
    rendered = chat(message("system", " Be kind. "), USER, tools=[WEATHER, CLOCK])
    lines = (
        '{"type": "function", "function": {"name": "weather", "description": "Größe <b>", '
        '"parameters": {"z": 1, "a": "缓"}}}\n'
        '{"type": "function", "function": {"name": "clock"}}'
    )
    assert f"\n<tools>\n{lines}\n</tools>\n\n" in rendered
    assert rendered.startswith("<|im_start|>system\n# Tools\n\n")
    assert f"</tool_call>\n\nBe kind.<|im_end|>\n{ASKED}" in rendered


def test_no_system_text_leaves_nothing_behind_the_tools() -> None:
    for first in ([], [message("system", "  ")]):
        rendered = chat(*first, USER, tools=[CLOCK])
        assert f"</tool_call><|im_end|>\n{ASKED}" in rendered


def test_an_empty_list_of_tools_is_none() -> None:
    assert chat(USER, tools=[]) == chat(USER, tools=None) == chat(USER)


CALLED = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nKöln\n</parameter>\n"
    '<parameter=days>\n[1, {"a": "缓"}]\n</parameter>\n<parameter=now>\ntrue\n</parameter>\n'
    "</function>\n</tool_call>"
)
NOW = "<tool_call>\n<function=clock>\n</function>\n</tool_call>"


@pytest.mark.parametrize(("content", "blank"), [("Let me look.", "\n\n"), ("", ""), (None, "")])
def test_tool_calls(content: str | None, blank: str) -> None:
    calls = [call("weather", city="Köln", days=[1, {"a": "缓"}], now=True), call("clock")]
    rendered = chat(USER, message("assistant", content, tool_calls=calls))
    expected = thought("", f"{content or ''}{blank}{CALLED}\n{NOW}")
    assert rendered == ASKED + expected + REPLY + OPEN


def test_arguments_are_a_mapping() -> None:
    wrong = [{"function": {"name": "clock", "arguments": '{"a": 1}'}}]
    with pytest.raises(UserError):
        chat(USER, message("assistant", "", tool_calls=wrong))


def test_results_of_one_round_share_a_user_turn() -> None:
    calls = message("assistant", "", tool_calls=[call("clock"), call("clock")])
    rendered = chat(USER, calls, message("tool", " 12 "), message("tool", "13"), USER)
    results = (
        "<|im_start|>user\n<tool_response>\n12\n</tool_response>"
        "\n<tool_response>\n13\n</tool_response><|im_end|>\n"
    )
    assert rendered == ASKED + thought("", f"{NOW}\n{NOW}") + results + ASKED + REPLY + OPEN


# ------------------------------------------------------------------------------ images and errors

IMAGE, VIDEO = {"type": "image"}, {"type": "video"}
PICTURE = "<|vision_start|><|image_pad|><|vision_end|>"
FILM = "<|vision_start|><|video_pad|><|vision_end|>"


def test_parts_are_joined_and_counted_on_demand() -> None:
    parts = [{"type": "text", "text": "a "}, IMAGE, VIDEO, {"type": "text", "text": " b"}]
    plain = turn("user", f"a {PICTURE}{FILM} b")
    assert chat(message("user", parts)) == plain + REPLY + OPEN
    rendered = chat(message("user", parts), message("user", [IMAGE]), add_vision_id=True)
    first = turn("user", f"a Picture 1: {PICTURE}Video 1: {FILM} b")
    assert rendered == first + turn("user", f"Picture 2: {PICTURE}") + REPLY + OPEN


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([USER, message("system", "x")], "behind others"),
        ([message("system", "x")], "no user query"),
        ([message("user", "<tool_response></tool_response>")], "no user query"),
        ([USER, message("critic", "x")], "unknown role critic"),
        ([message("system", [IMAGE]), USER], "holds an image"),
    ],
)
def test_errors_are_sentences(messages: list[Message], reason: str) -> None:
    with pytest.raises(UserError, match=reason) as caught:
        chat(*messages)
    assert str(caught.value).endswith(".")
    assert not str(caught.value).endswith("..")
