"""Opens a model, whatever it is stored as: one view with canonical names for the engine."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.engine.errors import UserError
from hearth.engine.weights.files import PICKLE_SUFFIXES, pickle_refused, shown, unreadable
from hearth.kernels import ggml_blocks, packing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from hearth.engine.model.config import ModelConfig
    from hearth.engine.text.data import TextData


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor under its canonical name.

    ``raw`` is uint8 [rows, row bytes] in ggml type ``ggml_type`` (floats are types too), a view of
    the mapped file. ``row_order`` int64 [rows]: the wanted order where the file has another.
    """

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    raw: torch.Tensor
    row_order: torch.Tensor | None = None

    @property
    def num_bytes(self) -> int:
        return self.raw.numel()

    def packed(self) -> packing.PackedLinear:
        return packing.pack_gguf(self.raw, self.ggml_type, self.row_order)

    def values(self) -> torch.Tensor:
        """float32 of ``shape``."""
        values = ggml_blocks.dequantise(self.raw, self.ggml_type)
        if self.row_order is not None:
            values = values[self.row_order]
        return values.reshape(self.shape)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """An opened model. ``fingerprint`` changes with the content: see ``fingerprint_of``."""

    name: str
    path: Path
    config: ModelConfig
    tensors: Mapping[str, TensorEntry]
    text: TextData
    fingerprint: str

    @property
    def weight_bytes(self) -> int:
        return sum(entry.num_bytes for entry in self.tensors.values())

    @property
    def num_parameters(self) -> int:
        return sum(math.prod(entry.shape) for entry in self.tensors.values())


def open_model(path: Path) -> ModelFiles:
    """A GGUF file or a folder with config.json and safetensors; checked against its config.

    Raises UserError or MachineError with a sentence that names the file.
    """
    from hearth.engine.weights import checks, folder, gguf_model

    try:
        is_folder = path.is_dir()
    except OSError as error:
        raise unreadable(path, error) from error
    if is_folder:
        files = folder.open_folder(path)
    else:
        _refuse_by_suffix(path)
        files = gguf_model.open_gguf_model(path)
    checks.check_tensors(files)
    return files


def _refuse_by_suffix(path: Path) -> None:
    if path.suffix.lower() in PICKLE_SUFFIXES:
        raise pickle_refused(path)
    if path.suffix.lower() in (".safetensors", ".json"):
        raise UserError(
            f"{shown(path.name)} alone is not a whole model.",
            action="Choose the folder that holds it with config.json and tokenizer.json.",
        )


def fingerprint_of(header: bytes, tensors: Mapping[str, TensorEntry]) -> str:
    """Hash of the header and of samples of every tensor: the first and last 4 KiB.

    Reading gigabytes at every start is not wanted; two different published files differ in
    header, size or in the first bytes of some tensor.
    """
    digest = hashlib.blake2b(header, digest_size=16)
    for name in sorted(tensors):
        raw = tensors[name].raw.flatten()
        digest.update(f"{name} {tensors[name].ggml_type} {raw.numel()}".encode())
        for sample in (raw[:4096], raw[-4096:]):
            digest.update(sample.numpy().tobytes())
    return digest.hexdigest()
