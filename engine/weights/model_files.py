"""Opens a model, whatever it is stored as: one view with canonical names for the engine."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.engine.errors import UserError
from hearth.engine.weights.files import PICKLE_SUFFIXES, pickle_refused, shown, unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hearth.engine.model.config import ModelConfig
    from hearth.engine.text.data import TextData
    from hearth.engine.weights.entries import WeightEntry


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """An opened model. ``fingerprint`` changes with the content: see ``fingerprint_of``."""

    name: str
    path: Path
    config: ModelConfig
    tensors: Mapping[str, WeightEntry]
    text: TextData
    fingerprint: str

    @property
    def weight_bytes(self) -> int:
        return sum(entry.num_bytes for entry in self.tensors.values())

    @property
    def num_parameters(self) -> int:
        return sum(math.prod(entry.shape) for entry in self.tensors.values())


def open_model(path: Path, *, device: str = "cpu") -> ModelFiles:
    """A GGUF file or a folder with config.json and safetensors; checked against its config.

    ``path`` may also be a synthetic model's name (``shapes.synthetic_path``): its weights are made
    on ``device``, while files are mapped into host memory whatever it says.
    Raises UserError or MachineError with a sentence that names the file.
    """
    from hearth.engine.weights import checks, folder, gguf_model, shapes, synthetic

    if shapes.is_synthetic(path):
        return synthetic.open_synthetic(*shapes.split_name(path), device=device)
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


def fingerprint_of(header: bytes, tensors: Mapping[str, WeightEntry]) -> str:
    """Hash of the header and of samples of every tensor: the first and last 4 KiB.

    Reading gigabytes at every start is not wanted; two different published files differ in
    header, size or in the first bytes of some tensor.
    """
    digest = hashlib.blake2b(header, digest_size=16)
    for name in sorted(tensors):
        for what, stored in tensors[name].parts():
            raw = stored.flatten()
            digest.update(f"{name} {what} {raw.numel()}".encode())
            for sample in (raw[:4096], raw[-4096:]):
                digest.update(sample.numpy().tobytes())
    return digest.hexdigest()
