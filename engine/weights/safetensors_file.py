"""The safetensors container, mapped and bounds-checked.

The format is a length, a JSON header and the data (huggingface/safetensors). The library's reader
gives tensors; here the header is checked before anything is believed, and data stay views.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hearth.engine.errors import UserError
from hearth.engine.weights.files import MappedFile, Reader, damaged, map_file
from hearth.kernels import ggml_blocks

if TYPE_CHECKING:
    from pathlib import Path

    import torch

MAX_HEADER_BYTES = 100_000_000  # the limit of the format's own library
DTYPES = {"F32": ggml_blocks.F32, "F16": ggml_blocks.F16, "BF16": ggml_blocks.BF16}
MAX_DIMS = 8


@dataclass(frozen=True, slots=True)
class SafeTensor:
    """Where one tensor lies; floats only, under ggml's ids so that one code path packs them."""

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


def open_safetensors(path: Path) -> dict[str, SafeTensor]:
    """Tensors by name. Raises UserError for a damaged header or a dtype that is no float."""
    reader = Reader(map_file(path))
    length = reader.count()
    if length > min(MAX_HEADER_BYTES, reader.file.size):
        raise damaged(path, "its header is longer than the file")
    header = _header(path, reader.take(length))
    data_start = reader.byte_offset
    tensors = {
        name: _tensor(reader.file, name, entry, data_start)
        for name, entry in header.items()
        if name != "__metadata__"
    }
    _refuse_overlap(path, tensors)
    return tensors


def _header(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        header = json.loads(raw, object_pairs_hook=lambda pairs: _unique(path, pairs))
    except (ValueError, RecursionError) as error:
        raise damaged(path, "its header is not JSON") from error
    if not isinstance(header, dict):
        raise damaged(path, "its header is not a JSON object")
    return header


def _unique(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise damaged(path, "a name occurs twice in its header")
    return result


def _tensor(file: MappedFile, name: str, entry: object, data_start: int) -> SafeTensor:
    if not isinstance(entry, dict):
        raise damaged(file.path, f"tensor {name} is not described")
    dtype = entry.get("dtype")
    if dtype not in DTYPES:
        raise UserError(
            f"{file.path.name} stores {name} as {dtype}, which Hearth cannot read yet.",
            action="Choose a bf16 or a GGUF version of the model.",
        )
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    if not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2:
        raise damaged(file.path, f"tensor {name} has no sensible shape or place")
    start, stop = offsets
    elements = 1
    for size in shape:
        elements *= size
    num_bytes = elements * ggml_blocks.LAYOUTS[DTYPES[dtype]].num_bytes
    if stop - start != num_bytes or num_bytes == 0 or data_start + stop > file.size:
        raise damaged(file.path, f"tensor {name} does not fit its place in the file")
    return SafeTensor(name, tuple(shape), DTYPES[dtype], file, data_start + start, num_bytes)


def _are_counts(values: Any) -> bool:
    """True for a short list of non-negative integers."""
    return (
        isinstance(values, list)
        and 0 < len(values) <= MAX_DIMS
        and all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values)
    )


def _refuse_overlap(path: Path, tensors: dict[str, SafeTensor]) -> None:
    end = 0
    for tensor in sorted(tensors.values(), key=lambda t: t.byte_offset):
        if tensor.byte_offset < end:
            raise damaged(path, f"tensor {tensor.name} overlaps another")
        end = tensor.byte_offset + tensor.num_bytes
