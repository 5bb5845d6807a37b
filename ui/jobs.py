"""Slow work beside the window: progress, cancel, result or a sentence."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from hearth.engine.errors import CancelledError, HearthError

if TYPE_CHECKING:
    from collections.abc import Callable

    Work = Callable[[Callable[[int, int], None], Callable[[], bool]], object]


class Job(QObject):
    """Runs ``work(on_progress, is_cancelled)`` on a thread of its own.

    Signals (delivered on the window's thread):
        progressed(int, int): done and total.
        succeeded(object): the result.
        failed(str): one sentence. A cancelled job ends without a signal.
    """

    # Bytes of large files do not fit a C int, so they travel as Python objects.
    progressed = Signal(object, object)
    succeeded = Signal(object)
    failed = Signal(str)

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work
        self._cancelled = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="hearth-job", daemon=True).start()

    def cancel(self) -> None:
        self._cancelled.set()

    def _run(self) -> None:
        try:
            result = self._work(self.progressed.emit, self._cancelled.is_set)
        except CancelledError:
            return
        except HearthError as error:
            self.failed.emit(error.sentence)
            return
        self.succeeded.emit(result)
