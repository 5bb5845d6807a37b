"""Opening model files without trusting them: mapped read-only, every range checked."""

from __future__ import annotations

import mmap
import os
import stat
import struct
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hearth.engine.errors import MachineError, UserError

if TYPE_CHECKING:
    from pathlib import Path

SHOWN_CHARS = 80
TEXT_LENGTH = struct.Struct("<Q")
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
PICKLE_MARKS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


def shown(text: object) -> str:
    """``text`` from a file, safe inside a sentence: one short line of printable characters."""
    line = "".join(char if char.isprintable() else "?" for char in str(text)[: SHOWN_CHARS + 1])
    return line if len(line) <= SHOWN_CHARS else line[:SHOWN_CHARS] + "…"


def damaged(path: Path, what: str) -> UserError:
    """The one sentence for a file that does not hold what its kind promises."""
    return UserError(
        f"{shown(path.name)} is damaged or not a model file: {what}.",
        action="Download it again, or choose another file.",
    )


def pickle_refused(path: Path) -> UserError:
    return UserError(
        f"{shown(path.name)} is a pickle file, which could run code; Hearth does not open those.",
        action="Use the model's safetensors or GGUF files.",
    )


def unreadable(path: Path, error: OSError) -> MachineError:
    """The sentence for a file or folder that the system does not let us read."""
    return MachineError(
        f"{shown(path)} could not be read: {error.strerror}.",
        action="Check that the disk is connected and that you may read the file.",
    )


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A file's bytes, mapped read-only; tensors are views that keep the mapping alive."""

    path: Path
    data: mmap.mmap
    bytes_view: torch.Tensor  # uint8 [file size]

    @property
    def size(self) -> int:
        return len(self.data)

    def slice(self, byte_offset: int, num_bytes: int) -> torch.Tensor:
        """uint8 view of a range that the caller has checked."""
        assert 0 <= byte_offset <= byte_offset + num_bytes <= self.size, "range is inside the file"
        return self.bytes_view[byte_offset : byte_offset + num_bytes]


def map_file(path: Path) -> MappedFile:
    """Map ``path``; raises UserError when it is no readable, non-empty file."""
    try:
        if not path.exists():
            raise UserError(f"{shown(path)} does not exist.", action="Choose a model file.")
        if not path.is_file():
            raise UserError(f"{shown(path)} is not a file.", action="Choose a GGUF file.")
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size == 0:
                raise damaged(path, "it is empty")
            # A writable private mapping would count as memory: the kernel then refuses files
            # larger than memory and swap together.
            data = mmap.mmap(file.fileno(), found.st_size, access=mmap.ACCESS_READ)
    except OSError as error:
        raise unreadable(path, error) from error
    return MappedFile(path, data, _view(data))


def _view(data: mmap.mmap) -> torch.Tensor:
    with warnings.catch_warnings():
        # Nobody writes into weights; a bug that did would fault instead of altering the file.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return torch.frombuffer(data, dtype=torch.uint8)


class Reader:
    """Walks little-endian values of a mapped header; running off the end is a damaged file.

    ``max_bytes`` bounds the header and ``max_items`` the elements of all its lists together, so
    that a hostile file cannot make Python objects of gigabytes.
    """

    def __init__(self, file: MappedFile, *, max_bytes: int, max_items: int = 0) -> None:
        self.file = file
        self.byte_offset = 0
        self._end = min(file.size, max_bytes)
        self._items_left = max_items

    def take(self, num_bytes: int) -> bytes:
        if num_bytes < 0 or num_bytes > self._end - self.byte_offset:
            raise damaged(self.file.path, "it ends too early")
        start = self.byte_offset
        self.byte_offset += num_bytes
        return self.file.data[start : start + num_bytes]

    def number(self, kind: str) -> int | float:
        """One value of a ``struct`` kind, for example "I"."""
        return self.numbers(kind, 1)[0]

    def numbers(self, kind: str, count: int) -> list[int | float]:
        size = struct.calcsize("<" + kind)
        return list(struct.unpack(f"<{count}{kind}", self.take(count * size)))

    def count(self, kind: str = "Q") -> int:
        return int(self.number(kind))

    def text(self, max_bytes: int) -> str:
        """A length and UTF-8."""
        return self.texts(1, max_bytes)[0]

    def texts(self, count: int, max_bytes: int) -> list[str]:
        """``count`` texts of at most ``max_bytes``. One flat loop: vocabularies have half a million
        of them, and calls would take longer than the work (1.4 s a million against 0.4 s)."""
        data, end, length_at = self.file.data, self._end, TEXT_LENGTH.unpack_from
        path, at, texts = self.file.path, self.byte_offset, []
        for _ in range(count):
            start = at + TEXT_LENGTH.size
            if start > end:
                raise damaged(path, "it ends too early")
            (length,) = length_at(data, at)
            at = start + length
            if length > max_bytes:
                raise damaged(path, "a text in its header is absurdly long")
            if at > end:
                raise damaged(path, "it ends too early")
            try:
                texts.append(data[start:at].decode("utf-8"))
            except UnicodeDecodeError as error:
                raise damaged(path, "a text in its header is not UTF-8") from error
        self.byte_offset = at
        return texts

    def list_length(self, smallest_item_bytes: int) -> int:
        """The length of a list, refused when it is longer than the file or absurd."""
        count = self.count()
        if count * smallest_item_bytes > self._end - self.byte_offset:
            raise damaged(self.file.path, "a list in its header is longer than the file")
        self._items_left -= count
        if self._items_left < 0:
            raise damaged(self.file.path, "the lists in its header are absurdly long")
        return count
