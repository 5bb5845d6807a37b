"""Where reading a prompt pauses so that the recurrent state there can be kept (decision D3).

A model with attention only goes on from any token; a recurrent state is known only where it was
copied: at ends of messages, and every few thousand tokens of a long text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hearth.engine.text.prompt import BuiltPrompt

EVERY_TOKENS = 2048  # a long prompt that is cancelled can be continued from here
FIRST_ENDS, LAST_ENDS = 2, 3  # system prompt and documents; the turns an edit or retry goes back to
NEAR_END_TOKENS = 64


def snapshot_points(prompt: BuiltPrompt) -> tuple[int, ...]:
    """Token counts in rising order, each less than the prompt's."""
    total = len(prompt.ids)
    ends = sorted(end for end in prompt.boundaries if end < total)
    points = {*ends[:FIRST_ENDS], *ends[-LAST_ENDS:], *range(EVERY_TOKENS, total, EVERY_TOKENS)}
    # The same prompt once more computes its last token at least: a point must lie before that.
    if total > 1 and not any(total - NEAR_END_TOKENS <= point for point in points):
        points.add(total - 1)
    return tuple(sorted(points))
