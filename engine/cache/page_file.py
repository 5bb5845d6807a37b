"""The files of the disk tier: a label that says exactly what they hold, the payload, a checksum.

    magic 8 | format version u32 | model key 32 | parent's chain hash 32 | number of ids u32 |
    payload bytes u64 | ids u32 each | payload | crc32 of everything before u32      (little endian)

CRC-32 reads 3 GB/s here, blake2b 0.7 GB/s; the disk is the slower part.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hearth.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from io import BufferedReader, BufferedWriter

    from numpy.typing import NDArray

PAGE_MAGIC = b"HEARTHKV"
STATE_MAGIC = b"HEARTHST"
FORMAT_VERSION = 2
HEADER = struct.Struct("<8sI32s32sIQ")
CHECKSUM = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Label:
    """What a file holds: the ids behind ``parent`` (empty at the beginning) for one model key."""

    magic: bytes
    key: bytes
    parent: bytes
    ids: tuple[int, ...]

    def to_bytes(self, payload_bytes: int) -> bytes:
        head = HEADER.pack(
            self.magic, FORMAT_VERSION, self.key, self.parent, len(self.ids), payload_bytes
        )
        return head + pack_ids(self.ids)

    def file_bytes(self, payload_bytes: int) -> int:
        return HEADER.size + 4 * len(self.ids) + payload_bytes + CHECKSUM.size


def pack_ids(ids: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(ids)}I", *ids)


def write(file: BufferedWriter, label: Label, payload: Sequence[memoryview]) -> None:
    head = label.to_bytes(sum(part.nbytes for part in payload))
    checksum = 0
    for part in (memoryview(head), *payload):
        checksum = zlib.crc32(part, checksum)
        file.write(part)
    file.write(CHECKSUM.pack(checksum))


def read_ids(file: BufferedReader, key: bytes, parent: bytes) -> tuple[int, ...] | None:
    """The ids that a page file claims to hold; None when it is not one of ``key`` and ``parent``.
    The checksum is not looked at: ``read_into`` compares everything."""
    raw = file.read(HEADER.size)
    if len(raw) != HEADER.size:
        return None
    magic, version, its_key, its_parent, num_ids, _ = HEADER.unpack(raw)
    expected = PAGE_MAGIC, FORMAT_VERSION, key, parent.ljust(32, b"\0")
    if (magic, version, its_key, its_parent) != expected or not 0 < num_ids <= PAGE_TOKENS:
        return None
    packed = file.read(4 * num_ids)
    return struct.unpack(f"<{num_ids}I", packed) if len(packed) == 4 * num_ids else None


def read_into(file: BufferedReader, label: Label, targets: Sequence[memoryview]) -> bool:
    """Fill ``targets``; False when the file is not exactly what ``label`` says (they may then hold
    anything)."""
    payload_bytes = sum(target.nbytes for target in targets)
    if os.fstat(file.fileno()).st_size != label.file_bytes(payload_bytes):
        return False
    head = label.to_bytes(payload_bytes)
    if file.read(len(head)) != head:
        return False
    checksum = zlib.crc32(head)
    for target in targets:
        if file.readinto(target) != target.nbytes:
            return False
        checksum = zlib.crc32(target, checksum)
    return file.read(CHECKSUM.size) == CHECKSUM.pack(checksum)


def read_all(file: BufferedReader, label: Label) -> bytes | None:
    """The payload, whatever its size; None when there is any doubt."""
    payload_bytes = os.fstat(file.fileno()).st_size - label.file_bytes(0)
    if payload_bytes < 0:
        return None
    payload = bytearray(payload_bytes)
    return bytes(payload) if read_into(file, label, [memoryview(payload)]) else None


@dataclass(frozen=True, slots=True)
class PageLayout:
    """Which floats of a page belong to which token (kernels/kv.py): per layer keys
    [Hkv, head_dim, 128], then values [Hkv, 128, head_dim].

    Behind the last token of a tail stands whatever the page held before, perhaps of another chat:
    with a known ``head_dim`` it is neither written nor read. None: pages are taken whole.
    """

    num_layers: int
    page_floats: int
    head_dim: int | None

    def __post_init__(self) -> None:
        if self.head_dim is not None:
            assert self.page_floats % (2 * self.head_dim * PAGE_TOKENS) == 0, "whole key heads"

    def parts(self, page: memoryview, num_tokens: int) -> list[NDArray[np.float32]]:
        """Views on the floats of the first ``num_tokens`` tokens."""
        floats = np.frombuffer(page, dtype=np.float32)
        if num_tokens == PAGE_TOKENS or self.head_dim is None:
            return [floats]
        layers = floats.reshape(self.num_layers, 2, -1)
        keys = layers[:, 0].reshape(self.num_layers, -1, PAGE_TOKENS)
        values = layers[:, 1].reshape(self.num_layers, -1, PAGE_TOKENS, self.head_dim)
        return [keys[:, :, :num_tokens], values[:, :, :num_tokens]]

    def filled(self, page: memoryview, num_tokens: int) -> list[memoryview]:
        """The floats of the first tokens, to be written."""
        return [np.ascontiguousarray(p).data.cast("B") for p in self.parts(page, num_tokens)]

    def read(self, file: BufferedReader, label: Label, page: memoryview) -> bool:
        """Fill ``page`` as far as ``label`` has ids, whole pages without a copy in between."""
        parts = self.parts(page, len(label.ids))
        buffers = [
            part if part.flags.c_contiguous else np.empty(part.shape, np.float32) for part in parts
        ]
        if not read_into(file, label, [buffer.data.cast("B") for buffer in buffers]):
            return False
        for part, buffer in zip(parts, buffers, strict=True):
            if buffer is not part:
                part[...] = buffer
        return True
