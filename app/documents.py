"""Text attachments: long pastes and dropped files, kept to the byte."""

from __future__ import annotations

import codecs
import hashlib
import re
from typing import TYPE_CHECKING

from hearth.app.chats.records import AttachmentPart
from hearth.engine.errors import MachineError, UserError

if TYPE_CHECKING:
    from pathlib import Path

LONG_TEXT_BYTES = 32 << 10  # above this an editor becomes slow (3 s for 5 MB)
LONG_LINE_CHARS = 8 << 10  # a single long line costs a second per key press
MAX_FILE_BYTES = 64 << 20
# Characters that a Qt text editor changes on the way through: no-break space, line and paragraph
# separators, two noncharacters, carriage returns, byte order marks, halves of surrogate pairs.
CHANGED_BY_EDITOR = re.compile("[\u00a0\u2028\u2029\ufdd0\ufdd1\r\ufeff\ud800-\udfff\x00]")
BINARY_STARTS = (
    b"%PDF-",
    b"PK\x03\x04",
    b"\x89PNG",
    b"GIF8",
    b"\xff\xd8\xff",
    b"\x1f\x8b",
    b"GGUF",
)
BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def belongs_in_attachment(text: str) -> bool:
    """Whether pasted text is too long for an editor, or would be changed by it."""
    if len(text.encode("utf-8", "surrogatepass")) > LONG_TEXT_BYTES:
        return True
    if CHANGED_BY_EDITOR.search(text):
        return True
    return max((len(line) for line in text.split("\n")), default=0) > LONG_LINE_CHARS


def attachment_from_text(name: str, text: str) -> tuple[AttachmentPart, bytes]:
    """A paste as an attachment, and its exact bytes."""
    data = text.encode("utf-8", errors="surrogatepass")
    return _part(name, data, "utf-8", text), data


def attachment_from_bytes(name: str, data: bytes) -> tuple[AttachmentPart, bytes]:
    """A text file as an attachment. Raises UserError for something that is not text."""
    encoding, text = decode(name, data)
    return _part(name, data, encoding, text), data


def attachment_from_file(path: Path) -> tuple[AttachmentPart, bytes]:
    """Raises UserError or MachineError with a sentence that names the file."""
    try:
        if path.is_dir():
            raise UserError(f"{path.name} is a folder.", action="Attach its files one by one.")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UserError(f"{path.name} is larger than {MAX_FILE_BYTES >> 20} MB.")
        return attachment_from_bytes(path.name, path.read_bytes())
    except OSError as error:
        raise MachineError(f"{path.name} could not be read: {error.strerror}.") from error


def decode(name: str, data: bytes) -> tuple[str, str]:
    """Encoding and text: by byte order mark, else UTF-8, else Windows-1252."""
    for bom, encoding in BOMS:
        if data.startswith(bom):
            try:
                return encoding, data.decode(encoding)
            except UnicodeDecodeError as error:
                raise UserError(f"{name} is damaged: it is not the text it says.") from error
    if b"\0" in data or data.startswith(BINARY_STARTS):
        raise UserError(
            f"{name} is not a text file.", action="Attach plain text, Markdown or source code."
        )
    try:
        return "utf-8", data.decode("utf-8")
    except UnicodeDecodeError:
        # Latin-1 maps every byte; cp1252 where it can, for the quotes and dashes of Windows.
        try:
            return "cp1252", data.decode("cp1252")
        except UnicodeDecodeError:
            return "latin-1", data.decode("latin-1")


def _part(name: str, data: bytes, encoding: str, text: str) -> AttachmentPart:
    return AttachmentPart(name, hashlib.sha256(data).hexdigest(), len(data), encoding, text)
