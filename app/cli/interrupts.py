"""Ctrl+C while an answer is being written."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import FrameType


class Interrupts:
    """Ctrl+C as a flag instead of an exception, so that no update is lost half-way; the second one
    raises KeyboardInterrupt. Main thread only."""

    def __init__(self) -> None:
        self.asked = False
        self.is_new = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = self.is_new = True
