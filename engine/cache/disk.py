"""The disk tier: attention pages as content-addressed files, written whole or not at all.

A file is named by the hash chain (model key, parent, token ids) and holds the ids themselves,
which are compared on every hit. It appears by rename after fsync, so several processes may share
the folder. Any doubt about a file means it is deleted and its tokens are computed again: never a
wrong answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import struct
import zlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from hearth.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

log = logging.getLogger(__name__)

MAGIC = b"HEARTHKV"
FORMAT_VERSION = 1
HEADER = struct.Struct("<8sI32s32sIIQ")  # magic, version, key, parent, ids, states, payload bytes
TAIL_NAME_CHARS = 16
DEFAULT_CAPACITY_BYTES = 20 << 30
FREE_FLOOR_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class ModelKey:
    """Everything that changes the bits of a page."""

    weights: str  # the model's fingerprint
    arithmetic: str  # kernel backend and its numeric version
    cache_dtype: str
    page_floats: int
    num_layers: int
    rope: str
    drafter: str = ""

    def digest(self) -> bytes:
        text = "\n".join(f"{item.name}={getattr(self, item.name)}" for item in fields(self))
        return hashlib.blake2b(text.encode(), digest_size=32).digest()


@dataclass(frozen=True, slots=True)
class Found:
    """A file whose ids begin like the wanted ones."""

    name: str
    ids: tuple[int, ...]
    agreed: int


class DiskTier:
    """A folder of page files for one model; engine thread only. Turns itself off, with one notice,
    when the disk fails; requests go on without it."""

    def __init__(
        self, folder: Path, key: ModelKey, *, capacity_bytes: int = DEFAULT_CAPACITY_BYTES
    ) -> None:
        self._key = key.digest()
        self._folder = folder / self._key.hex()[:32]
        self._root = folder
        self._capacity_bytes = capacity_bytes
        self.is_on = True
        self.notice: str | None = None
        self.num_rejected = 0
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for orphan in self._folder.glob("*.tmp*"):
                orphan.unlink(missing_ok=True)
        except OSError as error:
            self._turn_off(error)

    def _turn_off(self, error: OSError) -> None:
        self.is_on = False
        self.notice = (
            f"Chats cannot be kept ready on disk ({error.strerror}); they will be read again "
            "after a restart."
        )
        log.warning("disk tier off: %s", error)

    # --------------------------------------------------------------------------------------- names

    def chain_key(self, parent: bytes, ids: Sequence[int]) -> bytes:
        """32 bytes that name ``ids`` behind ``parent`` (empty for the first block)."""
        digest = hashlib.blake2b(self._key + parent, digest_size=32)
        digest.update(_pack_ids(ids))
        return digest.digest()

    def _name(self, parent: bytes, ids: Sequence[int]) -> str:
        """Full pages by their content; tails also carry their parent, to be found without it."""
        digest = self.chain_key(parent, ids).hex()
        if len(ids) == PAGE_TOKENS:
            return f"{digest}.page"
        return f"{_short(parent)}-{len(ids):03d}-{digest[:TAIL_NAME_CHARS]}.tail"

    def find(self, parent: bytes, ids: Sequence[int]) -> Found | None:
        """The file behind ``parent`` that agrees with most of ``ids``: a whole page or a tail."""
        if not self.is_on:
            return None
        if len(ids) >= PAGE_TOKENS:
            block = tuple(ids[:PAGE_TOKENS])
            name = self._name(parent, block)
            if (self._folder / name).exists():
                return Found(name, block, PAGE_TOKENS)
        best: Found | None = None
        for path in self._folder.glob(f"{_short(parent)}-*.tail"):
            stored = self._read_ids(path)
            agreed = _common(stored, ids)
            if stored and agreed and (best is None or agreed > best.agreed):
                best = Found(path.name, stored, agreed)
        return best

    def _read_ids(self, path: Path) -> tuple[int, ...]:
        """The ids of a file's header; empty when there is any doubt (the file is deleted)."""
        try:
            with path.open("rb") as file:
                head = self._head(file.read(HEADER.size))
                if head is None:
                    return self._reject(path)
                raw = file.read(4 * head.num_ids)
        except OSError:
            return ()
        if len(raw) != 4 * head.num_ids:
            return self._reject(path)
        return struct.unpack(f"<{head.num_ids}I", raw)

    def _reject(self, path: Path) -> tuple[int, ...]:
        self.num_rejected += 1
        log.warning("cache file %s is damaged and was dropped", path.name)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        return ()

    # ------------------------------------------------------------------------------------- reading

    def _head(self, raw: bytes) -> _Head | None:
        if len(raw) != HEADER.size:
            return None
        magic, version, key, _, num_ids, num_states, num_bytes = HEADER.unpack(raw)
        if (magic, version, key) != (MAGIC, FORMAT_VERSION, self._key):
            return None
        if not 0 < num_ids <= PAGE_TOKENS or num_states > PAGE_TOKENS:
            return None
        return _Head(num_ids, num_states, num_bytes)

    def load(self, name: str, ids: Sequence[int], page: memoryview) -> dict[int, bytes] | None:
        """Read a file into ``page``; the recurrent states it holds, or None when it cannot be
        trusted (``page`` may then hold anything)."""
        path = self._folder / name
        try:
            with path.open("rb") as file:
                states = self._load(file, ids, page)
            if states is None:
                self._reject(path)
                return None
            os.utime(path)  # least recently used goes first
        except OSError as error:
            log.warning("cache file %s could not be read: %s", name, error)
            return None
        return states

    def _load(self, file: object, ids: Sequence[int], page: memoryview) -> dict[int, bytes] | None:
        read = file.read  # type: ignore[attr-defined]
        raw = read(HEADER.size)
        head = self._head(raw)
        packed_ids = _pack_ids(ids)
        if head is None or head.num_bytes != len(page) or read(4 * head.num_ids) != packed_ids:
            return None
        checksum = zlib.crc32(packed_ids, zlib.crc32(raw))
        if file.readinto(page) != len(page):  # type: ignore[attr-defined]
            return None
        checksum = zlib.crc32(page, checksum)
        states: dict[int, bytes] = {}
        for _ in range(head.num_states):
            lengths = read(12)
            if len(lengths) != 12:
                return None
            count, num_bytes = struct.unpack("<IQ", lengths)
            state = read(min(num_bytes, 1 << 34))
            checksum = zlib.crc32(state, zlib.crc32(lengths, checksum))
            states[count] = state
        return states if read(5) == struct.pack("<I", checksum) else None

    # ------------------------------------------------------------------------------------- writing

    def save(
        self, parent: bytes, ids: Sequence[int], page: memoryview, states: Mapping[int, bytes]
    ) -> int:
        """Write one page; returns the bytes written, 0 when the tier is off or full."""
        if not self.is_on:
            return 0
        try:
            num_bytes = self._save(parent, ids, page, states)
        except OSError as error:
            self._turn_off(error)
            return 0
        return num_bytes

    def _save(
        self, parent: bytes, ids: Sequence[int], page: memoryview, states: Mapping[int, bytes]
    ) -> int:
        size = HEADER.size + 4 * len(ids) + len(page) + sum(map(len, states.values())) + 4
        self._make_room(size)
        padded_parent = parent.ljust(32, b"\0")
        head = HEADER.pack(
            MAGIC, FORMAT_VERSION, self._key, padded_parent, len(ids), len(states), len(page)
        )
        pieces: list[bytes | memoryview] = [head, _pack_ids(ids), page]
        for count, state in states.items():
            pieces += [struct.pack("<IQ", count, len(state)), state]
        checksum = 0
        for piece in pieces:
            checksum = zlib.crc32(piece, checksum)
        path = self._folder / self._name(parent, ids)
        temporary = path.with_name(f"{path.name}.tmp{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for piece in pieces:
                    file.write(piece)
                file.write(struct.pack("<I", checksum))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        _sync_folder(self._folder)
        return size

    def _make_room(self, num_bytes: int) -> None:
        """Delete what was used longest ago, of any model, until ``num_bytes`` fit the capacity."""
        free = shutil.disk_usage(self._root).free
        if free - num_bytes < FREE_FLOOR_BYTES:
            raise OSError(28, "less than 1 GB of disk space is left")
        files = sorted(self._stat_all(), key=lambda item: item[1])
        total = sum(size for _, _, size in files)
        for path, _, size in files:
            if total + num_bytes <= self._capacity_bytes:
                return
            path.unlink(missing_ok=True)
            total -= size

    def _stat_all(self) -> list[tuple[Path, float, int]]:
        result = []
        for path in self._root.glob("*/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                result.append((path, status.st_mtime, status.st_size))
        return result

    def usage_bytes(self) -> int:
        return sum(size for _, _, size in self._stat_all())

    def clear(self) -> None:
        """Delete every file of every model."""
        for path, _, _ in self._stat_all():
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _Head:
    num_ids: int
    num_states: int
    num_bytes: int


def _short(parent: bytes) -> str:
    return parent.hex()[:TAIL_NAME_CHARS] if parent else "root"


def _pack_ids(ids: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(ids)}I", *ids)


def _common(stored: Sequence[int], ids: Sequence[int]) -> int:
    count = 0
    for left, right in zip(stored, ids, strict=False):
        if left != right:
            break
        count += 1
    return count


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; systems without folder descriptors (Windows) do it themselves."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
