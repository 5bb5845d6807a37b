"""Opens a model, whatever it is stored as: one view with canonical names for the engine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.engine.errors import UserError
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
        return sum(_product(entry.shape) for entry in self.tensors.values())


def open_model(path: Path) -> ModelFiles:
    """A GGUF file or a folder with config.json and safetensors; checked against its config.

    Raises UserError or MachineError with a sentence that names the file.
    """
    from hearth.engine.weights import folder, gguf_model

    if path.is_dir():
        files = folder.open_folder(path)
    elif path.suffix in (".bin", ".pt", ".pth", ".ckpt", ".pkl"):
        raise UserError(
            f"{path.name} is a pickle file, which could run code; Hearth does not open those.",
            action="Use the model's safetensors or GGUF files.",
        )
    elif path.suffix == ".safetensors":
        raise UserError(
            f"{path.name} alone has no configuration.",
            action="Choose the folder that also holds config.json and tokenizer.json.",
        )
    else:
        files = gguf_model.open_gguf_model(path)
    check_tensors(files)
    return files


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Canonical name to shape of every tensor that the configuration needs."""
    hidden, ffn = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (config.vocab_size, hidden),
        "output_norm": (hidden,),
    }
    if not config.tie_word_embeddings:
        shapes["output"] = (config.vocab_size, hidden)
    for layer in range(config.num_hidden_layers):
        prefix = f"layers.{layer}."
        shapes |= {
            prefix + "attn_norm": (hidden,),
            prefix + "q": (config.q_size, hidden),
            prefix + "k": (config.kv_size, hidden),
            prefix + "v": (config.kv_size, hidden),
            prefix + "o": (hidden, config.q_size),
            prefix + "ffn_norm": (hidden,),
            prefix + "gate": (ffn, hidden),
            prefix + "up": (ffn, hidden),
            prefix + "down": (hidden, ffn),
        }
        if config.attention_bias:
            sizes = {"q": config.q_size, "k": config.kv_size, "v": config.kv_size}
            shapes |= {f"{prefix}{name}_bias": (size,) for name, size in sizes.items()}
        if config.qk_norm:
            shapes |= {f"{prefix}{name}_norm": (config.head_dim,) for name in ("q", "k")}
    return shapes


def check_tensors(files: ModelFiles) -> None:
    """Every tensor is there with its shape; raises UserError naming the first that is not."""
    for name, shape in expected_shapes(files.config).items():
        entry = files.tensors.get(name)
        if entry is None:
            raise UserError(
                f"{files.path.name} lacks the tensor {name}.",
                action="Download the model again; a part seems to be missing.",
            )
        if entry.shape != shape:
            raise UserError(
                f"{files.path.name} has {name} with shape {entry.shape}, but its configuration "
                f"needs {shape}.",
                action="Download the model again.",
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


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
