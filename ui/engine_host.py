"""An engine that is built on a worker thread: the window does not wait for torch."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from hearth.app import compose
from hearth.engine.protocol import Failed, LoadFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hearth.app.profile import Paths
    from hearth.app.settings import Settings
    from hearth.engine.protocol import EnginePort, Event, Request


class LateEngine:
    """Implements EnginePort; commands wait until the real engine has been built.

    Importing torch takes two to seven seconds; meanwhile the user can read and write.
    """

    def __init__(self, paths: Paths, settings: Settings) -> None:
        self._paths = paths
        self._settings = settings
        self._engine: EnginePort | None = None
        self._failure: str | None = None
        self._waiting: queue.SimpleQueue[Callable[[EnginePort], None]] = queue.SimpleQueue()
        self._own_events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._build, name="hearth-start", daemon=True)
        self._thread.start()

    def _build(self) -> None:
        try:
            engine = compose.build_engine(self._paths, self._settings)
        except (ImportError, OSError, RuntimeError) as error:
            with self._lock:
                self._failure = f"The engine could not start: {error}. Run 'hearth doctor'."
                self._own_events.put(LoadFailed(self._failure))
            return
        with self._lock:
            while not self._waiting.empty():
                self._waiting.get()(engine)
            self._engine = engine

    def _do(self, command: Callable[[EnginePort], None]) -> bool:
        """Pass on, or keep for later; False when there will never be an engine."""
        with self._lock:
            if self._engine is not None:
                command(self._engine)
            elif self._failure is None:
                self._waiting.put(command)
            else:
                return False
            return True

    def load(self, path: Path, *, context_length: int | None = None) -> None:
        if not self._do(lambda engine: engine.load(path, context_length=context_length)):
            self._own_events.put(LoadFailed(self._failure or ""))

    def unload(self) -> None:
        self._do(lambda engine: engine.unload())

    def submit(self, request: Request) -> None:
        if not self._do(lambda engine: engine.submit(request)):
            self._own_events.put(Failed(request.id, self._failure or ""))

    def cancel(self, request_id: str) -> None:
        self._do(lambda engine: engine.cancel(request_id))

    def save(self) -> None:
        self._do(lambda engine: engine.save())

    def count_tokens(self, text: str) -> int | None:
        return self._engine.count_tokens(text) if self._engine is not None else None

    def token_texts(self, ids: Sequence[int]) -> list[tuple[int, str]]:
        return self._engine.token_texts(ids) if self._engine is not None else []

    def poll(self) -> Sequence[Event]:
        own: list[Event] = []
        while not self._own_events.empty():
            own.append(self._own_events.get())
        return [*own, *(self._engine.poll() if self._engine is not None else ())]

    def wait(self, timeout_s: float) -> Sequence[Event]:
        if self._engine is not None:
            return [*self.poll(), *self._engine.wait(timeout_s)]
        return self.poll()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join(timeout=10.0)
        if self._engine is not None:
            self._engine.close()
