"""The kinds of failure that a person can act on; everything else is a bug."""

from __future__ import annotations


class HearthError(Exception):
    """Base of the expected failures.

    ``str(error)`` is one clear sentence that says what happened; ``action`` is one sentence
    that says what the user can do, or None when nothing can be done.
    """

    def __init__(self, message: str, *, action: str | None = None) -> None:
        super().__init__(message)
        self.action = action

    @property
    def sentence(self) -> str:
        """Message and action as one line of text for a dialog, a banner or a terminal."""
        return f"{self} {self.action}" if self.action else str(self)


class UserError(HearthError):
    """The input is wrong: a bad file, an impossible setting, an unknown name."""


class MachineError(HearthError):
    """The machine says no: disk full, no memory, no permission, no device, no network."""


class CancelledError(HearthError):
    """The user stopped the work."""
