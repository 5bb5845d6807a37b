"""How long a draft is, counted beside the window: five megabytes take seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from hearth.ui.jobs import Job

if TYPE_CHECKING:
    from hearth.app.conversation import Conversations


class TokenMeter(QObject):
    """Counts the newest text; an answer for an older one is dropped.

    Signals:
        counted(object): the number of tokens, or None while no model is open.
    """

    counted = Signal(object)

    def __init__(self, conversations: Conversations, parent: QObject) -> None:
        super().__init__(parent)
        self._conversations = conversations
        self._job: Job | None = None
        self._waiting: str | None = None

    def count(self, text: str) -> None:
        """``counted`` follows; one job runs at a time and the newest text waits for it."""
        if self._job is not None:
            self._waiting = text
            return
        self._job = Job(lambda *_: self._conversations.count_tokens(text))
        self._job.succeeded.connect(self._on_counted)
        self._job.start()

    def stop(self) -> None:
        """Before the engine closes."""
        self._waiting = None
        self._job = None

    def _on_counted(self, count: object) -> None:
        self._job = None
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self.count(waiting)
        else:
            self.counted.emit(count)


def count_words(count: int | None, room: int | None) -> str:
    """The length of a draft, and by how much it is too long for ``room``, the tokens that the
    context has left. Nothing without a count or a model."""
    if not count or room is None:
        return ""
    over = f" — {count - room:,} more than the context has left" if count > room else ""
    return f"{count:,} tokens{over}"
