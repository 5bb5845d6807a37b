"""The engine: one thread with a command queue in front and an event queue behind."""

from __future__ import annotations

import logging
import queue
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.engine.cache.disk import DEFAULT_CAPACITY_BYTES
from hearth.engine.errors import CancelledError, HearthError
from hearth.engine.events import EventQueue
from hearth.engine.loading import LoadRequest, load_model
from hearth.engine.protocol import Failed, Loaded, LoadFailed, Loading, Saved, Unloaded
from hearth.engine.scheduler import Model, Scheduler
from hearth.kernels import graph

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hearth.engine.cache.prefix import SaveJob
    from hearth.engine.protocol import Event, Request
    from hearth.engine.text.prompt import TextModel

log = logging.getLogger(__name__)

IDLE_BEFORE_SAVE_S = 2.0
SAVE_AFTER_TOKENS = 256  # a prompt this long is written while the reply still runs
CLOSE_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What the engine is allowed to use.

    cache_folder: where prefixes are kept over a restart; None keeps nothing.
    max_logit_rows: rows of a pass that can be drawn from (anchors and drafts of all replies).
    """

    cache_folder: Path | None = None
    cache_capacity_bytes: int = DEFAULT_CAPACITY_BYTES
    num_threads: int | None = None
    max_requests: int = 8
    prefill_chunk: int = 256
    max_logit_rows: int = 128

    def __post_init__(self) -> None:
        assert self.max_requests * 16 <= self.max_logit_rows, "every reply may verify 16 rows"


Command = "Callable[[], None]"


class Engine:
    """Implements ``protocol.EnginePort``. Commands may come from any thread; one consumer polls."""

    def __init__(self, config: EngineConfig, on_wake: Callable[[], None] | None = None) -> None:
        self._config = config
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._events = EventQueue(on_wake)
        self._saver = ThreadPoolExecutor(1, thread_name_prefix="hearth-saver")
        self._loading_cancelled = threading.Event()
        self._text: TextModel | None = None
        self._is_closing = False
        self._loop = _Loop(self._config, self._events.push, self._saver, self._loading_cancelled)
        self._thread = threading.Thread(target=self._run, name="hearth-engine", daemon=True)
        self._thread.start()

    # ----------------------------------------------------------------------- any thread: commands

    def load(self, path: Path, *, context_length: int | None = None) -> None:
        self._loading_cancelled.set()  # a model that is still being opened gives way
        self._commands.put(lambda: self._loop.load(LoadRequest(path, context_length)))

    def unload(self) -> None:
        self._loading_cancelled.set()
        self._commands.put(self._loop.unload)

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

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._loading_cancelled.set()
        self._commands.put(self._loop.close)
        self._thread.join(timeout=2 * CLOSE_LIMIT_S + 10.0)
        self._saver.shutdown(wait=False, cancel_futures=True)

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
        block = self._loop.is_idle
        try:
            while True:
                self._commands.get(block=block, timeout=IDLE_BEFORE_SAVE_S if block else None)()
                block = False
        except queue.Empty:
            if block:
                self._loop.save_when_idle()
        self._loop.step()


class _Loop:
    """What the engine thread does; engine thread only, but for ``text`` (an immutable object)."""

    def __init__(
        self,
        config: EngineConfig,
        emit: Callable[[Event], None],
        saver: ThreadPoolExecutor,
        loading_cancelled: threading.Event,
    ) -> None:
        self._config = config
        self._emit = emit
        self._saver = saver
        self._loading_cancelled = loading_cancelled
        self._model: Model | None = None
        self._scheduler: Scheduler | None = None
        self._saving: list[tuple[SaveJob, Future[int]]] = []
        self.text: TextModel | None = None
        self.is_closed = False

    @property
    def is_idle(self) -> bool:
        return self._scheduler is None or self._scheduler.is_idle

    # -------------------------------------------------------------------------------------- models

    def load(self, wanted: LoadRequest) -> None:
        self.unload()
        self._loading_cancelled.clear()
        try:
            model, info = load_model(
                wanted,
                self._config,
                lambda stage, done, total: self._emit(Loading(stage, done, total)),
                self._loading_cancelled.is_set,
            )
        except CancelledError:
            return
        except HearthError as error:
            self._emit(LoadFailed(error.sentence))
            return
        except (MemoryError, RuntimeError) as error:
            log.exception("loading failed")
            self._emit(LoadFailed(f"{wanted.path.name} could not be loaded: {error}."))
            return
        self._model, self.text = model, model.text
        self._scheduler = Scheduler(model, self._emit)
        self._emit(Loaded(info))

    def unload(self) -> None:
        if self._scheduler is None:
            return
        self._scheduler.cancel_all()
        self._write_unsaved()
        self._collect(wait_s=CLOSE_LIMIT_S)
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
        scheduler.step()
        if scheduler.computed_since_save >= SAVE_AFTER_TOKENS:
            scheduler.computed_since_save = 0
            self._write_unsaved()
        self._collect()

    def recover(self) -> None:
        if self._scheduler is not None:
            self._scheduler.fail_all(
                "Something went wrong inside the engine. The text so far is kept; try again."
            )

    # -------------------------------------------------------------------------------------- saving

    def save_when_idle(self) -> None:
        self._write_unsaved()
        self._collect()

    def save_now(self) -> None:
        """Write everything and say when it is done."""
        before = len(self._saving)
        self._write_unsaved()
        entries = len(self._saving) - before
        written = self._collect(wait_s=3600.0)
        self._emit(Saved(entries, written))

    def _write_unsaved(self) -> None:
        """Hand unsaved pages to the saver's thread; they stay owned until they are written."""
        if self._model is None:
            return
        for job in self._model.cache.unsaved():
            self._saving.append((job, self._saver.submit(job.write)))

    def _collect(self, wait_s: float = 0.0) -> int:
        """Give back pages that are written; waits up to ``wait_s`` for the others. Returns bytes."""
        deadline = time.monotonic() + wait_s
        written = 0
        pending: list[tuple[SaveJob, Future[int]]] = []
        for job, future in self._saving:
            if wait_s > 0.0 and not future.done():
                try:
                    future.result(timeout=max(deadline - time.monotonic(), 0.0))
                except TimeoutError:
                    pass
            if future.done():
                written += future.result()
                assert self._model is not None, "pages outlive their writing"
                self._model.arena.release(job.page)
            else:
                pending.append((job, future))
        self._saving = pending
        return written

    def close(self) -> None:
        self.unload()
        self.is_closed = True
