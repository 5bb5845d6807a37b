"""A reply taken apart while it arrives: what the model thought, and what it answers.

The marks between the two are single tokens in most vocabularies. There they are known by their id,
so that a text which speaks about ``</think>`` changes nothing; elsewhere by their text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from hearth.engine.text.detokenise import Detokeniser

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearth.engine.text.tokenizer import Vocabulary

THINK_START, THINK_END = "<think>", "</think>"
CALL_START, CALL_END = "<tool_call>", "</tool_call>"


class Piece(NamedTuple):
    """More of a reply: reasoning, then text of the answer. Either may be empty."""

    reasoning: str = ""
    text: str = ""

    def joined(self, later: Piece) -> Piece:
        return Piece(self.reasoning + later.reasoning, self.text + later.text)


@dataclass(frozen=True, slots=True)
class Marks:
    """Where reasoning begins and ends: by token id, and by text where there is no such token."""

    by_id: Mapping[int, str]
    ends: tuple[str, ...]  # texts that end reasoning
    starts: tuple[str, ...]  # texts that are ignored at its start

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Marks:
        names = (THINK_START, THINK_END, CALL_START, CALL_END)
        ids = {name: vocabulary.control_id(name) for name in names}
        by_text = ids[THINK_END] is None
        return cls(
            {token: name for name, token in ids.items() if token is not None},
            ends=tuple(n for n in (THINK_END, CALL_START) if by_text and ids[n] is None),
            starts=(THINK_START,) if ids[THINK_START] is None else (),
        )


class _State(Enum):
    OPENING = auto()  # outside a block, nothing but white space yet: <think> may still come
    REASONING_OPENING = auto()
    REASONING = auto()
    ANSWER_OPENING = auto()  # behind </think>: empty lines are not shown
    ANSWER = auto()


class ReplyParser:
    """One reply's reasoning and answer. Owned by its request.

    Reasoning loses the white space around it: the template puts its own there. An answer loses only
    the empty lines between it and the reasoning, and keeps the indentation of its first line. A
    reply without reasoning is not changed at all.
    """

    def __init__(self, vocabulary: Vocabulary, marks: Marks, *, is_thinking: bool) -> None:
        self._detokeniser = Detokeniser(vocabulary)
        self._marks = marks
        self._state = _State.REASONING_OPENING if is_thinking else _State.OPENING
        self._held = ""  # may be white space to drop, or the beginning of a mark

    @property
    def is_thinking(self) -> bool:
        return self._state in (_State.REASONING_OPENING, _State.REASONING)

    @property
    def num_held(self) -> int:
        """Characters that may yet be the answer's first ones."""
        return len(self._held) if self._state is _State.ANSWER_OPENING else 0

    def push(self, token: int) -> Piece:
        match self._marks.by_id.get(token):
            case "<think>":
                return self._open()
            case "</think>":
                return self._close()
            case "<tool_call>":  # it stays in the answer as text
                return self._close().joined(self._shown(CALL_START))
            case str(name):
                return self._shown(name)
            case None:
                return self._take(self._detokeniser.push([token]))

    def flush(self) -> Piece:
        """What is left at the end of the reply."""
        piece = self._take(self._detokeniser.flush())
        rest, self._held = self._held, ""
        if self.is_thinking:
            return piece.joined(Piece(reasoning=rest.rstrip()))
        return piece.joined(Piece(text=rest if rest.strip() else ""))

    # --------------------------------------------------------------------------------------- marks

    def _open(self) -> Piece:
        if self._state is not _State.OPENING:
            return Piece()
        piece = self._take(self._detokeniser.flush())
        if self._state is _State.OPENING:
            self._state = _State.REASONING_OPENING
        return piece

    def _close(self) -> Piece:
        """End the reasoning, if there is any."""
        if not self.is_thinking:
            self._held = self._held.lstrip()
            return Piece()
        piece = self._take(self._detokeniser.flush())
        return piece.joined(self._end_reasoning())

    def _shown(self, name: str) -> Piece:
        return self._take(self._detokeniser.flush()).joined(self._take(name))

    def _end_reasoning(self) -> Piece:
        rest, self._held = self._held.rstrip(), ""
        self._state = _State.ANSWER_OPENING
        return Piece(reasoning=rest)

    # ---------------------------------------------------------------------------------------- text

    def _take(self, text: str) -> Piece:
        match self._state:
            case _State.ANSWER:
                return Piece(text=text)
            case _State.OPENING:
                if text.strip():
                    self._state = _State.ANSWER
                return Piece(text=text)
            case _State.REASONING_OPENING:
                return self._begin_reasoning(text)
            case _State.REASONING:
                return self._reason(text)
            case _State.ANSWER_OPENING:
                return self._begin_answer(text)

    def _begin_reasoning(self, text: str) -> Piece:
        pending = (self._held + text).lstrip()
        while pending.startswith(self._marks.starts):
            pending = pending.removeprefix(THINK_START).lstrip()
        self._held = ""
        if not pending or any(mark.startswith(pending) for mark in self._marks.starts):
            self._held = pending
            return Piece()
        self._state = _State.REASONING
        return self._reason(pending)

    def _reason(self, text: str) -> Piece:
        pending = self._held + text
        places = [place for mark in self._marks.ends if (place := pending.find(mark)) >= 0]
        if places:
            place = min(places)
            self._held = pending[:place]
            return self._end_reasoning().joined(self._begin_answer(pending[place:]))
        keep = max((_overlap(pending, mark) for mark in self._marks.ends), default=0)
        shown = pending[: len(pending) - keep].rstrip()
        self._held = pending[len(shown) :]
        return Piece(reasoning=shown)

    def _begin_answer(self, text: str) -> Piece:
        pending, self._held = self._held + text, ""
        ends = THINK_END if THINK_END in self._marks.ends else ""
        while ends and pending.lstrip().startswith(ends):
            pending = pending.lstrip().removeprefix(ends)
        words = pending.lstrip()
        indentation = pending[: len(pending) - len(words)].rpartition("\n")[2]
        if ends.startswith(words):  # nothing but white space, or the beginning of a mark
            self._held = indentation + words
            return Piece()
        self._state = _State.ANSWER
        return Piece(text=indentation + words)


def _overlap(text: str, mark: str) -> int:
    """Length of the longest end of ``text`` that begins ``mark``."""
    lengths = range(min(len(mark) - 1, len(text)), 0, -1)
    return next((length for length in lengths if text.endswith(mark[:length])), 0)
