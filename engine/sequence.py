"""One request in the engine: its tokens, pages, drafts and text."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.engine.draft.depth import FIXED_DEPTH, MTP_DEPTH, DepthController, StepTimes
from hearth.engine.draft.lookup import LookupDrafter
from hearth.engine.protocol import Drafting, FinishReason, Request, Usage
from hearth.engine.sampling import TokenCounts, draw, needs_counts
from hearth.engine.text.reasoning import Piece
from hearth.engine.text.stop import StopMatcher

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hearth.engine.cache.pages import PageId
    from hearth.engine.cache.prefix import Prefix
    from hearth.engine.text.prompt import BuiltPrompt, TextModel

REASONING_START = -1  # below every length of an answer, so that no stop string drops the token


@dataclass(slots=True)
class Timing:
    """Monotonic seconds of a request's milestones."""

    submitted: float
    started: float | None = None  # admitted: from here it has a place in the passes
    first_token: float | None = None


@dataclass(frozen=True, slots=True)
class Emitted:
    """What one round added to a reply. ``drafted`` says which ids were drafted and accepted."""

    ids: tuple[int, ...]
    drafted: tuple[bool, ...]
    text: str
    reasoning: str


class Sequence:
    """Owned by the scheduler; engine thread only.

    ``ids`` = prompt, then reply. ``num_computed`` of them have keys and values in ``pages``. While
    replying, exactly the last id is not computed; a reply that had to give up its pages reads
    everything before that id again, which changes no bit.
    """

    def __init__(
        self,
        request: Request,
        prompt: BuiltPrompt,
        text: TextModel,
        times: StepTimes,
        *,
        slot: int,
        submitted: float,
        context_length: int,
        stops: tuple[int, ...] = (),
    ) -> None:
        self.request = request
        self.slot = slot
        self.ids = list(prompt.ids)
        self.num_prompt = len(prompt.ids)
        self.num_computed = 0
        self.num_unkept = 0  # read since the cache last took them
        self.stops = stops  # where reading pauses, so that the state there can be kept
        self.pages: list[PageId] = []
        self.timing = Timing(submitted)
        self.prefix: Prefix | None = None
        self.finish_reason: FinishReason | None = None
        self.shown_text = self.shown_reasoning = ""
        self._context_length = context_length
        self._vocabulary = text.vocabulary
        self._parser = text.reply_parser(is_thinking=prompt.is_thinking)
        self._stop = StopMatcher(request.sampling.stop)
        self._produced_chars = 0  # of the answer behind the parser, held back or not
        # Per reply token: produced chars before it; REASONING_START inside the reasoning.
        self._char_starts: list[int] = []
        self._counts = (
            TokenCounts(prompt.ids, text.vocabulary.size)
            if needs_counts(request.sampling)
            else None
        )
        looks_up = request.drafting in (Drafting.AUTO, Drafting.LOOKUP)
        self._lookup = LookupDrafter() if looks_up else None
        self._depth = DepthController(times)
        self._proposal: list[int] = []
        self.drafts: list[int] = []
        self.num_rounds = self.num_drafted = self.num_accepted = 0
        if self._lookup is not None:
            self._lookup.extend(prompt.ids)

    # ------------------------------------------------------------------------------------ progress

    @property
    def has_reply(self) -> bool:
        return len(self.ids) > self.num_prompt

    @property
    def num_to_read(self) -> int:
        """How many ids have to be computed before the next one is drawn."""
        return len(self.ids) - 1 if self.has_reply else self.num_prompt

    @property
    def next_stop(self) -> int:
        """How far the next pass may read."""
        before = [stop for stop in self.stops if self.num_computed < stop < self.num_to_read]
        return before[0] if before else self.num_to_read

    @property
    def is_reading(self) -> bool:
        return self.num_computed < self.num_to_read

    @property
    def reply_ids(self) -> list[int]:
        return self.ids[self.num_prompt :]

    @property
    def tokens_left(self) -> int:
        """How many more tokens the reply may have."""
        room = self._context_length - len(self.ids)
        wanted = self.request.max_tokens
        asked = room if wanted is None else wanted - len(self.reply_ids)
        return min(room, asked)

    def plan_drafts(self, other_rows: int) -> None:
        """Choose this round's drafts; what is only watched still teaches the controller."""
        self._proposal, self.drafts = [], []
        if self._lookup is None:
            return
        limit = max(self.tokens_left - 1, 0)
        wanted = FIXED_DEPTH
        if self.request.drafting is Drafting.AUTO:
            wanted = self._depth.depth(other_rows)
        self._proposal = self._lookup.propose(min(max(wanted, 1), limit))
        self.drafts = self._proposal[: min(wanted, limit)]

    @property
    def mtp_depth(self) -> int:
        """How many tokens the model's own module is to draft in this round."""
        if self.request.drafting is not Drafting.MTP:
            return 0
        return max(min(MTP_DEPTH, self.tokens_left - 1), 0)

    def take_drafts(self, tokens: list[int]) -> None:
        self._proposal = self.drafts = tokens

    def guess(self, logits: NDArray[np.float32], place: int) -> int:
        """A drafted token, ``place`` tokens behind the last known one, with the noise that the real
        draw there will use."""
        valid = self._vocabulary.drawable(logits)
        return draw(valid, self.request.sampling, len(self.ids) + place)

    # ------------------------------------------------------------------------------------ sampling

    def draw(self, logits: NDArray[np.float32]) -> list[int]:
        """Tokens drawn from rows [1 + drafts, V]: drafts are kept as long as they equal the draw,
        and the first draw that differs is kept instead."""
        drawn: list[int] = []
        for row, expected in enumerate([*self.drafts, None]):
            token = self._draw_one(logits[row], drawn)
            drawn.append(token)
            if token != expected or self._is_end(token):
                break
        self.num_rounds += 1
        self.num_drafted += len(self.drafts)
        self._depth.learn(self._proposal, drawn)
        return drawn

    def _draw_one(self, logits: NDArray[np.float32], before: list[int]) -> int:
        position = len(self.ids) + len(before)
        valid = self._vocabulary.drawable(logits)
        if self._counts is not None:
            valid = self._counts.penalised(valid, self.request.sampling, before)
        return draw(valid, self.request.sampling, position)

    def _is_end(self, token: int) -> bool:
        return token in self._vocabulary.end_ids and not self.request.ignore_end

    # ---------------------------------------------------------------------------------- committing

    def commit(self, drawn: list[int]) -> Emitted:
        """Append drawn tokens as far as the reply goes; may set ``finish_reason``."""
        if self.timing.first_token is None:
            self.timing.first_token = time.perf_counter()
        num_before, num_shown = len(self.ids), len(self.shown_text)
        num_reasoned = len(self.shown_reasoning)
        for token in drawn:
            self._append(token)
            if self.finish_reason is not None:
                break
        if self.finish_reason is None and self.tokens_left <= 0:
            full = len(self.ids) >= self._context_length
            self.finish(FinishReason.CONTEXT_FULL if full else FinishReason.LENGTH)
        kept = self.ids[num_before:]
        self.num_computed = min(self.num_computed, len(self.ids))
        if self._lookup is not None:
            self._lookup.extend(kept)
        if self._counts is not None:
            self._counts.add(kept)
        drafted = tuple(
            place < len(self.drafts) and self.drafts[place] == token
            for place, token in enumerate(kept)
        )
        self.num_accepted += sum(drafted)
        return Emitted(
            tuple(kept), drafted, self.shown_text[num_shown:], self.shown_reasoning[num_reasoned:]
        )

    def _append(self, token: int) -> None:
        self.ids.append(token)
        in_reasoning = self._parser.is_thinking
        start = self._produced_chars + self._parser.num_held
        self._char_starts.append(REASONING_START if in_reasoning else start)
        if self._is_end(token):
            self.finish(FinishReason.END_OF_TURN)
            return
        piece = self._parser.push(token)
        self.shown_reasoning += piece.reasoning
        self._produced_chars += len(piece.text)
        shown, stopped = self._stop.push(piece.text)
        self.shown_text += shown
        if stopped:
            self.finish_reason = FinishReason.STOP_STRING
            self._drop_unshown()

    def _drop_unshown(self) -> None:
        """After a stop string only tokens with some shown text belong to the reply, and those of
        the reasoning, which stop strings do not look at."""
        while self._char_starts and self._char_starts[-1] >= len(self.shown_text):
            self._char_starts.pop()
            self.ids.pop()

    def finish(self, reason: FinishReason) -> Piece:
        """End the reply; returns what had been held back and is shown after all."""
        piece = self._parser.flush()
        tail = self._stop.push(piece.text)
        rest = tail.text + ("" if tail.stopped else self._stop.flush())
        self.shown_text += rest
        self.shown_reasoning += piece.reasoning
        self.finish_reason = reason
        return Piece(piece.reasoning, rest)

    # --------------------------------------------------------------------------------------- usage

    def usage(self) -> Usage:
        now = time.perf_counter()
        timing, prefix = self.timing, self.prefix
        first = timing.first_token or now
        reused = prefix.reused_tokens if prefix else 0
        restored = prefix.restored_tokens if prefix else 0
        return Usage(
            prompt_tokens=self.num_prompt,
            reused_tokens=reused,
            restored_tokens=restored,
            computed_tokens=self.num_prompt - reused - restored,
            output_tokens=len(self.reply_ids),
            time_to_first_token_s=first - timing.submitted,
            prefill_s=first - (timing.started or first),
            decode_s=now - first,
            rounds=self.num_rounds,
            drafted_tokens=self.num_drafted,
            accepted_tokens=self.num_accepted,
        )
