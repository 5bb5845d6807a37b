"""Only whole characters leave the detokeniser; stop strings cut exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearth.engine.text.detokenise import Detokeniser
from hearth.engine.text.stop import StopMatcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearth.engine.text.tokenizer import Vocabulary


class Bytes:
    """A vocabulary whose token i is byte i; 256 is a control token."""

    control_ids = frozenset({256})

    def token_bytes(self, token: int) -> bytes:
        return b"<control>" if token == 256 else bytes([token])


def detokeniser() -> Detokeniser:
    vocabulary: Vocabulary = Bytes()  # type: ignore[assignment]
    return Detokeniser(vocabulary)


TEXTS = ["👩‍👩‍👧‍👦", "缓存日本語", "e\u0301a\u0300", "Ω\u202e\u0000x", "plain"]


@pytest.mark.parametrize("text", TEXTS)
def test_every_split_point(text: str) -> None:
    raw = text.encode()
    for cut in range(len(raw) + 1):
        stream = detokeniser()
        first = stream.push(raw[:cut])
        assert "\ufffd" not in first
        assert text.startswith(first)
        assert first + stream.push(raw[cut:]) + stream.flush() == text


@settings(deadline=None)
@given(st.binary(max_size=40), st.integers(1, 5))
def test_any_bytes_in_any_pieces_are_the_whole_decoding(raw: bytes, step: int) -> None:
    stream = detokeniser()
    pieces = [stream.push(raw[start : start + step]) for start in range(0, len(raw), step)]
    assert "".join(pieces) + stream.flush() == raw.decode("utf-8", errors="replace")


def test_control_tokens_are_not_shown() -> None:
    assert detokeniser().push([104, 256, 105]) == "hi"


def run(stops: Sequence[str], text: str, step: int) -> tuple[str, bool]:
    matcher = StopMatcher(tuple(stops))
    shown = ""
    for start in range(0, len(text), step):
        result = matcher.push(text[start : start + step])
        shown += result.text
        if result.stopped:
            return shown, True
    return shown + matcher.flush(), False


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(
    ("stops", "text", "expected"),
    [
        (["END"], "before END after", ("before ", True)),
        (["END", "STOP"], "a STOP b END", ("a ", True)),
        (["aab"], "aaab", ("a", True)),
        (["\n\n"], "one\ntwo\n\nthree", ("one\ntwo", True)),
        (["xyz"], "xyxyxy", ("xyxyxy", False)),
        ([], "anything", ("anything", False)),
        (["x"], "x", ("", True)),
    ],
)
def test_stops_cut_exactly(
    step: int, stops: list[str], text: str, expected: tuple[str, bool]
) -> None:
    assert run(stops, text, step) == expected


@settings(deadline=None)
@given(st.text("ab", max_size=30), st.text("ab", min_size=1, max_size=4), st.integers(1, 6))
def test_any_stop_in_any_pieces(text: str, stop: str, step: int) -> None:
    place = text.find(stop)
    assert run([stop], text, step) == ((text, False) if place < 0 else (text[:place], True))
