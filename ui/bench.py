"""``hearth bench ui``: how long the window's work takes, in milliseconds.

A flush is what one frame of a streaming answer costs: text appended, blocks committed, layout and
painting. Runs on whatever platform Qt is given (offscreen without a display).
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PySide6.QtWidgets import QApplication

    from hearth.engine.bench.output import Reporter

ANSWER_CHARS, STEP_CHARS, NUM_MESSAGES, REPEATS = 24 << 10, 16, 1000, 5
WIDTH, HEIGHT = 1000, 800
_SECTION = """## Section {n}

A paragraph with *emphasis*, **strong words**, `code` and a [link](https://example.org) that goes on
for more than one line, as the paragraphs of real answers do, and then ends.

- the first point of the list
- the second one, with `a value`
- the third

```python
def value(n: int) -> int:
    return n * {n}
```

"""


def run(report: Reporter) -> None:
    """One record a measurement; the figures are judged by the reader."""
    if sys.platform.startswith("linux") and not os.environ.get("DISPLAY"):
        os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from PySide6.QtWidgets import QApplication

    from hearth.ui import theme

    app = QApplication.instance() or QApplication(["hearth-bench"])
    assert isinstance(app, QApplication), "there is one application"
    theme.apply(app, theme.choose("light", 100))
    report.record("flush", stream_answer(app))
    report.record("open chat", open_chat(app))


def answer() -> str:
    """24 KB of Markdown."""
    count = ANSWER_CHARS // len(_SECTION) + 1
    return "".join(_SECTION.format(n=n) for n in range(count))[:ANSWER_CHARS]


def stream_answer(app: QApplication) -> dict[str, int | float]:
    """Times of every flush while the answer arrives in steps of 16 characters."""
    from hearth.ui import theme
    from hearth.ui.chat_view.model import ShownMessage
    from hearth.ui.chat_view.view import ChatView

    view = ChatView(theme.choose("light", 100))
    view.resize(WIDTH, HEIGHT)
    view.set_messages([ShownMessage("reply", "assistant", "", is_streaming=True)])
    view.show()
    app.processEvents()
    times: list[float] = []
    text = answer()
    for start in range(0, len(text), STEP_CHARS):
        begun = time.perf_counter()
        view.append_text("reply", text[start : start + STEP_CHARS])
        app.processEvents()
        times.append((time.perf_counter() - begun) * 1e3)
    view.close()
    return {
        "answer_chars": len(text),
        "flushes": len(times),
        "p50_ms": round(statistics.median(times), 3),
        "p95_ms": round(statistics.quantiles(times, n=20)[-1], 3),
        "max_ms": round(max(times), 3),
    }


def open_chat(app: QApplication) -> dict[str, int | float]:
    """Best and median time until a chat of 1,000 messages is shown."""
    from hearth.ui import theme
    from hearth.ui.chat_view.model import ShownMessage
    from hearth.ui.chat_view.view import ChatView

    section = _SECTION.format(n=1)
    messages = [
        ShownMessage(str(n), "user" if n % 2 == 0 else "assistant", section)
        for n in range(NUM_MESSAGES)
    ]
    times: list[float] = []
    for _ in range(REPEATS):
        view = ChatView(theme.choose("light", 100))
        view.resize(WIDTH, HEIGHT)
        view.show()
        app.processEvents()
        begun = time.perf_counter()
        view.set_messages(messages)
        app.processEvents()
        times.append((time.perf_counter() - begun) * 1e3)
        view.close()
    return {
        "messages": NUM_MESSAGES,
        "best_ms": round(min(times), 1),
        "median_ms": round(statistics.median(times), 1),
    }
