"""The safetensors container, mapped and bounds-checked.

The format is a length, a JSON header and the data (huggingface/safetensors). The library's reader
gives tensors; here the header is checked before anything is believed, and data stay views.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeGuard

from hearth.engine.weights.files import MappedFile, Reader, damaged, map_file, shown
from hearth.engine.weights.json_files import parse_json
from hearth.kernels import ggml_blocks

if TYPE_CHECKING:
    from pathlib import Path

    import torch

MAX_HEADER_BYTES = 16 << 20  # the format's library allows 100 MB; 60,000 tensors have 8 MB
MAX_DIMS = 8
LENGTH_BYTES = 8
GGML_TYPES = {"F32": ggml_blocks.F32, "F16": ggml_blocks.F16, "BF16": ggml_blocks.BF16}
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "I16": 16, "U16": 16,
    "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SafeTensor:
    """Where one tensor lies. Floats have ggml's ids, so that one code path packs them; for other
    dtypes ``ggml_type`` is None."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    ggml_type: int | None
    file: MappedFile
    byte_offset: int
    num_bytes: int

    def raw(self) -> torch.Tensor:
        """uint8 [rows, row bytes], a view of the file (a copy where it is not aligned)."""
        rows = self.shape[0] if len(self.shape) > 1 else 1
        view = self.file.slice(self.byte_offset, self.num_bytes).view(rows, -1)
        return view if self.byte_offset * 8 % BITS[self.dtype] == 0 else view.clone()


def open_safetensors(path: Path) -> dict[str, SafeTensor]:
    """Tensors by name. Raises UserError for a header that is damaged or leads out of the file."""
    reader = Reader(map_file(path), max_bytes=LENGTH_BYTES + MAX_HEADER_BYTES)
    length = reader.count()
    if length > min(MAX_HEADER_BYTES, reader.file.size - LENGTH_BYTES):
        raise damaged(path, "its header is longer than the file")
    header = parse_json(path, reader.take(length))
    data_start = reader.byte_offset
    tensors = {
        name: _tensor(reader.file, name, entry, data_start)
        for name, entry in header.items()
        if name != "__metadata__"
    }
    _refuse_overlap(path, tensors)
    return tensors


def _tensor(file: MappedFile, name: str, entry: object, data_start: int) -> SafeTensor:
    if not isinstance(entry, dict):
        raise damaged(file.path, f"tensor {shown(name)} is not described")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise damaged(file.path, f"tensor {shown(name)} has the unknown type {shown(dtype)}")
    if not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2:
        raise damaged(file.path, f"tensor {shown(name)} has no sensible shape or place")
    start, stop = offsets
    bits = math.prod(shape) * BITS[dtype]
    if bits % 8 or stop - start != bits // 8 or data_start + stop > file.size:
        raise damaged(file.path, f"tensor {shown(name)} does not fit its place in the file")
    if bits == 0:
        raise damaged(file.path, f"tensor {shown(name)} is empty")
    place = data_start + start
    return SafeTensor(name, tuple(shape), dtype, GGML_TYPES.get(dtype), file, place, bits // 8)


def _are_counts(values: object) -> TypeGuard[list[int]]:
    """True for a short list of non-negative integers."""
    return (
        isinstance(values, list)
        and len(values) <= MAX_DIMS
        and all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values)
    )


def _refuse_overlap(path: Path, tensors: dict[str, SafeTensor]) -> None:
    in_order = sorted(tensors.values(), key=lambda tensor: tensor.byte_offset)
    for tensor, following in pairwise(in_order):
        if tensor.byte_offset + tensor.num_bytes > following.byte_offset:
            raise damaged(path, f"tensor {shown(following.name)} overlaps another")
