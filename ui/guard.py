"""Running something that the machine may refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearth.engine.errors import HearthError

if TYPE_CHECKING:
    from collections.abc import Callable


def attempt(action: Callable[[], object], say: Callable[[str], object]) -> bool:
    """True when ``action`` succeeded; else its sentence has been said. Bugs pass through."""
    try:
        action()
    except HearthError as error:
        say(error.sentence)
        return False
    return True
