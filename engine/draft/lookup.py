"""Lookup drafting: propose what followed the latest earlier occurrence of the current suffix.

The rule is the one measured on long-document chats (longest match up to 12 tokens, the most recent
of equals, at least 6 tokens), with one addition: past the end of the history the proposal goes on
with itself, so a text of period p yields as many tokens as are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_MATCH = 6  # shorter suffixes recur by chance
MAX_MATCH = 12  # longer ones tie, so that the most recent occurrence wins


class LookupDrafter:
    """The history of one request, indexed by its last ``MIN_MATCH`` tokens at every place."""

    def __init__(self) -> None:
        self._history: list[int] = []
        self._places: dict[tuple[int, ...], list[int]] = {}

    def extend(self, ids: Sequence[int]) -> None:
        """Append known tokens (prompt, then everything that was emitted)."""
        history = self._history
        for token in ids:
            history.append(token)
            end = len(history) - 1
            if end >= MIN_MATCH - 1:
                key = tuple(history[end - MIN_MATCH + 1 : end + 1])
                self._places.setdefault(key, []).append(end)

    def propose(self, depth: int) -> list[int]:
        """Up to ``depth`` tokens that may follow; empty without a match."""
        history = self._history
        if depth == 0 or len(history) < MIN_MATCH + 2:
            return []
        end = self._best_end()
        if end is None:
            return []
        proposal: list[int] = []
        for place in range(end + 1, end + 1 + depth):
            beyond = place - len(history)
            proposal.append(history[place] if beyond < 0 else proposal[beyond])
        return proposal

    def _best_end(self) -> int | None:
        """Last token_index of the best earlier occurrence of the current suffix."""
        history = self._history
        last = len(history) - 1
        ends = self._places.get(tuple(history[last - MIN_MATCH + 1 :]), [])
        best, best_length = None, 0
        for end in reversed(ends):
            if end == last:
                continue
            length = self._match_length(end)
            if length > best_length:
                best, best_length = end, length
            if best_length == MAX_MATCH:
                break
        return best

    def _match_length(self, end: int) -> int:
        """Equal tokens before and at ``end`` and the history's end, at most MAX_MATCH."""
        history, last = self._history, len(self._history) - 1
        length = MIN_MATCH
        while (
            length < MAX_MATCH and end >= length and history[end - length] == history[last - length]
        ):
            length += 1
        return length
