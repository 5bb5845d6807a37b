"""From turns to token ids: the template's frame and the user's words, kept apart.

The template sees a placeholder instead of each content. Its output is cut at the placeholders:
what lies between is the frame, in which control tokens count; the contents take the placeholders'
places as ordinary text, character for character, whatever the template does around them.
"""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.engine.errors import UserError
from hearth.engine.text.detokenise import Detokeniser
from hearth.engine.text.reasoning import THINK_START, Marks, ReplyParser
from hearth.engine.text.template import CHATML, PLAIN, ChatTemplate
from hearth.engine.text.tokenizer import load_vocabulary
from hearth.engine.text.variables import template_variables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hearth.engine.protocol import Prompt, Turn
    from hearth.engine.text.data import TextData
    from hearth.engine.text.tokenizer import Vocabulary

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class BuiltPrompt:
    """Ids to run, and the token indexes where a message ends (snapshots are taken there).

    ``is_thinking``: the template has opened a think block, so the reply begins inside it.
    """

    ids: tuple[int, ...]
    boundaries: tuple[int, ...]
    is_thinking: bool = False

    def __post_init__(self) -> None:
        assert all(0 < b <= len(self.ids) for b in self.boundaries), "boundaries lie in the prompt"


@dataclass(frozen=True, slots=True)
class _Frame:
    """Template text between two contents."""

    text: str


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of turn ``turn_index``."""

    turn_index: int


@dataclass(frozen=True, slots=True)
class _Reasoning:
    """What the assistant thought in turn ``turn_index``."""

    turn_index: int


_Piece = _Frame | _Content | _Reasoning


class TextModel:
    """The text side of one model. Thread-safe."""

    def __init__(self, vocabulary: Vocabulary, chat_template: str | None) -> None:
        self.vocabulary = vocabulary
        self.has_chat_template = chat_template is not None
        if chat_template is None:
            has_marks = vocabulary.control_id("<|im_start|>") is not None
            chat_template = CHATML if has_marks else PLAIN
        self._template = ChatTemplate(chat_template)
        names = sorted(
            (vocabulary.token_bytes(i).decode() for i in vocabulary.control_ids), key=len
        )
        longest_first = "|".join(re.escape(name) for name in reversed(names))
        self._control = re.compile(f"({longest_first})") if names else None
        self._marks = Marks.of(vocabulary)
        self.can_think, self.thinks_by_default = self._probe_thinking()

    def detokeniser(self) -> Detokeniser:
        return Detokeniser(self.vocabulary)

    def reply_parser(self, *, is_thinking: bool) -> ReplyParser:
        """For one reply; ``is_thinking`` is that of its BuiltPrompt."""
        return ReplyParser(self.vocabulary, self._marks, is_thinking=is_thinking)

    def _probe_thinking(self) -> tuple[bool, bool]:
        """Whether the switch changes what a template makes of the shortest chat, and whether the
        model thinks by itself: the switch stands on "on", or there is none and a block is open."""
        probe = [{"role": "user", "content": "?"}]
        try:
            on, off = (self._template.render(probe, enable_thinking=on) for on in (True, False))
            by_itself = self._template.render(probe)
            return on != off, by_itself == on if on != off else _opens_block(by_itself)
        except UserError:  # it will say so when it is used
            return False, False

    def build(self, prompt: Prompt) -> BuiltPrompt:
        """Token ids of a prompt. Raises UserError when the template refuses the chat."""
        if prompt.raw_ids is not None:
            return BuiltPrompt(prompt.raw_ids, (len(prompt.raw_ids),))
        pieces = self._pieces(prompt)
        builder = _Builder(self, prompt.turns)
        if prompt.history_turns:
            pieces = _after_turn(pieces, prompt.history_turns - 1)
            builder.begin_with(prompt.history_ids)
        elif self.vocabulary.bos_id is not None:
            builder.ids.append(self.vocabulary.bos_id)
        for piece in pieces:
            builder.add(piece)
        return builder.finish()

    def _pieces(self, prompt: Prompt) -> list[_Piece]:
        """The rendered chat as frames and contents, every content exactly once and in order.

        Reasoning may be left out: many templates show that of the last turns only, or none.
        """
        for turn in prompt.turns:
            if turn.role not in ROLES:
                raise UserError(f"The role {turn.role} is unknown.")
        variables = template_variables(prompt)
        self._refuse_control(json.dumps(variables.get("tools"), ensure_ascii=False))
        mark = secrets.token_hex(8)
        messages = [_message(turn, mark, index) for index, turn in enumerate(prompt.turns)]
        rendered = self._template.render(messages, **variables)
        pieces = list(_interleave(re.split(f"HEARTH{mark}([NR][0-9]+)E", rendered)))
        order = [piece.turn_index for piece in pieces if isinstance(piece, _Content)]
        if order != list(range(len(prompt.turns))):
            raise UserError(
                "The model's chat template leaves out or repeats a message.",
                action="Choose another version of the model, or remove the system prompt.",
            )
        return pieces

    def _refuse_control(self, tools: str) -> None:
        """Tools are part of the frame, so their words must not hold what counts there."""
        found = self._control.search(tools) if self._control else None
        if found is not None:
            raise UserError(
                f"The description of a tool holds {found[0]}, which is a control token.",
                action="Remove it from the tool's description.",
            )

    def split_control(self, text: str) -> list[str]:
        """A frame's text cut at control tokens, which stand alone."""
        if self._control is None:
            return [text] if text else []
        return [part for part in self._control.split(text) if part]


def _opens_block(frame: str) -> bool:
    """Whether a reply behind this text begins inside a think block."""
    return frame.rstrip().endswith(THINK_START)


def _message(turn: Turn, mark: str, index: int) -> dict[str, str]:
    """A turn with placeholders for its contents, as the template sees it."""
    message = {"role": turn.role, "content": f"HEARTH{mark}N{index}E"}
    if turn.reasoning:
        message["reasoning_content"] = f"HEARTH{mark}R{index}E"
    return message


def _interleave(parts: Sequence[str]) -> Iterator[_Piece]:
    for place, part in enumerate(parts):
        if place % 2:
            index = int(part[1:])
            yield _Content(index) if part[0] == "N" else _Reasoning(index)
        elif part:
            yield _Frame(part)


def _after_turn(pieces: list[_Piece], turn_index: int) -> list[_Piece]:
    """What follows the content of turn ``turn_index``."""
    return pieces[pieces.index(_Content(turn_index)) + 1 :]


class _Builder:
    """Joins neighbouring ordinary text before encoding it, so that ids are the reference's."""

    def __init__(self, model: TextModel, turns: Sequence[Turn]) -> None:
        self._model = model
        self._turns = turns
        self.ids: list[int] = []
        self._text = ""
        self._boundaries: list[int] = []
        self._boundary_after_control = False
        self._skip: int | None = None
        self._is_thinking = False

    def begin_with(self, history_ids: Sequence[int]) -> None:
        """Start behind a reply. An end-of-turn it already has is not repeated by the frame."""
        self.ids += history_ids
        self._boundaries.append(len(self.ids))
        if self.ids[-1] in self._model.vocabulary.end_ids:
            self._skip = self.ids[-1]

    def add(self, piece: _Piece) -> None:
        self._is_thinking = isinstance(piece, _Frame) and _opens_block(piece.text)
        match piece:
            case _Frame(text):
                self._add_frame(text)
            case _Content(turn_index):
                self._skip = None
                self._text += self._turns[turn_index].text
                self._boundary_after_control = True
            case _Reasoning(turn_index):
                self._skip = None
                self._text += self._turns[turn_index].reasoning

    def _add_frame(self, text: str) -> None:
        for part in self._model.split_control(text):
            control = self._model.vocabulary.control_id(part)
            if control is None:
                self._text += part
            elif control == self._skip and not self._text:
                pass
            else:
                self._flush()
                self.ids.append(control)
                self._mark_end_of_message(control)
            self._skip = None

    def _mark_end_of_message(self, control: int) -> None:
        """The first end-of-turn behind a content ends that message."""
        if self._boundary_after_control and control in self._model.vocabulary.end_ids:
            self._boundaries.append(len(self.ids))
            self._boundary_after_control = False

    def _flush(self) -> None:
        if self._text:
            self.ids += self._model.vocabulary.encode(self._text)
            self._text = ""

    def finish(self) -> BuiltPrompt:
        self._flush()
        boundaries = dict.fromkeys([*self._boundaries, len(self.ids)])
        return BuiltPrompt(tuple(self.ids), tuple(boundaries), is_thinking=self._is_thinking)


def load_text(data: TextData) -> TextModel:
    """The text side of an opened model."""
    return TextModel(load_vocabulary(data), data.chat_template)
