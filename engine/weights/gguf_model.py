"""A GGUF file as ``ModelFiles``: entries under canonical names, llama's row order, tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hearth.engine.text.data import GgufText
from hearth.engine.weights.checks import unknown_tensor
from hearth.engine.weights.entries import TensorEntry, WeightEntry
from hearth.engine.weights.files import damaged, shown
from hearth.engine.weights.gguf import GgufFile, GgufTensor, open_gguf
from hearth.engine.weights.gguf_config import read_config
from hearth.engine.weights.gguf_names import canonical_name, is_unused
from hearth.engine.weights.gguf_scales import is_scale, with_scale
from hearth.engine.weights.metadata import Metadata
from hearth.engine.weights.model_files import ModelFiles, fingerprint_of

if TYPE_CHECKING:
    from pathlib import Path

    from hearth.engine.model.config import ModelConfig

MAX_NAME_CHARS = 100
# Generation must end at every end-of-turn token; files name one or two of a vocabulary's.
END_TEXTS = frozenset(
    ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>")
)
CONTROL = 3


def open_gguf_model(path: Path) -> ModelFiles:
    """Raises UserError for a damaged file, an unknown architecture or an unreadable format."""
    gguf = open_gguf(path)
    metadata = Metadata(gguf)
    config = read_config(metadata, gguf)
    tensors = _tensors(gguf, config)
    return ModelFiles(
        name=_name(metadata, path),
        path=path,
        config=config,
        tensors=tensors,
        text=_text(metadata, config.vocab_size),
        fingerprint=fingerprint_of(gguf.header, tensors),
    )


def _name(metadata: Metadata, path: Path) -> str:
    name = shown(metadata.text("general.name", "")[:MAX_NAME_CHARS]).strip()
    return name or path.stem


def _tensors(gguf: GgufFile, config: ModelConfig) -> dict[str, WeightEntry]:
    entries: dict[str, WeightEntry] = {}
    for tensor in gguf.tensors.values():
        name = canonical_name(tensor.name, config)
        if name is not None:
            entries[name] = _entry(gguf, tensor, name, config)
        elif not is_unused(tensor.name) and not is_scale(gguf, tensor.name):
            raise unknown_tensor(tensor.file.path, tensor.name, config.architecture)
    return entries


def _entry(gguf: GgufFile, tensor: GgufTensor, name: str, config: ModelConfig) -> WeightEntry:
    order = _row_order(name, tensor, config)
    entry = TensorEntry(name, tensor.shape, tensor.ggml_type, tensor.raw(), order)
    return with_scale(gguf, tensor, entry)


def _row_order(name: str, tensor: GgufTensor, config: ModelConfig) -> torch.Tensor | None:
    """Architecture llama stores q and k with adjacent rotary pairs: row 2 i + s of a head is row
    s * D / 2 + i of the published order, which the engine wants back. Whole rows move, so packed
    data can follow."""
    if config.architecture != "llama" or name.rsplit(".", 1)[-1] not in ("q", "k"):
        return None
    if len(tensor.shape) != 2 or tensor.shape[0] % config.head_dim:
        return None  # a wrong shape, which check_tensors names
    order = torch.arange(tensor.shape[0]).view(-1, config.head_dim // 2, 2)
    return order.transpose(1, 2).flatten()


def _text(metadata: Metadata, num_rows: int) -> GgufText:
    key = "tokenizer.ggml."
    tokens = metadata.texts(key + "tokens")
    types = metadata.integers(key + "token_type") or (1,) * len(tokens)
    if len(types) != len(tokens):
        raise damaged(metadata.path, "its token list and token types differ in length")
    if not 0 < len(tokens) <= num_rows:
        raise damaged(metadata.path, f"it lists {len(tokens)} tokens for {num_rows} embeddings")
    bos_id = metadata.optional_integer(key + "bos_token_id")
    return GgufText(
        model=metadata.text(key + "model"),
        pre=metadata.text(key + "pre", "default"),
        tokens=tokens,
        token_types=types,
        merges=metadata.texts(key + "merges"),
        bos_id=bos_id if bos_id is not None and bos_id < len(tokens) else None,
        end_ids=_end_ids(metadata, tokens, types),
        add_bos=metadata.flag(key + "add_bos_token", default=False),
        chat_template=metadata.optional_text("tokenizer.chat_template"),
    )


def _end_ids(
    metadata: Metadata, tokens: tuple[str, ...], types: tuple[int, ...]
) -> tuple[int, ...]:
    """The ids that the file names, then the vocabulary's other well-known ends."""
    named = [
        metadata.optional_integer(f"tokenizer.ggml.{end}_token_id") for end in ("eos", "eot", "eom")
    ]
    known = [
        index
        for index, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind == CONTROL and token in END_TEXTS
    ]
    ends = [end for end in named if end is not None and end < len(tokens)]
    return tuple(dict.fromkeys(ends + known))
