"""Thinking and tools from the request to the ids, with a template like the family's."""

from __future__ import annotations

import json

import pytest
from family import FAMILY, WHOLE, text_model

from hearth.engine.errors import UserError
from hearth.engine.protocol import Prompt, Thinking, Turn
from hearth.engine.text.prompt import BuiltPrompt, TextModel
from hearth.engine.text.template import CHATML


@pytest.fixture(scope="module")
def family() -> TextModel:
    return text_model(FAMILY)


def spelt(text: TextModel, built: BuiltPrompt) -> str:
    return b"".join(text.vocabulary.token_bytes(i) for i in built.ids).decode()


def ask(**fields: object) -> Prompt:
    return Prompt(turns=(Turn("user", "Hi"),), **fields)  # type: ignore[arg-type]


USER = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n"
OFF = "\n</think>\n\n"


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        (None, "<|im_start|>system\nThink long.<|im_end|>\n" + USER),
        (Thinking(), "<|im_start|>system\nThink long.<|im_end|>\n" + USER),
        (Thinking(effort="low"), "<|im_start|>system\nThink little.<|im_end|>\n" + USER),
        (Thinking(effort="medium"), USER),
        (Thinking(enabled=False), USER + OFF),
        (Thinking(enabled=False, effort="low"), USER + OFF),
    ],
)
def test_what_was_chosen_reaches_the_template(
    family: TextModel, thinking: Thinking | None, expected: str
) -> None:
    built = family.build(ask(thinking=thinking))
    assert spelt(family, built) == expected
    assert built.is_thinking == (thinking is None or thinking.enabled)


def test_an_effort_that_the_template_refuses_is_a_sentence(family: TextModel) -> None:
    with pytest.raises(UserError, match="no such effort"):
        family.build(ask(thinking=Thinking(effort="enormous")))


TALK = (
    Turn("user", "Hi"),
    Turn("assistant", " Yes. ", reasoning="I </think> say <|im_end|>"),
    Turn("user", "Why?"),
)


@pytest.mark.parametrize("template", [FAMILY, WHOLE])
def test_reasoning_is_ordinary_text_and_rendered_once(template: str) -> None:
    family = text_model(template)
    built = family.build(Prompt(turns=TALK, thinking=Thinking(effort="medium")))
    whole = "<think>\nI </think> say <|im_end|>\n</think>\n\n Yes. <|im_end|>\n"
    assert whole in spelt(family, built)
    turns = (TALK[0], Turn("assistant", "Yes."), TALK[2])
    plain = family.build(Prompt(turns=turns, thinking=Thinking(effort="medium")))
    assert [i for i in built.ids if i > 255] == [i for i in plain.ids if i > 255]
    assert built.is_thinking


@pytest.mark.parametrize("template", [FAMILY, WHOLE])
def test_reasoning_may_be_left_out(template: str) -> None:
    family = text_model(template)
    thinking = Thinking(effort="medium", preserve=False)
    built = family.build(Prompt(turns=TALK, thinking=thinking))
    assert "<|im_start|>assistant\n Yes. <|im_end|>" in spelt(family, built)
    assert "say" not in spelt(family, built)


@pytest.mark.parametrize("template", [CHATML, FAMILY, WHOLE])
def test_history_with_reasoning_continues_as_it_was_run(template: str) -> None:
    text = text_model(template)
    first = text.build(ask())
    reply = (*text.vocabulary.encode("so\n"), 259, *text.vocabulary.encode("Yes"))
    built = text.build(Prompt(turns=TALK, history_ids=first.ids + reply, history_turns=2))
    assert built.ids[: len(first.ids) + len(reply)] == first.ids + reply
    after = "<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    added = built.ids[len(first.ids) + len(reply) :]
    assert spelt(text, BuiltPrompt(added, ())).startswith(after)


def test_only_the_templates_own_block_counts() -> None:
    text = text_model("{% for m in messages %}{{ m.content }}{% endfor %}")
    assert not text.build(Prompt(turns=(Turn("user", "say <think>\n"),))).is_thinking


@pytest.mark.parametrize(
    ("template", "can_think", "by_default"),
    [
        (FAMILY, True, True),
        (WHOLE, True, True),
        (CHATML, False, False),
        ("{% if enable_thinking %}<think>{% endif %}", True, False),
        ("{{ raise_exception('no') }}", False, False),
        ("<think>\n", False, True),
    ],
)
def test_a_model_can_think_when_its_template_has_a_switch(
    template: str, can_think: bool, by_default: bool
) -> None:
    text = text_model(template)
    assert (text.can_think, text.thinks_by_default) == (can_think, by_default)


def test_templates_without_the_variables_give_the_same_ids() -> None:
    text = text_model(CHATML)
    assert text.build(ask(thinking=Thinking(effort="low"))) == text.build(ask())
    without = (TALK[0], Turn("assistant", " Yes. "), TALK[2])
    assert text.build(Prompt(turns=TALK)) == text.build(Prompt(turns=without))


TOOL = '{"type": "function", "function": {"name": "größe", "z": 1, "a": [true, null]}}'


def test_tools_are_given_as_they_are(family: TextModel) -> None:
    built = family.build(ask(tools=(TOOL, TOOL), thinking=Thinking(effort="medium")))
    assert f"# Tools\n{TOOL}\n{TOOL}\n" in spelt(family, built)


@pytest.mark.parametrize(
    "tool",
    ["{", "[1]", "[" * 100_000, json.dumps({"about": "<|im_end|>"}), r'{"a": "\u003c|im_end|>"}'],
)
def test_tools_that_are_none_or_hold_control_tokens_are_refused(
    family: TextModel, tool: str
) -> None:
    with pytest.raises(UserError, match="tool"):
        family.build(ask(tools=(tool,)))
