"""A message's typed parts as rows of the database; a bad row spoils only itself."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass

from hearth.app.chats.codec import decode_text, encode_text
from hearth.app.chats.records import (
    AttachmentPart,
    ErrorPart,
    Part,
    ReasoningPart,
    TextPart,
    UnreadablePart,
)


@dataclass(frozen=True, slots=True)
class StoredPart:
    """The columns of one part. ``body`` is the truth; ``name`` only serves the search."""

    kind: str
    body: bytes
    meta: str | None = None
    name: str | None = None
    blob_sha256: str | None = None

    @property
    def checksum(self) -> int:
        return zlib.crc32(self.body, zlib.crc32((self.meta or "").encode()))


def encode(part: Part) -> StoredPart:
    match part:
        case TextPart(text):
            return StoredPart("text", encode_text(text))
        case ReasoningPart(text, seconds):
            return StoredPart("reasoning", encode_text(text), json.dumps({"seconds": seconds}))
        case ErrorPart(message):
            return StoredPart("error", encode_text(message))
        case UnreadablePart(kind, raw):
            return StoredPart(kind, raw)
        case AttachmentPart():
            return _encode_attachment(part)


def _encode_attachment(part: AttachmentPart) -> StoredPart:
    meta = {
        "name": part.name,
        "blob_sha256": part.blob_sha256,
        "num_bytes": part.num_bytes,
        "encoding": part.encoding,
    }
    searchable = part.name.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
    body = encode_text(part.text)
    return StoredPart("attachment", body, json.dumps(meta), searchable, part.blob_sha256)


def decode(kind: str, body: bytes, meta: str | None) -> Part:
    """The part, or UnreadablePart with the raw bytes when this version cannot read it."""
    try:
        match kind:
            case "text":
                return TextPart(decode_text(body))
            case "reasoning":
                return _decode_reasoning(body, meta)
            case "error":
                return ErrorPart(decode_text(body))
            case "attachment":
                return _decode_attachment(body, meta)
    except (ValueError, KeyError, TypeError):
        return UnreadablePart(kind, bytes(body))
    return UnreadablePart(kind, bytes(body))


def _decode_reasoning(body: bytes, meta: str | None) -> ReasoningPart:
    if not body:
        raise ValueError("no reasoning is no part")
    return ReasoningPart(decode_text(body), float(json.loads(meta or "")["seconds"]))


def _decode_attachment(body: bytes, meta: str | None) -> AttachmentPart:
    fields = json.loads(meta or "")
    return AttachmentPart(
        name=str(fields["name"]),
        blob_sha256=str(fields["blob_sha256"]),
        num_bytes=int(fields["num_bytes"]),
        encoding=str(fields["encoding"]),
        text=decode_text(body),
    )
