"""A GGUF file as ``ModelFiles``: architecture keys, tensor names, llama's row order."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import torch

from hearth.engine.errors import UserError
from hearth.engine.model.config import ARCHITECTURES, ModelConfig, RopeScaling
from hearth.engine.text.data import GgufText
from hearth.engine.weights.files import damaged
from hearth.engine.weights.gguf import GgufFile, GgufTensor, Value, open_gguf
from hearth.engine.weights.model_files import ModelFiles, TensorEntry, fingerprint_of

if TYPE_CHECKING:
    from pathlib import Path

LAYER_NAMES = {
    "attn_norm.weight": "attn_norm",
    "attn_q.weight": "q",
    "attn_k.weight": "k",
    "attn_v.weight": "v",
    "attn_output.weight": "o",
    "attn_q.bias": "q_bias",
    "attn_k.bias": "k_bias",
    "attn_v.bias": "v_bias",
    "attn_q_norm.weight": "q_norm",
    "attn_k_norm.weight": "k_norm",
    "ffn_norm.weight": "ffn_norm",
    "ffn_gate.weight": "gate",
    "ffn_up.weight": "up",
    "ffn_down.weight": "down",
}
TOP_NAMES = {
    "token_embd.weight": "token_embd",
    "output.weight": "output",
    "output_norm.weight": "output_norm",
    "rope_freqs.weight": "rope_freqs",
}
LAYER = re.compile(r"^blk\.(\d+)\.(.+)$")
SMALL_IDS = 1 << 31


def open_gguf_model(path: Path) -> ModelFiles:
    """Raises UserError for a damaged file, an unknown architecture or an unreadable format."""
    gguf = open_gguf(path)
    metadata = Metadata(gguf)
    config = read_config(metadata, gguf)
    tensors = _tensors(gguf, config)
    name = metadata.text("general.name", path.stem)
    first = next(iter(gguf.tensors.values())).file
    header = bytes(first.data[: gguf.header_bytes])
    return ModelFiles(name, path, config, tensors, _text(metadata), fingerprint_of(header, tensors))


class Metadata:
    """Typed access to a file's metadata; a wrong type is a damaged file, never a crash."""

    def __init__(self, gguf: GgufFile) -> None:
        self.path = gguf.path
        self._values = gguf.metadata

    def _get(self, key: str) -> Value | None:
        return self._values.get(key)

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._get(key)
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]  # some writers give one value a layer
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < SMALL_IDS:
            raise damaged(self.path, f"{key} is missing or no sensible number")
        return value

    def optional_integer(self, key: str) -> int | None:
        return self.integer(key) if self._get(key) is not None else None

    def real(self, key: str, default: float | None = None) -> float:
        value = self._get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise damaged(self.path, f"{key} is missing or no number")
        if not math.isfinite(value):
            raise damaged(self.path, f"{key} is not finite")
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise damaged(self.path, f"{key} is missing or no text")
        return value

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if self._get(key) is not None else None

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._get(key)
        return value if isinstance(value, bool) else default

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise damaged(self.path, f"{key} is missing or no list of texts")
        return tuple(str(item) for item in value)

    def integers(self, key: str) -> tuple[int, ...]:
        value = self._get(key)
        if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
            raise damaged(self.path, f"{key} is missing or no list of numbers")
        return tuple(item for item in value if isinstance(item, int))


def read_config(metadata: Metadata, gguf: GgufFile) -> ModelConfig:
    """ModelConfig from the architecture's keys."""
    architecture = metadata.text("general.architecture")
    if architecture not in ARCHITECTURES:
        raise UserError(
            f"{metadata.path.name} has architecture {architecture}, which Hearth cannot run yet.",
            action=f"Choose a model of one of these: {', '.join(ARCHITECTURES)}.",
        )
    key = architecture + "."
    heads = metadata.integer(key + "attention.head_count")
    hidden = metadata.integer(key + "embedding_length")
    embedding = gguf.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise damaged(metadata.path, "it has no token embeddings")
    try:
        return ModelConfig(
            architecture=architecture,
            hidden_size=hidden,
            intermediate_size=metadata.integer(key + "feed_forward_length"),
            num_hidden_layers=metadata.integer(key + "block_count"),
            num_attention_heads=heads,
            num_key_value_heads=metadata.integer(key + "attention.head_count_kv", heads),
            head_dim=metadata.integer(key + "attention.key_length", hidden // max(heads, 1)),
            vocab_size=embedding.shape[0],
            max_position_embeddings=metadata.integer(key + "context_length"),
            rms_norm_eps=metadata.real(key + "attention.layer_norm_rms_epsilon"),
            rope_theta=metadata.real(key + "rope.freq_base", 10000.0),
            rope_scaling=_rope_scaling(metadata, key),
            tie_word_embeddings="output.weight" not in gguf.tensors,
        )
    except AssertionError as error:
        raise damaged(metadata.path, f"its configuration is impossible ({error})") from error


def _rope_scaling(metadata: Metadata, key: str) -> RopeScaling | None:
    kind = metadata.text(key + "rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind not in ("linear", "yarn"):
        raise UserError(f"{metadata.path.name} uses rope scaling {kind}, which Hearth cannot run.")
    return RopeScaling(
        kind=kind,
        factor=metadata.real(key + "rope.scaling.factor", 1.0),
        original_max_position_embeddings=metadata.optional_integer(
            key + "rope.scaling.original_context_length"
        ),
    )


def _tensors(gguf: GgufFile, config: ModelConfig) -> dict[str, TensorEntry]:
    entries: dict[str, TensorEntry] = {}
    for tensor in gguf.tensors.values():
        name = _canonical(tensor.name)
        if name is not None:
            entries[name] = TensorEntry(
                name, tensor.shape, tensor.ggml_type, tensor.raw(), _row_order(name, tensor, config)
            )
    return entries


def _canonical(name: str) -> str | None:
    """The engine's name of a GGUF tensor; None for one that it does not use."""
    match = LAYER.match(name)
    if match is None:
        return TOP_NAMES.get(name)
    inner = LAYER_NAMES.get(match[2])
    return f"layers.{int(match[1])}.{inner}" if inner else None


def _row_order(name: str, tensor: GgufTensor, config: ModelConfig) -> torch.Tensor | None:
    """Architecture llama stores q and k with adjacent rotary pairs: row 2 i + s of a head is row
    s * D / 2 + i of the published order, which the engine wants back. Whole rows move, so packed
    data can follow."""
    if config.architecture != "llama" or name.rsplit(".", 1)[-1] not in ("q", "k"):
        return None
    if tensor.shape[0] % config.head_dim:
        return None  # a wrong shape, which check_tensors names
    order = torch.arange(tensor.shape[0]).view(-1, config.head_dim // 2, 2)
    return order.transpose(1, 2).flatten()


def _text(metadata: Metadata) -> GgufText:
    key = "tokenizer.ggml."
    tokens = metadata.texts(key + "tokens")
    types = metadata.integers(key + "token_type") or (1,) * len(tokens)
    if len(types) != len(tokens):
        raise damaged(metadata.path, "its token list and token types differ in length")
    special = ("eos_token_id", "eot_token_id")
    ends = [metadata.optional_integer(key + name) for name in special]
    return GgufText(
        model=metadata.text(key + "model"),
        pre=metadata.text(key + "pre", "default"),
        tokens=tokens,
        token_types=types,
        merges=metadata.texts(key + "merges"),
        bos_id=metadata.optional_integer(key + "bos_token_id"),
        end_ids=tuple(end for end in ends if end is not None),
        add_bos=metadata.flag(key + "add_bos_token", default=False),
        chat_template=metadata.optional_text("tokenizer.chat_template"),
    )
