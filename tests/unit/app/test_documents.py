"""Attachments keep every byte, and say how they were read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hearth.app.documents import (
    LONG_LINE_CHARS,
    LONG_TEXT_BYTES,
    attachment_from_bytes,
    attachment_from_file,
    attachment_from_text,
    belongs_in_attachment,
)
from hearth.engine.errors import MachineError, UserError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("data", "encoding", "text"),
    [
        ("grüße\r\n".encode(), "utf-8", "grüße\r\n"),
        (b"\xef\xbb\xbfabc", "utf-8-sig", "abc"),
        ("añ".encode("utf-16"), "utf-16", "añ"),
        ("añ".encode("utf-32"), "utf-32", "añ"),
        (b"\x93quoted\x94", "cp1252", "“quoted”"),
        (b"\x81caf\xe9", "latin-1", "\x81café"),
        (b"", "utf-8", ""),
    ],
)
def test_encodings_are_found(data: bytes, encoding: str, text: str) -> None:
    part, kept = attachment_from_bytes("a.txt", data)
    assert (part.encoding, part.text, kept) == (encoding, text, data)
    assert part.num_bytes == len(data)


@pytest.mark.parametrize(
    "data", [b"\x00\x01", b"%PDF-1.7 text", b"PK\x03\x04", b"\x89PNG\r\n", b"\xff\xfea"]
)
def test_what_is_not_text_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(UserError, match=r"a\.bin"):
        attachment_from_bytes("a.bin", data)


def test_pasted_text_keeps_what_an_editor_would_change() -> None:
    text = "a\u00a0b\u2028c\r\nd\ud800"
    part, data = attachment_from_text("Paste", text)
    assert part.text == text
    assert data.decode("utf-8", "surrogatepass") == text


@pytest.mark.parametrize(
    ("text", "belongs"),
    [
        ("short\nlines\ttabs  \n", False),
        ("x\n" * (LONG_TEXT_BYTES // 2), False),
        ("x\n" * (LONG_TEXT_BYTES // 2 + 1), True),
        ("語\n" * (LONG_TEXT_BYTES // 4 + 1), True),
        ("x" * LONG_LINE_CHARS, False),
        ("x" * (LONG_LINE_CHARS + 1), True),
        ("no\u00a0break", True),
        ("dos\r\n", True),
        ("\ud800", True),
    ],
)
def test_long_and_delicate_text_becomes_an_attachment(text: str, belongs: bool) -> None:
    assert belongs_in_attachment(text) is belongs


def test_files_that_cannot_be_read_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder"):
        attachment_from_file(tmp_path)
    with pytest.raises(MachineError, match=r"missing\.txt could not be read"):
        attachment_from_file(tmp_path / "missing.txt")
