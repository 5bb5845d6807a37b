"""The GGUF container: metadata and tensor places, bounds-checked, nothing copied."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from hearth.engine.errors import UserError
from hearth.engine.weights.files import (
    PICKLE_MARKS,
    TEXT_LENGTH,
    MappedFile,
    Reader,
    damaged,
    map_file,
    pickle_refused,
    shown,
)
from hearth.engine.weights.gguf_types import LAYOUTS, UNREADABLE_TYPES

if TYPE_CHECKING:
    from pathlib import Path

    import torch

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 20
SPLIT_NAME = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")
# Bounds of what is believed. Large real headers: 1,300,000 list items (262,144 tokens with scores,
# types and merges), 20 MB, 1,100 tensors, 60 keys.
MAX_HEADER_BYTES = 256 << 20
MAX_LIST_ITEMS = 1 << 21
MAX_TEXT_BYTES = 16 << 20
MAX_NAME_BYTES = 1024
MAX_DIMS = 4
MAX_TENSORS = 1 << 16
MAX_METADATA = 1 << 14
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
           12: "d"}  # fmt: skip
STRING, ARRAY = 8, 9

Value = int | float | bool | str | list[int | float] | list[str]


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where one tensor lies. ``shape`` is row-major: (N, K) for a matrix, (N,) for a vector."""

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    file: MappedFile
    byte_offset: int
    num_bytes: int

    def raw(self) -> torch.Tensor:
        """uint8 [rows, row bytes], a view of the file (a copy where it is not aligned)."""
        rows = self.shape[0] if len(self.shape) > 1 else 1
        view = self.file.slice(self.byte_offset, self.num_bytes).view(rows, -1)
        return view if self.byte_offset % 4 == 0 else view.clone()


@dataclass(frozen=True, slots=True)
class GgufFile:
    """Metadata and tensors of a model, of all its split files together."""

    path: Path
    metadata: dict[str, Value]
    tensors: dict[str, GgufTensor]
    header: bytes  # of the first file: metadata and tensor list


def open_gguf(path: Path) -> GgufFile:
    """Read the header(s). Raises UserError for anything that is not a whole, readable GGUF file."""
    match = SPLIT_NAME.match(path.name)
    if match is not None:
        return _open_split(path, match)
    file = _open_one(path)
    if file.metadata.get("split.count", 1) not in (0, 1):
        raise UserError(
            f"{shown(path.name)} is one part of a split model and was renamed.",
            action="Give all parts their published names, ending in -00001-of-0000n.gguf.",
        )
    return file


def _open_split(path: Path, match: re.Match[str]) -> GgufFile:
    number, count = int(match["number"]), int(match["count"])
    if not 1 <= number <= count:
        raise damaged(path, "its name counts parts that cannot be")
    opened = [_open_part(path, match["stem"], part, count) for part in range(1, count + 1)]
    tensors: dict[str, GgufTensor] = {}
    for file in opened:
        for name, tensor in file.tensors.items():
            if name in tensors:
                raise damaged(file.path, f"tensor {shown(name)} occurs twice")
            tensors[name] = tensor
    first = opened[0]
    if first.metadata.get("split.tensors.count", len(tensors)) != len(tensors):
        raise damaged(first.path, "its parts do not hold as many tensors as it says")
    return GgufFile(first.path, first.metadata, tensors, first.header)


def _open_part(path: Path, stem: str, number: int, count: int) -> GgufFile:
    part = path.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf")
    if not part.exists():
        raise UserError(
            f"The model is split into {count} files and {shown(part.name)} is missing.",
            action="Put all parts into one folder.",
        )
    file = _open_one(part)
    claimed = (file.metadata.get("split.no", number - 1), file.metadata.get("split.count", count))
    if claimed != (number - 1, count):
        raise damaged(part, "it is another part than its name says")
    return file


def _open_one(path: Path) -> GgufFile:
    reader = Reader(map_file(path), max_bytes=MAX_HEADER_BYTES, max_items=MAX_LIST_ITEMS)
    _check_mark(reader)
    num_tensors, num_metadata = reader.count(), reader.count()
    if num_tensors > MAX_TENSORS or num_metadata > MAX_METADATA:
        raise damaged(path, "its counts are absurd")
    metadata = _metadata(reader, num_metadata)
    places = [_place(reader) for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or not _is_alignment(alignment):
        raise damaged(path, "its alignment is not a power of two")
    data_start = -(-reader.byte_offset // alignment) * alignment
    tensors = _tensors(reader.file, places, data_start, alignment)
    return GgufFile(path, metadata, tensors, reader.file.data[: reader.byte_offset])


def _check_mark(reader: Reader) -> None:
    path = reader.file.path
    mark = reader.file.data[:4]
    if mark.startswith(PICKLE_MARKS):
        raise pickle_refused(path)
    if mark != MAGIC:
        raise damaged(path, "it does not begin with the GGUF mark")
    reader.take(len(MAGIC))
    version = reader.count("I")
    action = "Convert the model again with a current tool."
    if version and version & 0xFFFF == 0:
        name = shown(path.name)
        raise UserError(
            f"{name} is a big-endian GGUF file, which Hearth cannot read.", action=action
        )
    if version not in VERSIONS:
        raise UserError(
            f"{shown(path.name)} has GGUF version {version}; Hearth reads versions 2 and 3.",
            action=action,
        )


def _is_alignment(value: int) -> bool:
    """The specification asks for multiples of 8; float views rely on it."""
    return 8 <= value <= MAX_ALIGNMENT and value & (value - 1) == 0


# --------------------------------------------------------------------------------------- metadata


def _metadata(reader: Reader, count: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for _ in range(count):
        key = reader.text(MAX_NAME_BYTES)
        if key in metadata:
            raise damaged(reader.file.path, f"{shown(key)} occurs twice in its header")
        metadata[key] = _value(reader, reader.count("I"))
    return metadata


def _value(reader: Reader, kind: int) -> Value:
    if kind in SCALARS:
        return reader.number(SCALARS[kind])
    if kind == STRING:
        return reader.text(MAX_TEXT_BYTES)
    if kind == ARRAY:
        return _array(reader, reader.count("I"))
    raise damaged(reader.file.path, f"its header holds a value of unknown kind {kind}")


def _array(reader: Reader, kind: int) -> list[int | float] | list[str]:
    if kind in SCALARS:
        return reader.numbers(SCALARS[kind], reader.list_length(1))
    if kind == STRING:
        return reader.texts(reader.list_length(TEXT_LENGTH.size), MAX_TEXT_BYTES)
    raise damaged(reader.file.path, f"its header holds a list of unknown kind {kind}")


# ---------------------------------------------------------------------------------------- tensors


@dataclass(frozen=True, slots=True)
class _Place:
    name: str
    shape: tuple[int, ...]
    ggml_type: int
    byte_offset: int


def _place(reader: Reader) -> _Place:
    name = reader.text(MAX_NAME_BYTES)
    num_dims = reader.count("I")
    if not 1 <= num_dims <= MAX_DIMS:
        raise damaged(reader.file.path, f"tensor {shown(name)} has {num_dims} dimensions")
    dims = [reader.count() for _ in range(num_dims)]
    return _Place(name, tuple(reversed(dims)), reader.count("I"), reader.count())


def _tensors(
    file: MappedFile, places: list[_Place], data_start: int, alignment: int
) -> dict[str, GgufTensor]:
    tensors: dict[str, GgufTensor] = {}
    for place in places:
        if place.name in tensors:
            raise damaged(file.path, f"tensor {shown(place.name)} occurs twice")
        num_bytes = _num_bytes(file.path, place)
        start = data_start + place.byte_offset
        if place.byte_offset % alignment:
            raise damaged(file.path, f"tensor {shown(place.name)} is not aligned")
        if start + num_bytes > file.size:
            raise damaged(file.path, f"tensor {shown(place.name)} lies outside the file")
        tensors[place.name] = GgufTensor(
            place.name, place.shape, place.ggml_type, file, start, num_bytes
        )
    _refuse_overlap(file.path, tensors)
    return tensors


def _num_bytes(path: Path, place: _Place) -> int:
    layout = LAYOUTS.get(place.ggml_type)
    if layout is None:
        kind = UNREADABLE_TYPES.get(place.ggml_type, f"type {place.ggml_type}")
        raise UserError(
            f"{shown(path.name)} stores {shown(place.name)} as {kind}, which Hearth cannot read.",
            action="Choose a file in another format, for example Q4_K_M.",
        )
    elements = 1
    for size in place.shape:
        elements *= size
    if elements == 0:
        raise damaged(path, f"tensor {shown(place.name)} is empty")
    if place.shape[-1] % layout.elements:
        raise damaged(path, f"tensor {shown(place.name)} has rows that are not whole blocks")
    return elements // layout.elements * layout.num_bytes


def _refuse_overlap(path: Path, tensors: dict[str, GgufTensor]) -> None:
    in_order = sorted(tensors.values(), key=lambda tensor: tensor.byte_offset)
    for tensor, following in pairwise(in_order):
        if tensor.byte_offset + tensor.num_bytes > following.byte_offset:
            raise damaged(path, f"tensor {shown(following.name)} overlaps another")
