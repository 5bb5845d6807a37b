"""Which requests run now: admission, passes, giving up and getting back memory, the end."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.engine.errors import HearthError, UserError
from hearth.engine.protocol import (
    Drafting,
    Failed,
    Finished,
    FinishReason,
    Reading,
    Request,
    Tokens,
)
from hearth.engine.round import run_round
from hearth.engine.rows import RowPlanner
from hearth.engine.sequence import Sequence
from hearth.engine.snapshots import EVERY_TOKENS, snapshot_points

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from hearth.engine.cache.prefix import Prefix
    from hearth.engine.protocol import Event
    from hearth.engine.round import Segment
    from hearth.engine.rows import Model

SAVE_AFTER_TOKENS = 256  # a prompt this long is written to disk while the reply still runs


@dataclass(frozen=True, slots=True)
class Waiting:
    request: Request
    submitted: float


class Scheduler:
    """Owns the sequences of one model; engine thread only.

    Attributes:
        wants_save: something worth writing to disk was kept since the engine last looked.
    """

    def __init__(self, model: Model, emit: Callable[[Event], None]) -> None:
        self._model = model
        self._emit = emit
        self._waiting: deque[Waiting] = deque()
        self._active: list[Sequence] = []
        self._paused: deque[Sequence] = deque()  # gave up their pages; go on when others end
        self._planner = RowPlanner(model)
        self._free_slots = self._all_slots()
        self._has_freed = False  # since the last one was resumed
        self.wants_save = False

    def _all_slots(self) -> list[int]:
        return list(range(self._model.decoder.limits.max_requests - 1, -1, -1))

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._active and not self._paused

    # ------------------------------------------------------------------------------------ commands

    def submit(self, request: Request) -> None:
        self._waiting.append(Waiting(request, time.perf_counter()))

    def cancel(self, request_id: str) -> None:
        """End a request now; what it has shown stays. Unknown ids are ignored: it has ended."""
        for waiting in [w for w in self._waiting if w.request.id == request_id]:
            self._waiting.remove(waiting)
            self._emit(Failed(request_id, "The request was cancelled before it started."))
        for sequence in [s for s in self._started() if s.request.id == request_id]:
            rest = sequence.finish(FinishReason.CANCELLED)
            if rest.text or rest.reasoning:
                self._emit(Tokens(request_id, rest.text, (), (), rest.reasoning))
            self._retire(sequence)

    def cancel_all(self) -> None:
        for waiting in list(self._waiting):
            self.cancel(waiting.request.id)
        for sequence in self._started():
            self.cancel(sequence.request.id)

    def _started(self) -> list[Sequence]:
        return [*self._active, *self._paused]

    def fail_all(self, message: str) -> None:
        """End everything after an error in a pass: its state cannot be trusted."""
        for waiting in self._waiting:
            self._emit(Failed(waiting.request.id, message))
        self._waiting.clear()
        for sequence in self._started():
            self._fail(sequence, message)
        self._free_slots = self._all_slots()

    def _fail(self, sequence: Sequence, message: str) -> None:
        self._emit(Failed(sequence.request.id, message))
        self._release(sequence)

    # ---------------------------------------------------------------------------------------- step

    def step(self) -> bool:
        """Admit what fits and run one pass; False when nothing can run before pages are freed by
        the writing of others to disk."""
        self._resume()
        self._admit()
        segments = self._planner.plan(self._active)
        if not segments:
            return self._resolve_starvation()
        logits = run_round(self._model.decoder, segments)
        for segment, rows in zip(segments, logits, strict=True):
            try:
                self._advance(segment, rows)
            except HearthError as error:
                self._fail(segment.sequence, error.sentence)
        return True

    def _advance(self, segment: Segment, logits: NDArray[np.float32]) -> None:
        sequence = segment.sequence
        was_reading = sequence.is_reading
        if was_reading:
            sequence.num_computed += len(segment.ids)
            sequence.num_unkept += len(segment.ids)
            self._read(sequence, len(segment.ids))
            if sequence.is_reading or sequence.has_reply:
                return
            self._keep(sequence)
        drawn = sequence.draw(logits)
        if not was_reading:
            sequence.num_computed += len(drawn)
        emitted = sequence.commit(drawn)
        if not was_reading:
            self._model.decoder.keep(sequence.slot, sequence.num_computed - segment.start)
        self._emit(
            Tokens(
                sequence.request.id,
                emitted.text,
                emitted.ids,
                emitted.drafted,
                emitted.reasoning,
            )
        )
        if sequence.finish_reason is not None:
            self._retire(sequence)

    # ----------------------------------------------------------------------------------- admission

    def _admit(self) -> None:
        while self._waiting and self._free_slots and not self._paused:
            waiting = self._waiting[0]  # stays in the queue while a bug could lose it
            try:
                self._active.append(self._begin(waiting))
            except HearthError as error:
                self._emit(Failed(waiting.request.id, error.sentence))
            self._waiting.popleft()

    def _begin(self, waiting: Waiting) -> Sequence:
        """Build the prompt and look up its prefix. Raises UserError when it cannot run."""
        model, request = self._model, waiting.request
        if request.prompt.raw_ids == ():
            raise UserError("There is nothing to read in this request.")
        if request.drafting is Drafting.MTP and model.decoder.hiddens is None:
            raise UserError(
                "This model has no MTP module to draft with.",
                action="Choose another way of drafting, or a version of the model with MTP.",
            )
        prompt = model.text.build(request.prompt)
        if len(prompt.ids) >= model.context_length:
            raise UserError(
                f"The chat has {len(prompt.ids):,} tokens and the context holds "
                f"{model.context_length:,}.",
                action="Start a new chat, remove an attachment, or allow the model more context.",
            )
        sequence = Sequence(
            request,
            prompt,
            model.text,
            model.times,
            slot=self._free_slots.pop(),
            submitted=waiting.submitted,
            context_length=model.context_length,
            stops=snapshot_points(prompt) if model.decoder.needs_state else (),
        )
        sequence.timing.started = time.perf_counter()
        sequence.prefix = self._take_prefix(sequence)
        self._announce(sequence, with_ids=True)
        return sequence

    def _take_prefix(self, sequence: Sequence) -> Prefix | None:
        """Go on from what is known of the sequence's ids, or from the beginning."""
        prefix = self._model.cache.lookup(sequence.ids) if sequence.request.use_cache else None
        if prefix is not None and prefix.state and not self._model.decoder.fits(prefix.state):
            self._model.cache.give_back(prefix)
            prefix = None
        if prefix is not None:
            sequence.pages = list(prefix.pages)
            sequence.num_computed = prefix.num_tokens
        state = prefix.state if prefix is not None else None
        self._model.decoder.begin(sequence.slot, state, sequence.num_computed)
        return prefix

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

    # ------------------------------------------------------------------------------------- memory

    def _resolve_starvation(self) -> bool:
        """Nobody could get pages: the youngest gives its own up and goes on when others have ended.
        One that is alone fits by the memory plan, except while pages are being written to disk."""
        if len(self._active) > 1:
            self._pause(self._active[-1])
            return True
        return not self._active

    def _pause(self, sequence: Sequence) -> None:
        """What it computed stays in the cache as long as nobody needs the pages."""
        self._keep(sequence)
        self._drop_pages(sequence)
        self._active.remove(sequence)
        self._paused.append(sequence)
        self._has_freed = False

    def _resume(self) -> None:
        """The one that waits longest goes on as soon as another has ended."""
        if not self._paused or (self._active and not self._has_freed):
            return
        sequence = self._paused.popleft()
        self._take_prefix(sequence)
        self._active.append(sequence)
        self._has_freed = False

    # ------------------------------------------------------------------------------------- keeping

    def _read(self, sequence: Sequence, num_tokens: int) -> None:
        if not sequence.has_reply:
            self._announce(sequence)
        before = sequence.num_computed - num_tokens
        crossed = before // EVERY_TOKENS != sequence.num_computed // EVERY_TOKENS
        if sequence.is_reading and (crossed or sequence.num_computed in sequence.stops):
            self._keep(sequence)

    def _keep(self, sequence: Sequence) -> None:
        """Leave what is computed so far in the prefix cache."""
        if sequence.request.use_cache and sequence.num_computed:
            ids = sequence.ids[: sequence.num_computed]
            state = self._model.decoder.snapshot(sequence.slot, sequence.num_computed)
            self._model.cache.insert(ids, sequence.pages, state)
            has_ended = sequence.finish_reason is not None
            if has_ended or sequence.num_unkept >= SAVE_AFTER_TOKENS:
                self.wants_save = True
            sequence.num_unkept = 0

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
                sequence.shown_reasoning,
            )
        )
        self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        self._drop_pages(sequence)
        self._free_slots.append(sequence.slot)
        if sequence in self._active:
            self._active.remove(sequence)
        else:
            self._paused.remove(sequence)
        self._has_freed = True

    def _drop_pages(self, sequence: Sequence) -> None:
        for page in sequence.pages:
            self._model.arena.release(page)
        sequence.pages.clear()
        sequence.num_computed = 0
