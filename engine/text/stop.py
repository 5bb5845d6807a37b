"""Stop strings: cut exactly, and hold back no more than could begin one."""

from __future__ import annotations

from typing import NamedTuple


class StopResult(NamedTuple):
    """Text that may be shown now, and whether a stop string was met."""

    text: str
    stopped: bool


class StopMatcher:
    """Watches one reply's text for the first of several stop strings."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""

    def push(self, text: str) -> StopResult:
        """Take more text; the stop string itself and what follows are dropped."""
        if not self._stops:
            return StopResult(text, stopped=False)
        pending = self._held + text
        places = [place for stop in self._stops if (place := pending.find(stop)) >= 0]
        if places:
            self._held = ""
            return StopResult(pending[: min(places)], stopped=True)
        keep = max(self._overlap(pending, stop) for stop in self._stops)
        shown = pending[: len(pending) - keep]
        self._held = pending[len(pending) - keep :]
        return StopResult(shown, stopped=False)

    def flush(self) -> str:
        """The text that was held back, when the reply ends otherwise."""
        held, self._held = self._held, ""
        return held

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """Length of the longest end of ``text`` that begins ``stop``."""
        for length in range(min(len(stop) - 1, len(text)), 0, -1):
            if text.endswith(stop[:length]):
                return length
        return 0
