"""Pictures for the documentation: a real exchange with the starter model, in both themes."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
QUESTIONS = (
    "What is the capital of France?",
    "Write a Python function that returns the n-th Fibonacci number.",
)
LIMIT_S = 120.0


def main() -> int:
    if not os.environ.get("DISPLAY"):
        os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from PySide6.QtWidgets import QApplication

    app = QApplication(["hearth"])
    PICTURES.mkdir(exist_ok=True)
    for name in ("light", "dark"):
        take(app, name)
    return 0


def take(app: object, name: str) -> None:
    """One conversation in one theme, greedy so that it can be repeated."""
    from hearth.app.profile import Profile
    from hearth.ui.app import Program

    with Profile.open(temporary=True) as profile:
        profile.claim()
        program = Program(profile, app, safe_mode=False)  # type: ignore[arg-type]
        window, settings = program.window, program.settings
        settings.appearance.theme = name  # type: ignore[assignment]
        settings.sampling.temperature = 0.0
        window.apply_theme()
        program.start()
        wait(app, lambda: program.conversations.model is not None)
        for question in QUESTIONS:
            window.say_for_user(question)
            wait(app, lambda: not program.conversations.is_busy)
        rest(app, 0.5)
        window.grab().save(str(PICTURES / f"window-{name}.png"))
        window.close()


def wait(app: object, condition: Callable[[], bool]) -> None:
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > LIMIT_S:
            sys.exit("The window did not get ready in time.")
        rest(app, 0.02)


def rest(app: object, seconds: float) -> None:
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        app.processEvents()  # type: ignore[attr-defined]
        time.sleep(0.005)


if __name__ == "__main__":
    sys.exit(main())
