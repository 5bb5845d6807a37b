"""A reply's reasoning and its answer are told apart, however the reply is cut into tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearth.engine.text.reasoning import Marks, Piece, ReplyParser

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hearth.engine.text.tokenizer import Vocabulary

NAMES = {256: "<think>", 257: "</think>", 258: "<tool_call>", 259: "</tool_call>", 260: "<|end|>"}
START, CLOSE, CALL, CALL_CLOSE, END = NAMES


class Words:
    """Token i is byte i; higher ones are marks, or pieces of text that a test adds."""

    def __init__(self, *, has_marks: bool = True) -> None:
        self.names = NAMES if has_marks else {END: NAMES[END]}
        self.control_ids = frozenset(self.names)
        self.pieces: dict[int, bytes] = {}

    def control_id(self, text: str) -> int | None:
        return next((token for token, name in self.names.items() if name == text), None)

    def token_bytes(self, token: int) -> bytes:
        if token in self.names:
            return self.names[token].encode()
        return self.pieces.get(token) or bytes([token])

    def token(self, piece: bytes) -> int:
        """A token of its own for any bytes."""
        token = 1000 + len(self.pieces)
        self.pieces[token] = piece
        return token


def parse(tokens: Iterable[int], *, words: Words | None = None, is_thinking: bool = True) -> Piece:
    words = words or Words()
    vocabulary: Vocabulary = words  # type: ignore[assignment]
    parser = ReplyParser(vocabulary, Marks.of(vocabulary), is_thinking=is_thinking)
    whole = Piece()
    for token in tokens:
        whole = whole.joined(parser.push(token))
    return whole.joined(parser.flush())


def spell(*parts: str | int) -> list[int]:
    """Tokens: one per byte of text, numbers as they are."""
    tokens: list[int] = []
    for part in parts:
        tokens += [part] if isinstance(part, int) else part.encode()
    return tokens


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["so be it\n", CLOSE, "\n\nYes. \n"], ("so be it", "Yes. \n")),
        ([START, "\nso", CLOSE, "Yes"], ("so", "Yes")),
        (["so", CLOSE, "\n", CLOSE, "\n\nYes", CLOSE, "!"], ("so", "Yes!")),
        (["they write </think> here", CLOSE, "Yes"], ("they write </think> here", "Yes")),
        (["so", CLOSE, "it is </think>, I say"], ("so", "it is </think>, I say")),
        (["a \n\n b", CLOSE, " c"], ("a \n\n b", " c")),
        (["so", CLOSE, "\n \n    x = 1\n"], ("so", "    x = 1\n")),
        (["so", CLOSE, "\r\n\u3000c"], ("so", "\u3000c")),
        (["so", CLOSE, " ", CLOSE, "\n  c"], ("so", "  c")),
        (["so", CLOSE, " ", CALL, "f"], ("so", "<tool_call>f")),
        (["\n\n", CLOSE, "\n\nYes"], ("", "Yes")),
        (["cut in the middle  "], ("cut in the middle", "")),
        (["so", CLOSE, "\n\n"], ("so", "")),
        (["so", CALL, "\nf", CALL_CLOSE, "!"], ("so", "<tool_call>\nf</tool_call>!")),
        (["so", CALL_CLOSE, "it", CLOSE, "!"], ("so</tool_call>it", "!")),
        ([], ("", "")),
    ],
)
def test_a_reply_that_begins_inside_its_reasoning(
    parts: list[str | int], expected: tuple[str, str]
) -> None:
    assert parse(spell(*parts)) == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([" \n Yes. \n"], ("", " \n Yes. \n")),
        ([START, "\nso\n", CLOSE, "\n\nYes"], ("so", "Yes")),
        (["\n", START, "so", CLOSE, "Yes"], ("so", "\nYes")),
        (["Yes ", START, "no"], ("", "Yes no")),
        (["Yes ", CLOSE, "\n\nno"], ("", "Yes \n\nno")),
        (["<think>so</think> Yes"], ("", "<think>so</think> Yes")),
    ],
)
def test_a_reply_that_begins_with_its_answer(
    parts: list[str | int], expected: tuple[str, str]
) -> None:
    assert parse(spell(*parts), is_thinking=False) == expected


TEXTS = [
    "so </thin it is\n </think>\n\n </think> Yes </think>",
    " <think>\n<think> 缓存👩‍👩‍👧‍👦</think>é",
    "<thi\n\n</think></thin",
    "a<tool_call>\nx</tool_call>",
    "no end </thi",
    "\n</think>",
    "so</think>\n </think>\n\t</thin",
]
SPLIT = [
    Piece("so </thin it is", " Yes </think>"),
    Piece("缓存👩‍👩‍👧‍👦", "é"),
    Piece("<thi", "</thin"),
    Piece("a", "<tool_call>\nx</tool_call>"),
    Piece("no end </thi", ""),
    Piece("", ""),
    Piece("so", "\t</thin"),
]


@pytest.mark.parametrize(("text", "expected"), [*zip(TEXTS, SPLIT, strict=True)])
def test_marks_without_tokens_are_known_by_their_text_at_every_cut(
    text: str, expected: Piece
) -> None:
    raw = text.encode()
    for first in range(len(raw) + 1):
        for second in range(first, len(raw) + 1):
            words = Words(has_marks=False)
            pieces = [p for p in (raw[:first], raw[first:second], raw[second:]) if p]
            assert parse([words.token(piece) for piece in pieces], words=words) == expected


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["a", " ", "\n", "é👩", "</think>", "<", START, CLOSE, CALL])),
    st.data(),
)
def test_tokens_of_any_length_give_the_same(parts: list[str | int], data: st.DataObject) -> None:
    whole = parse(spell(*parts))
    words, tokens = Words(), []
    for part in parts:
        if isinstance(part, int):
            tokens.append(part)
            continue
        raw = part.encode()
        cut = data.draw(st.integers(0, len(raw)))
        tokens += [words.token(piece) for piece in (raw[:cut], raw[cut:]) if piece]
    assert parse(tokens, words=words) == whole


def test_a_mark_inside_a_character_leaves_a_replacement_on_its_own_side() -> None:
    raw = "é".encode()
    assert parse([*b"so", raw[0], CLOSE, *b"Yes"]) == ("so\ufffd", "Yes")
    assert parse([raw[0], END, raw[1]], is_thinking=False) == ("", "é"), "as without reasoning"


def test_the_state_is_known_between_tokens() -> None:
    vocabulary: Vocabulary = Words()  # type: ignore[assignment]
    parser = ReplyParser(vocabulary, Marks.of(vocabulary), is_thinking=True)
    assert parser.is_thinking
    parser.push(CLOSE)
    assert not parser.is_thinking
