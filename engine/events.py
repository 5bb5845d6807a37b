"""The queue of events from the engine to the application: coalesced, one consumer."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from hearth.engine.protocol import Tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearth.engine.protocol import Event


class EventQueue:
    """Thread-safe. ``on_wake`` is called (on the engine's thread) when it stops being empty."""

    def __init__(self, on_wake: Callable[[], None] | None) -> None:
        self._events: list[Event] = []
        self._changed = threading.Condition()
        self._on_wake = on_wake

    def push(self, event: Event) -> None:
        """Append; Tokens that follow Tokens of the same request are joined with them."""
        with self._changed:
            was_empty = not self._events
            last = self._events[-1] if self._events else None
            if (
                isinstance(event, Tokens)
                and isinstance(last, Tokens)
                and last.request_id == event.request_id
            ):
                self._events[-1] = replace(
                    last,
                    text=last.text + event.text,
                    reasoning=last.reasoning + event.reasoning,
                    token_ids=last.token_ids + event.token_ids,
                    drafted=last.drafted + event.drafted,
                )
            else:
                self._events.append(event)
            self._changed.notify_all()
        if was_empty and self._on_wake is not None:
            self._on_wake()

    def take(self, timeout_s: float = 0.0) -> list[Event]:
        """All events; waits up to ``timeout_s`` for the first."""
        with self._changed:
            if not self._events and timeout_s > 0.0:
                self._changed.wait_for(lambda: bool(self._events), timeout_s)
            taken, self._events = self._events, []
            return taken
