"""How text, token ids and parts are stored: exact, and readable one by one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hearth.app.chats.records import (
    AttachmentPart,
    ErrorPart,
    Part,
    TextPart,
    UnreadablePart,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def encode_text(text: str) -> bytes:
    """Any Python string, lone surrogates and NUL included."""
    return text.encode("utf-8", errors="surrogatepass")


def decode_text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="surrogatepass")


def searchable(parts: Iterable[Part]) -> str:
    """What search looks at: text and attachments, without what SQLite cannot index."""
    texts = [part.text for part in parts if isinstance(part, TextPart | AttachmentPart)]
    joined = "\n".join(texts).replace("\0", " ")
    return joined.encode("utf-8", errors="replace").decode("utf-8")


def encode_ids(ids: Sequence[int]) -> bytes:
    """Unsigned LEB128 varints."""
    result = bytearray()
    for token in ids:
        assert token >= 0, f"token id {token} is negative"
        value = token
        while value > 127:
            result.append(value & 127 | 128)
            value >>= 7
        result.append(value)
    return bytes(result)


def decode_ids(raw: bytes) -> tuple[int, ...]:
    ids: list[int] = []
    value = shift = 0
    for byte in raw:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            ids.append(value)
            value = shift = 0
    return tuple(ids)


def encode_part(part: Part) -> tuple[str, bytes]:
    """Kind and data of a part."""
    match part:
        case TextPart(text):
            return "text", encode_text(text)
        case ErrorPart(message):
            return "error", encode_text(message)
        case AttachmentPart():
            head = {
                "name": part.name,
                "sha256": part.blob_sha256,
                "bytes": part.num_bytes,
                "encoding": part.encoding,
            }
            return "attachment", json.dumps(head).encode() + b"\n" + encode_text(part.text)
        case UnreadablePart(kind, raw):
            return kind, raw


def decode_part(kind: str, raw: bytes) -> Part:
    """A part that this version does not know or cannot read comes back raw, never as an error."""
    try:
        if kind == "text":
            return TextPart(decode_text(raw))
        if kind == "error":
            return ErrorPart(decode_text(raw))
        if kind == "attachment":
            return _attachment(raw)
    except (ValueError, KeyError, TypeError):
        return UnreadablePart(kind, raw)
    return UnreadablePart(kind, raw)


def _attachment(raw: bytes) -> AttachmentPart:
    head, text = raw.split(b"\n", 1)
    fields = json.loads(head)
    return AttachmentPart(
        name=str(fields["name"]),
        blob_sha256=str(fields["sha256"]),
        num_bytes=int(fields["bytes"]),
        encoding=str(fields["encoding"]),
        text=decode_text(text),
    )
