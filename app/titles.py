"""The title of a new chat: never by a model, which would wait for itself."""

from __future__ import annotations

TITLE_CHARS = 60


def title_from(text: str) -> str:
    """The first line, cut at a word."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "New chat")
    if len(line) <= TITLE_CHARS:
        return line
    cut = line[:TITLE_CHARS].rsplit(" ", 1)[0]
    return cut + "…"
