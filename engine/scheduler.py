"""Which requests run now: admission, prompt pieces between rounds, pages, the end of replies."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.engine.errors import HearthError
from hearth.engine.protocol import (
    Failed,
    Finished,
    FinishReason,
    Reading,
    Request,
    Tokens,
)
from hearth.engine.round import Segment, run_round
from hearth.engine.sequence import Sequence
from hearth.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearth.engine.cache.pages import PageArena
    from hearth.engine.cache.prefix import PrefixCache
    from hearth.engine.draft.depth import StepTimes
    from hearth.engine.model.decoder import Decoder
    from hearth.engine.protocol import Event
    from hearth.engine.text.prompt import TextModel

KEEP_EVERY_TOKENS = 2048  # a long prompt that is cancelled can be continued from here


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


@dataclass(frozen=True, slots=True)
class Waiting:
    request: Request
    submitted: float


class Scheduler:
    """Owns the sequences of one model; engine thread only.

    Attributes:
        computed_since_save: prompt tokens computed since the engine last looked.
    """

    def __init__(self, model: Model, emit: Callable[[Event], None]) -> None:
        self._model = model
        self._emit = emit
        self._waiting: deque[Waiting] = deque()
        self._active: list[Sequence] = []
        self._free_slots = list(range(model.decoder.limits.max_requests - 1, -1, -1))
        self.computed_since_save = 0

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._active

    # ------------------------------------------------------------------------------------ commands

    def submit(self, request: Request) -> None:
        self._waiting.append(Waiting(request, time.perf_counter()))

    def cancel(self, request_id: str) -> None:
        """End a request now; what it has shown stays. Unknown ids are ignored: it has ended."""
        for waiting in [w for w in self._waiting if w.request.id == request_id]:
            self._waiting.remove(waiting)
            self._emit(Failed(request_id, "The request was cancelled before it started."))
        for sequence in [s for s in self._active if s.request.id == request_id]:
            rest = sequence.finish(FinishReason.CANCELLED)
            if rest:
                self._emit(Tokens(request_id, rest, (), ()))
            self._retire(sequence)

    def cancel_all(self) -> None:
        for waiting in list(self._waiting):
            self.cancel(waiting.request.id)
        for sequence in list(self._active):
            self.cancel(sequence.request.id)

    def fail_all(self, message: str) -> None:
        """End everything after an error in a pass: its state cannot be trusted."""
        for waiting in self._waiting:
            self._emit(Failed(waiting.request.id, message))
        self._waiting.clear()
        for sequence in list(self._active):
            self._emit(Failed(sequence.request.id, message))
            self._release(sequence)

    # ---------------------------------------------------------------------------------------- step

    def step(self) -> None:
        """Admit what fits and run one pass."""
        self._admit()
        segments = self._replying_segments()
        segments += self._reading_segments(segments)
        if not segments:
            self._resolve_starvation()
            return
        logits = run_round(self._model.decoder, segments)
        for segment, rows in zip(segments, logits, strict=True):
            self._advance(segment, rows)

    def _advance(self, segment: Segment, logits: object) -> None:
        sequence = segment.sequence
        was_reading = sequence.is_reading
        if was_reading:
            sequence.num_computed += len(segment.ids)
            self._read(sequence, len(segment.ids))
            if sequence.is_reading:
                return
            self._keep(sequence)
        drawn = sequence.draw(logits)  # type: ignore[arg-type]
        if not was_reading:
            sequence.num_computed += len(drawn)
        emitted = sequence.commit(drawn)
        self._emit(Tokens(sequence.request.id, emitted.text, emitted.ids, emitted.drafted))
        if sequence.finish_reason is not None:
            self._retire(sequence)

    # ----------------------------------------------------------------------------------- admission

    def _admit(self) -> None:
        while self._waiting and self._free_slots:
            waiting = self._waiting.popleft()
            try:
                sequence = self._begin(waiting)
            except HearthError as error:
                self._emit(Failed(waiting.request.id, error.sentence))
                continue
            self._active.append(sequence)

    def _begin(self, waiting: Waiting) -> Sequence:
        """Build the prompt and look up its prefix. Raises UserError when it cannot run."""
        model, request = self._model, waiting.request
        prompt = model.text.build(request.prompt)
        if not prompt.ids:
            raise HearthError("There is nothing to read in this request.")
        if len(prompt.ids) >= model.context_length:
            raise HearthError(
                f"The chat has {len(prompt.ids):,} tokens and the context holds "
                f"{model.context_length:,}.",
                action="Start a new chat, remove an attachment, or open the model with more context.",
            )
        sequence = Sequence(
            request,
            prompt,
            model.text,
            model.times,
            slot=self._free_slots.pop(),
            submitted=waiting.submitted,
            context_length=model.context_length,
        )
        sequence.timing.started = time.perf_counter()
        if request.use_cache:
            sequence.prefix = model.cache.lookup(sequence.ids)
            sequence.pages = list(sequence.prefix.pages)
            sequence.num_computed = sequence.prefix.num_tokens
        self._announce(sequence, with_ids=True)
        return sequence

    def _announce(self, sequence: Sequence, *, with_ids: bool = False) -> None:
        prefix = sequence.prefix
        self._emit(
            Reading(
                sequence.request.id,
                sequence.num_computed,
                sequence.num_prompt,
                prefix.reused_tokens if prefix else 0,
                prefix.restored_tokens if prefix else 0,
                tuple(sequence.ids) if with_ids else None,
            )
        )

    # ------------------------------------------------------------------------------------ segments

    def _replying_segments(self) -> list[Segment]:
        """One segment per reply: the anchor and its drafts."""
        replying = [s for s in self._active if not s.is_reading]
        segments: list[Segment] = []
        for sequence in replying:
            sequence.plan_drafts(other_rows=len(replying) - 1)
            ids = (sequence.ids[-1], *sequence.drafts)
            if self._make_pages(sequence, sequence.num_computed + len(ids)):
                segments.append(Segment(sequence, ids, sequence.num_computed, len(ids)))
        return segments

    def _reading_segments(self, beside: list[Segment]) -> list[Segment]:
        """Pieces of prompts, oldest request first, as many rows as the buffers have left (at most
        ``prefill_chunk``)."""
        taken = sum(len(segment.ids) for segment in beside)
        room = min(self._model.prefill_chunk, self._model.decoder.limits.max_rows - taken)
        segments: list[Segment] = []
        for sequence in self._active:
            if not sequence.is_reading or room <= 0:
                continue
            start = sequence.num_computed
            stop = min(start + room, sequence.num_prompt)
            if not self._make_pages(sequence, stop):
                continue
            is_last = stop == sequence.num_prompt
            ids = tuple(sequence.ids[start:stop])
            segments.append(Segment(sequence, ids, start, 1 if is_last else 0))
            room -= len(ids)
        return segments

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

    def _resolve_starvation(self) -> None:
        """Nobody could get pages: the youngest request gives up its own."""
        if not self._active:
            return
        sequence = self._active[-1]
        message = (
            "There is not enough memory for this chat beside the others. "
            "Wait for them to finish, or open the model with less context."
        )
        self._emit(Failed(sequence.request.id, message))
        self._release(sequence)

    # ------------------------------------------------------------------------------------- keeping

    def _read(self, sequence: Sequence, num_tokens: int) -> None:
        self.computed_since_save += num_tokens
        self._announce(sequence)
        before = sequence.num_computed - num_tokens
        crossed = before // KEEP_EVERY_TOKENS != sequence.num_computed // KEEP_EVERY_TOKENS
        if crossed and sequence.is_reading:
            self._keep(sequence)

    def _keep(self, sequence: Sequence) -> None:
        """Leave what is computed so far in the prefix cache."""
        if sequence.request.use_cache and sequence.num_computed:
            ids = sequence.ids[: sequence.num_computed]
            self._model.cache.insert(ids, sequence.pages)

    def _retire(self, sequence: Sequence) -> None:
        assert sequence.finish_reason is not None, "only ended replies retire"
        self._keep(sequence)
        self._emit(
            Finished(
                sequence.request.id,
                sequence.finish_reason,
                sequence.shown_text,
                tuple(sequence.reply_ids),
                sequence.usage(),
            )
        )
        self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        for page in sequence.pages:
            self._model.arena.release(page)
        sequence.pages.clear()
        self._free_slots.append(sequence.slot)
        self._active.remove(sequence)
