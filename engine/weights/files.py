"""Opening model files without trusting them: mapped read-only, every range checked."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hearth.engine.errors import MachineError, UserError

if TYPE_CHECKING:
    from pathlib import Path


def damaged(path: Path, what: str) -> UserError:
    """The one sentence for a file that does not hold what its kind promises."""
    return UserError(
        f"{path.name} is damaged or not a model file: {what}.",
        action="Download it again, or choose another file.",
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
            raise UserError(f"{path} does not exist.", action="Choose an existing model file.")
        if not path.is_file():
            raise UserError(f"{path} is not a file.", action="Choose a GGUF file.")
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise damaged(path, "it is empty")
            # ACCESS_COPY gives torch a writable buffer while the file itself stays untouched.
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError as error:
        raise MachineError(
            f"{path} could not be read: {error.strerror}.", action="Check the file's permissions."
        ) from error
    return MappedFile(path, data, torch.frombuffer(data, dtype=torch.uint8))


class Reader:
    """Walks little-endian values of a mapped header; running off the end is a damaged file."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.byte_offset = 0

    def take(self, num_bytes: int) -> bytes:
        if num_bytes < 0 or num_bytes > self.file.size - self.byte_offset:
            raise damaged(self.file.path, "it ends too early")
        start = self.byte_offset
        self.byte_offset += num_bytes
        return self.file.data[start : start + num_bytes]

    def number(self, kind: str) -> int | float:
        """One value of a ``struct`` kind, for example "I"."""
        (value,) = struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind)))
        assert isinstance(value, int | float), "numeric kinds only"
        return value

    def count(self, kind: str = "Q") -> int:
        return int(self.number(kind))
