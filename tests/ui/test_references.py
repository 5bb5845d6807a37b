"""PySide6 must not lose references to None and True (6.12.0 on Python 3.11 does, and aborts)."""

from __future__ import annotations

import sys

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QLabel

NUM_CALLS = 10_000
TOLERANCE = 200  # the interpreter itself moves these counts a little


class Emitter(QObject):
    happened = Signal(bool)


def test_emits_and_void_calls_keep_the_counts(qtbot: object) -> None:
    emitter, label = Emitter(), QLabel()
    emitter.happened.connect(lambda value: None)
    before = sys.getrefcount(None), sys.getrefcount(True)
    for _ in range(NUM_CALLS):
        emitter.happened.emit(True)
        label.setText("x")
        label.update()
    after = sys.getrefcount(None), sys.getrefcount(True)
    assert all(abs(a - b) < TOLERANCE for a, b in zip(before, after, strict=True)), (before, after)
