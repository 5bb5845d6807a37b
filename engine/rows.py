"""Which rows ride in the next pass: replies with their drafts, pieces of prompts, their pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.engine.draft.mtp import draft_by_mtp
from hearth.engine.round import Segment
from hearth.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hearth.engine.cache.pages import PageArena
    from hearth.engine.cache.prefix import PrefixCache
    from hearth.engine.draft.depth import StepTimes
    from hearth.engine.model.decoder import Decoder
    from hearth.engine.sequence import Sequence
    from hearth.engine.text.prompt import TextModel

# Of prompts per pass while replies run: they wait for 9 instead of 70 passes of their own
# (starter model, 2 cores: 6.4 ms a row alone, 1.7 ms a row in large passes, so little is lost).
ROWS_BESIDE_REPLIES = 32


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded model: everything the scheduler runs requests with."""

    decoder: Decoder
    arena: PageArena
    cache: PrefixCache
    text: TextModel
    times: StepTimes
    context_length: int
    prefill_chunk: int


class RowPlanner:
    """Decides the rows of each pass and gets the pages they are written to; engine thread only."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def plan(self, active: Iterable[Sequence]) -> list[Segment]:
        """Rows for the next pass; a sequence that cannot get pages now has none."""
        sequences = list(active)
        replying = self._replying([s for s in sequences if not s.is_reading])
        return replying + self._reading([s for s in sequences if s.is_reading], replying)

    def _replying(self, replying: list[Sequence]) -> list[Segment]:
        """One segment per reply: the anchor and its drafts."""
        for sequence in replying:
            sequence.plan_drafts(other_rows=len(replying) - 1)
        ready = [sequence for sequence in replying if self._has_pages(sequence)]
        drafting = [sequence for sequence in ready if sequence.mtp_depth]
        if drafting:
            draft_by_mtp(self._model.decoder, drafting)
        return [self._replying_segment(sequence) for sequence in ready]

    def _has_pages(self, sequence: Sequence) -> bool:
        num_drafts = max(len(sequence.drafts), sequence.mtp_depth)
        return self._make_pages(sequence, sequence.num_computed + 1 + num_drafts)

    def _replying_segment(self, sequence: Sequence) -> Segment:
        ids = (sequence.ids[-1], *sequence.drafts)
        return Segment(sequence, ids, sequence.num_computed, len(ids), commits=False)

    def _reading(self, reading: list[Sequence], beside: list[Segment]) -> list[Segment]:
        """Pieces of prompts. Readers share the rows evenly, and what a short one leaves goes to the
        others, so that a short question does not wait for a long document."""
        limit = ROWS_BESIDE_REPLIES if beside else self._model.prefill_chunk
        taken = sum(len(segment.ids) for segment in beside)
        room = min(limit, self._model.decoder.limits.max_rows - taken)
        reading.sort(key=lambda s: s.num_to_read - s.num_computed)
        segments: list[Segment] = []
        for place, sequence in enumerate(reading):
            share = -(-room // (len(reading) - place))
            segment = self._reading_segment(sequence, share) if share else None
            if segment is not None:
                segments.append(segment)
                room -= len(segment.ids)
        return segments

    def _reading_segment(self, sequence: Sequence, num_rows: int) -> Segment | None:
        """The next ``num_rows`` ids at most; None when there is no page for them now."""
        start = sequence.num_computed
        stop = min(start + num_rows, sequence.next_stop)
        if not self._make_pages(sequence, stop):
            return None
        draws = stop == sequence.num_to_read and not sequence.has_reply
        ids = tuple(sequence.ids[start:stop])
        return Segment(sequence, ids, start, 1 if draws else 0, commits=True)

    def _make_pages(self, sequence: Sequence, num_tokens: int) -> bool:
        """Pages for positions up to ``num_tokens``, the one being written owned alone; False when
        memory is short now."""
        first_written = sequence.num_computed // PAGE_TOKENS
        arena, cache = self._model.arena, self._model.cache
        if first_written < len(sequence.pages) and arena.is_shared(sequence.pages[first_written]):
            copy = cache.allocate()
            if copy is None:
                return False
            arena.copy(sequence.pages[first_written], copy)
            arena.release(sequence.pages[first_written])
            sequence.pages[first_written] = copy
        while len(sequence.pages) * PAGE_TOKENS < num_tokens:
            page = cache.allocate()
            if page is None:
                return False
            sequence.pages.append(page)
        return True
