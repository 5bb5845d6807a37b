"""ModelConfig from GGUF metadata, and refusals of what it says that Hearth cannot run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearth.engine.errors import UserError
from hearth.engine.model.config import ModelConfig, RopeScaling
from hearth.engine.weights.checks import unknown_architecture, unknown_rope
from hearth.engine.weights.files import damaged, shown
from hearth.engine.weights.gguf_hybrid import hybrid_config, num_heads, read_layers

if TYPE_CHECKING:
    from hearth.engine.weights.gguf import GgufFile
    from hearth.engine.weights.metadata import Metadata

ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen35": "qwen3_5"}
HYBRID = "qwen35"


def read_config(metadata: Metadata, gguf: GgufFile) -> ModelConfig:
    """Raises UserError for an unknown architecture and for keys that cannot be."""
    name = metadata.text("general.architecture")
    if name not in ARCHITECTURES:
        raise unknown_architecture(metadata.path, name)
    try:
        return _hybrid(metadata, gguf) if name == HYBRID else _dense(metadata, gguf, name)
    except ValueError as error:
        raise damaged(metadata.path, f"its configuration is impossible ({error})") from error


def _dense(metadata: Metadata, gguf: GgufFile, name: str) -> ModelConfig:
    key = name + "."
    heads = metadata.integer(key + "attention.head_count")
    kv_heads = metadata.integer(key + "attention.head_count_kv", heads)
    config = _base(metadata, gguf, name, heads, kv_heads)
    turned = metadata.integer(key + "rope.dimension_count", config.head_dim)
    if turned != config.head_dim:
        raise _variant(metadata, "partly rotated heads")
    return config


def _hybrid(metadata: Metadata, gguf: GgufFile) -> ModelConfig:
    key = HYBRID + "."
    layers = read_layers(metadata, key)
    heads = num_heads(metadata, key + "attention.head_count", layers)
    kv_heads = num_heads(metadata, key + "attention.head_count_kv", layers)
    base = _base(metadata, gguf, HYBRID, heads, kv_heads)
    return hybrid_config(metadata, key, gguf, base, layers)


def _base(metadata: Metadata, gguf: GgufFile, name: str, heads: int, kv_heads: int) -> ModelConfig:
    """What all architectures say under the same keys."""
    key = name + "."
    hidden = metadata.integer(key + "embedding_length")
    head_dim = metadata.integer(key + "attention.key_length", hidden // max(heads, 1))
    if metadata.integer(key + "expert_count", 0) != 0:
        raise _variant(metadata, "a mixture of experts")
    if metadata.integer(key + "attention.value_length", head_dim) != head_dim:
        raise _variant(metadata, "value heads of another size")
    embedding = gguf.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise damaged(metadata.path, "it has no token embeddings")
    return ModelConfig(
        architecture=ARCHITECTURES[name],
        hidden_size=hidden,
        intermediate_size=metadata.integer(key + "feed_forward_length"),
        num_hidden_layers=metadata.integer(key + "block_count"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=embedding.shape[0],
        max_position_embeddings=metadata.integer(key + "context_length"),
        rms_norm_eps=metadata.real(key + "attention.layer_norm_rms_epsilon"),
        rope_theta=metadata.real(key + "rope.freq_base", 10000.0),
        rope_scaling=_rope_scaling(metadata, key + "rope.scaling."),
        tie_word_embeddings="output.weight" not in gguf.tensors,
    )


def _variant(metadata: Metadata, variant: str) -> UserError:
    """What a key may say, but the decoder does not do: refused, never computed wrongly."""
    return UserError(
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
