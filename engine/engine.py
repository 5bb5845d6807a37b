"""The engine: one thread with a command queue in front and an event queue behind."""

from __future__ import annotations

import logging
import queue
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hearth.engine.cache.disk_space import DEFAULT_CAPACITY_BYTES
from hearth.engine.errors import CancelledError, HearthError
from hearth.engine.events import EventQueue
from hearth.engine.loading import LoadRequest, load_model
from hearth.engine.protocol import Failed, Loaded, LoadFailed, Loading, Saved, Trouble, Unloaded
from hearth.engine.saving import Saver
from hearth.engine.scheduler import Scheduler
from hearth.engine.weights.requantise import KEEP
from hearth.kernels import graph

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hearth.engine.protocol import Event, Request
    from hearth.engine.rows import Model
    from hearth.engine.text.prompt import TextModel
    from hearth.engine.weights.requantise import Requantise

log = logging.getLogger(__name__)

IDLE_BEFORE_SAVE_S = 2.0
STARVED_S = 0.05  # looks again for pages this often while others are being written
CLOSE_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What the engine is allowed to use.

    cache_folder: where prefixes are kept over a restart; None keeps nothing.
    max_logit_rows: rows of a pass that can be drawn from (anchors and drafts of all replies).
    state_dtype: of recurrent states: float32, or float16, which rounds behind every token.
    requantise: wide matrices that are narrowed while a model is opened.
    """

    cache_folder: Path | None = None
    cache_capacity_bytes: int = DEFAULT_CAPACITY_BYTES
    num_threads: int | None = None
    max_requests: int = 8
    prefill_chunk: int = 256
    max_logit_rows: int = 128
    state_dtype: str = "float32"
    requantise: Requantise = KEEP

    def __post_init__(self) -> None:
        assert self.max_requests * 16 <= self.max_logit_rows, "every reply may verify 16 rows"


class Engine:
    """Implements ``protocol.EnginePort``. Commands may come from any thread; one consumer polls."""

    def __init__(self, config: EngineConfig, on_wake: Callable[[], None] | None = None) -> None:
        self._config = config
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._events = EventQueue(on_wake)
        self._lock = threading.Lock()
        self._generation = 0  # of the wish for a model: an older one is given up
        self._is_closing = False
        self._loop = _Loop(config, self._events.push, self._commands.put)
        self._thread = threading.Thread(target=self._run, name="hearth-engine", daemon=True)
        self._thread.start()

    # ----------------------------------------------------------------------- any thread: commands

    def load(self, path: Path, *, context_length: int | None = None) -> None:
        wanted, generation = LoadRequest(path, context_length), self._new_generation()
        self._commands.put(lambda: self._loop.load(wanted, lambda: self._generation != generation))

    def unload(self) -> None:
        self._new_generation()
        self._commands.put(self._loop.unload)

    def _new_generation(self) -> int:
        """A model that is still being opened gives way from now on."""
        with self._lock:
            self._generation += 1
            return self._generation

    def submit(self, request: Request) -> None:
        self._commands.put(lambda: self._loop.submit(request))

    def cancel(self, request_id: str) -> None:
        self._commands.put(lambda: self._loop.cancel(request_id))

    def save(self) -> None:
        self._commands.put(self._loop.save_now)

    def count_tokens(self, text: str) -> int | None:
        model = self._loop.text
        if model is None:
            return None
        try:
            return len(model.vocabulary.encode(text))
        except HearthError:
            return None

    def token_texts(self, ids: Sequence[int]) -> list[tuple[int, str]]:
        model = self._loop.text
        if model is None:
            return []
        words = model.vocabulary
        return [(token, words.token_bytes(token).decode("utf-8", "replace")) for token in ids]

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._new_generation()
        self._commands.put(self._loop.close)
        self._thread.join(timeout=2 * CLOSE_LIMIT_S + 10.0)

    # --------------------------------------------------------------------------- consumer: events

    def poll(self) -> Sequence[Event]:
        return self._events.take()

    def wait(self, timeout_s: float) -> Sequence[Event]:
        return self._events.take(timeout_s)

    # ------------------------------------------------------------------------------ engine thread

    def _run(self) -> None:
        if self._config.num_threads is not None:
            graph.set_num_threads(self._config.num_threads)
        while not self._loop.is_closed:
            try:
                self._turn()
            except Exception:
                # The one guard of this thread: a bug ends the running requests with a sentence,
                # and the program, its chats and its other requests go on.
                log.exception("the engine stumbled")
                self._loop.recover()

    def _turn(self) -> None:
        """Obey what has been asked, then run one pass."""
        timeout_s = self._loop.patience_s
        try:
            while True:
                self._commands.get(block=timeout_s is not None, timeout=timeout_s)()
                timeout_s = None
        except queue.Empty:
            if timeout_s is not None:
                self._loop.save_when_idle()
        self._loop.step()


class _Loop:
    """What the engine thread does; engine thread only, but for ``text`` (an immutable object)."""

    def __init__(
        self,
        config: EngineConfig,
        emit: Callable[[Event], None],
        put: Callable[[Callable[[], None]], None],
    ) -> None:
        self._config = config
        self._emit = emit
        self._said: str | None = None  # the last notice of the disk tier
        self._saver = Saver(lambda: put(self._collect))
        self._model: Model | None = None
        self._scheduler: Scheduler | None = None
        self._is_loading = False
        self._is_starved = False
        self._saved: Saved | None = None  # to be reported when everything is written
        self.text: TextModel | None = None
        self.is_closed = False

    @property
    def patience_s(self) -> float | None:
        """How long the thread may wait for a command before its next step."""
        if self._scheduler is None or self._scheduler.is_idle:
            return IDLE_BEFORE_SAVE_S
        return STARVED_S if self._is_starved else None

    # -------------------------------------------------------------------------------------- models

    def load(self, wanted: LoadRequest, is_cancelled: Callable[[], bool]) -> None:
        if self._model is not None:
            self.unload()
        self._is_loading = True
        try:
            model, info = load_model(
                wanted,
                self._config,
                lambda stage, done, total: self._emit(Loading(stage, done, total)),
                is_cancelled,
            )
        except CancelledError:
            log.info("opening %s was given up", wanted.path.name)
        except HearthError as error:
            self._emit(LoadFailed(error.sentence))
        except (MemoryError, RuntimeError) as error:
            log.exception("loading failed")
            self._emit(LoadFailed(f"{wanted.path.name} could not be loaded: {error}."))
        else:
            self._model, self.text = model, model.text
            self._scheduler = Scheduler(model, self._emit)
            self._emit(Loaded(info))
        self._is_loading = False

    def unload(self) -> None:
        if self._scheduler is not None:
            self._scheduler.cancel_all()
        self._write_unsaved()
        self._saver.finish(CLOSE_LIMIT_S)
        self._collect()
        self._model = self._scheduler = self.text = None
        self._emit(Unloaded())

    # ------------------------------------------------------------------------------------ requests

    def submit(self, request: Request) -> None:
        if self._scheduler is None:
            self._emit(Failed(request.id, "No model is open. Open one, then send again."))
        else:
            self._scheduler.submit(request)

    def cancel(self, request_id: str) -> None:
        if self._scheduler is not None:
            self._scheduler.cancel(request_id)

    def step(self) -> None:
        scheduler = self._scheduler
        if scheduler is None or scheduler.is_idle:
            return
        self._is_starved = not scheduler.step()
        if self._is_starved and not self._saver.is_writing:
            scheduler.fail_all(
                "There is not enough memory to go on. Open the model with less context."
            )
        if scheduler.wants_save:
            scheduler.wants_save = False
            self._write_unsaved()

    def recover(self) -> None:
        """After a bug: everybody who waits for an answer gets one."""
        if self._is_loading:
            self._is_loading = False
            self._emit(LoadFailed("Something went wrong while the model was being opened."))
        if self._scheduler is not None:
            self._scheduler.fail_all(
                "Something went wrong inside the engine. The text so far is kept; try again."
            )

    # -------------------------------------------------------------------------------------- saving

    def save_when_idle(self) -> None:
        if self._scheduler is not None and self._scheduler.is_idle:
            self._write_unsaved()

    def save_now(self) -> None:
        """Write everything; Saved says when it is done."""
        earlier = self._saved.entries if self._saved else 0
        self._saved = Saved(earlier + self._write_unsaved(), 0)
        self._collect()

    def _write_unsaved(self) -> int:
        if self._model is None:
            return 0
        return self._saver.write(self._model.cache, self._model.arena)

    def _say_trouble(self) -> None:
        """Once for every notice of the disk tier."""
        notice = self._model.cache.notice if self._model is not None else None
        if notice is not None and notice != self._said:
            self._emit(Trouble(notice))
        self._said = notice

    def _collect(self) -> None:
        """Give back pages that are written, and report when a wanted save is complete."""
        self._say_trouble()
        num_bytes = self._saver.collect()
        if self._saved is None:
            return
        self._saved = replace(self._saved, bytes_written=self._saved.bytes_written + num_bytes)
        if not self._saver.is_writing:
            self._emit(self._saved)
            self._saved = None

    def close(self) -> None:
        self.unload()
        self._saver.close()
        self.is_closed = True
