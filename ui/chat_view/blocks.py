"""Markdown while it arrives: finished top-level blocks are committed once, the rest is a tail.

markdown-it-py is the parser of record. Its tokens carry line ranges, which give the exact source of
each block. Only the text behind the last committed block is parsed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from markdown_it.token import Token

LONG_TAIL_CHARS = 8 << 10  # a long list or table is one block: beyond this it is parsed at the end


def parser() -> MarkdownIt:
    """CommonMark with tables and strikethrough; HTML stays text."""
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


_PARSER = parser()


def parse(source: str) -> list[Token]:
    return _PARSER.parse(source)


class BlockStream:
    """One reply's text, cut into committed sources and a tail; their concatenation is the text."""

    def __init__(self) -> None:
        self.tail = ""

    def push(self, text: str) -> list[str]:
        """Add text; returns sources that are final now (often none)."""
        self.tail += text
        if "\n" not in text or len(self.tail) > LONG_TAIL_CHARS:
            return []
        starts = _block_starts(self.tail)
        if len(starts) < 2:
            return []
        lines = self.tail.splitlines(keepends=True)
        cut = sum(len(line) for line in lines[: starts[-1]])
        committed, self.tail = self.tail[:cut], self.tail[cut:]
        return [committed]

    def finish(self) -> str:
        """The rest, which is final now."""
        rest, self.tail = self.tail, ""
        return rest


def _block_starts(source: str) -> list[int]:
    """First line of each top-level block."""
    return [
        token.map[0]
        for token in parse(source)
        if token.level == 0 and token.nesting >= 0 and token.map
    ]


def defines_references(source: str) -> bool:
    """Whether a link definition may change how earlier blocks read."""
    return any(line.lstrip().startswith("[") and "]:" in line for line in source.splitlines())
