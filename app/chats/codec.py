"""Exact bytes for text and token ids.

Text is UTF-8 with ``surrogatepass``: any Python string comes back equal, lone surrogates and NUL
included. Token ids are one byte of width followed by little-endian numbers of that width:
a variable-length code would save a quarter of the bytes and cost twenty times the time.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_FORMAT_OF_WIDTH = {2: "H", 4: "I"}


def encode_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def decode_text(data: bytes) -> str:
    """The text of ``data``. Raises UnicodeDecodeError when the bytes were damaged."""
    return data.decode("utf-8", "surrogatepass")


def readable_text(data: bytes) -> str:
    """The text of ``data`` with damaged bytes shown as U+FFFD: for titles, never for truth."""
    try:
        return decode_text(data)
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def encode_ids(token_ids: Sequence[int]) -> bytes:
    width = 2 if max(token_ids, default=0) < 1 << 16 else 4
    return bytes([width]) + struct.pack(f"<{len(token_ids)}{_FORMAT_OF_WIDTH[width]}", *token_ids)


def decode_ids(data: bytes) -> tuple[int, ...] | None:
    """The ids, or None when the bytes were damaged: ids can be computed again from text."""
    if not data or data[0] not in _FORMAT_OF_WIDTH or (len(data) - 1) % data[0]:
        return None
    count = (len(data) - 1) // data[0]
    return struct.unpack_from(f"<{count}{_FORMAT_OF_WIDTH[data[0]]}", data, 1)
