"""The GGUF container: metadata and tensor places, bounds-checked, nothing copied."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.engine.errors import UserError
from hearth.engine.weights.files import MappedFile, Reader, damaged, map_file
from hearth.kernels.ggml_blocks import LAYOUTS, Layout

if TYPE_CHECKING:
    from pathlib import Path

    import torch

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_DIMS = 4
MAX_TENSORS = 1 << 20
MAX_METADATA = 1 << 16
MAX_ARRAY_DEPTH = 2
DEFAULT_ALIGNMENT = 32
SPLIT_NAME = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")
# Formats of the specification that Hearth cannot read, by id: refused by name.
UNREADABLE_TYPES = {
    16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S", 29: "IQ1_M",
    34: "TQ1_0", 35: "TQ2_0", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 9: "Q8_1",
    15: "Q8_K", 41: "Q1_0", 42: "Q2_0",
}  # fmt: skip
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
BOOL, STRING, ARRAY = 7, 8, 9

Value = int | float | bool | str | list["Value"]


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where one tensor lies. ``shape`` is row-major: (N, K) for a matrix, (N,) for a vector."""

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    file: MappedFile
    byte_offset: int
    num_bytes: int

    @property
    def layout(self) -> Layout:
        return LAYOUTS[self.ggml_type]

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
    header_bytes: int  # of the first file: metadata and tensor list


def open_gguf(path: Path) -> GgufFile:
    """Read the header(s). Raises UserError for anything that is not a whole, readable GGUF file."""
    match = SPLIT_NAME.match(path.name)
    if match is None:
        return _open_one(path)
    return _open_split(path, match)


def _open_split(path: Path, match: re.Match[str]) -> GgufFile:
    count = int(match["count"])
    parts = [
        path.with_name(f"{match['stem']}-{number:05d}-of-{count:05d}.gguf")
        for number in range(1, count + 1)
    ]
    missing = [part.name for part in parts if not part.exists()]
    if missing:
        raise UserError(
            f"The model is split into {count} files and {missing[0]} is missing.",
            action="Put all parts into one folder.",
        )
    opened = [_open_one(part) for part in parts]
    tensors: dict[str, GgufTensor] = {}
    for file in opened:
        for name, tensor in file.tensors.items():
            if name in tensors:
                raise damaged(file.path, f"tensor {name} occurs twice")
            tensors[name] = tensor
    return GgufFile(opened[0].path, opened[0].metadata, tensors, opened[0].header_bytes)


def _open_one(path: Path) -> GgufFile:
    reader = Reader(map_file(path))
    if reader.take(4) != MAGIC:
        raise damaged(path, "it does not begin with the GGUF mark")
    version = reader.count("I")
    if version & 0xFFFF == 0:
        raise UserError(f"{path.name} is a big-endian GGUF file, which Hearth cannot read.")
    if version not in VERSIONS:
        raise UserError(
            f"{path.name} has GGUF version {version}; Hearth reads versions 2 and 3.",
            action="Convert it again with a current tool.",
        )
    num_tensors, num_metadata = reader.count(), reader.count()
    if num_tensors > MAX_TENSORS or num_metadata > MAX_METADATA:
        raise damaged(path, "its counts are absurd")
    metadata = dict(_entry(reader) for _ in range(num_metadata))
    places = [_place(reader) for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or not _is_power_of_two(alignment):
        raise damaged(path, "its alignment is not a power of two")
    data_start = -(-reader.byte_offset // alignment) * alignment
    tensors = _tensors(reader.file, places, data_start, alignment)
    return GgufFile(path, metadata, tensors, reader.byte_offset)


def _is_power_of_two(value: int) -> bool:
    return 0 < value <= 1 << 20 and value & (value - 1) == 0


# --------------------------------------------------------------------------------------- metadata


def _entry(reader: Reader) -> tuple[str, Value]:
    name = _string(reader)
    return name, _value(reader, reader.count("I"), depth=0)


def _string(reader: Reader) -> str:
    raw = reader.take(reader.count())
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise damaged(reader.file.path, "a text in its header is not UTF-8") from error


def _value(reader: Reader, kind: int, depth: int) -> Value:
    if kind in SCALARS:
        return reader.number(SCALARS[kind])
    if kind == BOOL:
        return reader.count("B") != 0
    if kind == STRING:
        return _string(reader)
    if kind == ARRAY and depth < MAX_ARRAY_DEPTH:
        return _array(reader, depth)
    raise damaged(reader.file.path, f"its header holds a value of unknown kind {kind}")


def _array(reader: Reader, depth: int) -> list[Value]:
    kind, count = reader.count("I"), reader.count()
    smallest = SCALAR_BYTES.get(kind, 8)
    if count > (reader.file.size - reader.byte_offset) // smallest:
        raise damaged(reader.file.path, "an array in its header is longer than the file")
    return [_value(reader, kind, depth + 1) for _ in range(count)]


# ---------------------------------------------------------------------------------------- tensors


@dataclass(frozen=True, slots=True)
class _Place:
    name: str
    shape: tuple[int, ...]
    ggml_type: int
    byte_offset: int


def _place(reader: Reader) -> _Place:
    name = _string(reader)
    num_dims = reader.count("I")
    if not 1 <= num_dims <= MAX_DIMS:
        raise damaged(reader.file.path, f"tensor {name} has {num_dims} dimensions")
    dims = [reader.count() for _ in range(num_dims)]
    return _Place(name, tuple(reversed(dims)), reader.count("I"), reader.count())


def _tensors(
    file: MappedFile, places: list[_Place], data_start: int, alignment: int
) -> dict[str, GgufTensor]:
    tensors: dict[str, GgufTensor] = {}
    for place in places:
        if place.name in tensors:
            raise damaged(file.path, f"tensor {place.name} occurs twice")
        num_bytes = _num_bytes(file.path, place)
        start = data_start + place.byte_offset
        if place.byte_offset % alignment or start + num_bytes > file.size:
            raise damaged(file.path, f"tensor {place.name} lies outside the file")
        tensors[place.name] = GgufTensor(
            place.name, place.shape, place.ggml_type, file, start, num_bytes
        )
    _refuse_overlap(file.path, tensors)
    return tensors


def _num_bytes(path: Path, place: _Place) -> int:
    layout = LAYOUTS.get(place.ggml_type)
    if layout is None:
        name = UNREADABLE_TYPES.get(place.ggml_type, f"type {place.ggml_type}")
        raise UserError(
            f"{path.name} stores {place.name} as {name}, which Hearth cannot read.",
            action="Choose a file in another format, for example Q4_K_M.",
        )
    elements = 1
    for size in place.shape:
        elements *= size
    if elements == 0 or place.shape[-1] % layout.elements:
        raise damaged(path, f"tensor {place.name} has rows that are not whole blocks")
    return elements // layout.elements * layout.num_bytes


def _refuse_overlap(path: Path, tensors: dict[str, GgufTensor]) -> None:
    end = 0
    for tensor in sorted(tensors.values(), key=lambda t: t.byte_offset):
        if tensor.byte_offset < end:
            raise damaged(path, f"tensor {tensor.name} overlaps another")
        end = tensor.byte_offset + tensor.num_bytes
