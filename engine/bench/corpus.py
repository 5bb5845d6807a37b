"""Real text for benchmarks and checks: a long public-domain document and a set of prompts."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

PASSAGE_CHARS = 700  # long enough to be a paste, short enough for a small model on a CPU


@cache
def document() -> str:
    """Areopagitica, about 103,000 characters (some 26,000 tokens)."""
    return (resources.files("hearth.assets") / "texts" / "areopagitica.txt").read_text("utf-8")


def passage(index: int) -> str:
    """The ``index``-th stretch of the document, cut at paragraph or line ends."""
    text = document()
    char_start = text.index("\n", index * PASSAGE_CHARS) + 1
    char_end = text.index("\n", char_start + PASSAGE_CHARS)
    return text[char_start:char_end].strip("\n")


@cache
def prompts() -> tuple[str, ...]:
    """The prompts of the exactness check; every line of the file is one."""
    raw = (resources.files("hearth.assets") / "texts" / "prompts.txt").read_text("utf-8")
    return tuple(_expand(line) for line in raw.split("\n") if line)


def _expand(line: str) -> str:
    text = line.replace("\\n", "\n")
    return re.sub(r"\{passage (\d+)\}", lambda match: passage(int(match[1])), text)
