"""The commit rule: sources concatenate to the text, and final blocks never change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearth.ui.chat_view.blocks import LONG_TAIL_CHARS, BlockStream, parse

TRAPS = {
    "setext": "A title\n=======\n\ntext\n",
    "nested fence": "- item\n\n  ```py\n  x = 1\n\n  y = 2\n  ```\n\n- next\n\nend\n",
    "loose list": "- one\n\n- two\n\n- three\n\nafter\n",
    "money": "It costs $5 and $6.\n\nNot maths.\n",
    "unclosed fence": "text\n\n```python\nprint(1)\n\nprint(2)\n",
    "table": "| a | b |\n|---|---|\n| 1 | 2 |\n\nend\n",
    "late reference": "See [this].\n\nmore\n\n[this]: https://example.org\n",
    "html": "<script>alert(1)</script>\n\n<b>bold</b>\n",
}


def stream(text: str, step: int) -> tuple[list[str], str]:
    blocks = BlockStream()
    committed = [
        source
        for start in range(0, len(text), step)
        for source in blocks.push(text[start : start + step])
    ]
    return committed, blocks.finish()


@pytest.mark.parametrize("name", TRAPS)
@pytest.mark.parametrize("step", [1, 3, 7, 1000])
def test_sources_are_the_text(name: str, step: int) -> None:
    committed, rest = stream(TRAPS[name], step)
    assert "".join(committed) + rest == TRAPS[name]


@pytest.mark.parametrize("name", [n for n in TRAPS if n != "late reference"])
@pytest.mark.parametrize("step", [1, 5])
def test_pieces_parse_like_the_whole(name: str, step: int) -> None:
    committed, rest = stream(TRAPS[name], step)
    whole = [(t.type, t.content) for t in parse(TRAPS[name])]
    pieces = [(t.type, t.content) for source in [*committed, rest] for t in parse(source)]
    assert pieces == whole


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab `*#-\n|>[]1.", max_size=200), st.integers(1, 20))
def test_nothing_is_lost_for_any_text(text: str, step: int) -> None:
    committed, rest = stream(text, step)
    assert "".join(committed) + rest == text


def test_a_long_tail_waits_for_the_end() -> None:
    blocks = BlockStream()
    item = "- an item of a long list\n"
    for _ in range(LONG_TAIL_CHARS // len(item) + 10):
        assert blocks.push(item) == []
    assert len(blocks.finish()) > LONG_TAIL_CHARS
