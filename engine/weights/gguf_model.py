"""A GGUF file as ``ModelFiles``: architecture keys, tensor names, llama's row order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from hearth.engine.errors import UserError
from hearth.engine.model.config import ARCHITECTURES, ModelConfig, RopeScaling
from hearth.engine.text.data import GgufText
from hearth.engine.weights.checks import unknown_architecture, unknown_rope, unknown_tensor
from hearth.engine.weights.entries import TensorEntry, WeightEntry
from hearth.engine.weights.files import damaged, shown
from hearth.engine.weights.gguf import GgufFile, GgufTensor, open_gguf
from hearth.engine.weights.metadata import Metadata
from hearth.engine.weights.model_files import ModelFiles, fingerprint_of

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
LAYER = re.compile(r"^blk\.(0|[1-9]\d{0,5})\.(.+)$")
UNUSED_NAMES = ("attn_rot_embd", "rope.freqs")  # derived values that old converters stored
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


def read_config(metadata: Metadata, gguf: GgufFile) -> ModelConfig:
    """ModelConfig from the architecture's keys."""
    architecture = metadata.text("general.architecture")
    if architecture not in ARCHITECTURES:
        raise unknown_architecture(metadata.path, architecture)
    key = architecture + "."
    heads = metadata.integer(key + "attention.head_count")
    hidden = metadata.integer(key + "embedding_length")
    head_dim = metadata.integer(key + "attention.key_length", hidden // max(heads, 1))
    _refuse_variants(metadata, key, head_dim)
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
            head_dim=head_dim,
            vocab_size=embedding.shape[0],
            max_position_embeddings=metadata.integer(key + "context_length"),
            rms_norm_eps=metadata.real(key + "attention.layer_norm_rms_epsilon"),
            rope_theta=metadata.real(key + "rope.freq_base", 10000.0),
            rope_scaling=_rope_scaling(metadata, key + "rope.scaling."),
            tie_word_embeddings="output.weight" not in gguf.tensors,
        )
    except ValueError as error:
        raise damaged(metadata.path, f"its configuration is impossible ({error})") from error


def _refuse_variants(metadata: Metadata, key: str, head_dim: int) -> None:
    """What these keys may say, but the decoder does not do: refused, never computed wrongly."""
    variants = {
        "a mixture of experts": metadata.integer(key + "expert_count", 0) != 0,
        "partly rotated heads": metadata.integer(key + "rope.dimension_count", head_dim)
        != head_dim,
        "value heads of another size": metadata.integer(key + "attention.value_length", head_dim)
        != head_dim,
    }
    for variant, found in variants.items():
        if found:
            raise UserError(
                f"{shown(metadata.path.name)} has {variant}, which Hearth cannot run yet.",
                action="Choose another model.",
            )


def _rope_scaling(metadata: Metadata, key: str) -> RopeScaling | None:
    kind = metadata.text(key + "type", "none")
    if kind == "none":
        return None
    if kind not in ("linear", "yarn") or metadata.real(key + "attn_factor", 1.0) != 1.0:
        raise unknown_rope(metadata.path, kind)
    original = metadata.optional_integer(key + "original_context_length")
    return RopeScaling(
        kind=kind,
        factor=metadata.real(key + "factor", 1.0),
        original_max_position_embeddings=original or None,
        beta_fast=metadata.real(key + "yarn_beta_fast", 32.0),
        beta_slow=metadata.real(key + "yarn_beta_slow", 1.0),
    )


def _tensors(gguf: GgufFile, config: ModelConfig) -> dict[str, WeightEntry]:
    entries: dict[str, WeightEntry] = {}
    for tensor in gguf.tensors.values():
        name = _canonical(tensor.name)
        if name is not None:
            entries[name] = TensorEntry(
                name, tensor.shape, tensor.ggml_type, tensor.raw(), _row_order(name, tensor, config)
            )
        elif not any(unused in tensor.name for unused in UNUSED_NAMES):
            raise unknown_tensor(tensor.file.path, tensor.name, config.architecture)
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
