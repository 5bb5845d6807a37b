"""Memory plans for the window: a model's headers are read once and serve every card."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearth.app import compose
from hearth.engine.memory import REQUANTISED_PARTS

if TYPE_CHECKING:
    from pathlib import Path

    from hearth.app.compose import OpenedModel
    from hearth.app.settings import WideWeights
    from hearth.engine.memory import MemoryWish, PlannedMemory


class Plans:
    """Remembers the model that was looked at last; one call at a time, from any thread."""

    def __init__(self, wide_weights: WideWeights) -> None:
        self._wide_weights = wide_weights
        self._opened: tuple[Path, OpenedModel] | None = None

    def plan(self, path: Path, card_name: str, wish: MemoryWish) -> PlannedMemory:
        """Raises HearthError with a sentence: no model there, no such card, no such setting."""
        if self._opened is None or self._opened[0] != path:
            self._opened = (path, compose.open_headers(path, self._wide_weights))
        wanted = replace(wish, requantise=left_to_device(self._wide_weights))
        return self._opened[1].plan(card_name, wanted)


def left_to_device(wide_weights: WideWeights) -> tuple[str, ...]:
    """The parts that a card narrows by itself: those without a choice in the settings."""
    return tuple(part for part in REQUANTISED_PARTS if getattr(wide_weights, part) == "auto")
