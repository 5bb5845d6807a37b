"""GGUF's tensor names as the engine's, by architecture."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hearth.engine.model.config import ModelConfig

ATTENTION_NAMES = {
    "attn_norm.weight": "attn_norm",
    "attn_q.weight": "q",
    "attn_k.weight": "k",
    "attn_v.weight": "v",
    "attn_output.weight": "o",
    "attn_q_norm.weight": "q_norm",
    "attn_k_norm.weight": "k_norm",
    "ffn_gate.weight": "gate",
    "ffn_up.weight": "up",
    "ffn_down.weight": "down",
}
DENSE_NAMES = ATTENTION_NAMES | {
    "attn_q.bias": "q_bias",
    "attn_k.bias": "k_bias",
    "attn_v.bias": "v_bias",
    "ffn_norm.weight": "ffn_norm",
}
HYBRID_NAMES = ATTENTION_NAMES | {
    "post_attention_norm.weight": "ffn_norm",
    "attn_qkv.weight": "in_qkv",
    "attn_gate.weight": "in_z",
    "ssm_beta.weight": "in_b",
    "ssm_alpha.weight": "in_a",
    "ssm_conv1d.weight": "conv",
    "ssm_a": "decay",
    "ssm_dt.bias": "dt_bias",
    "ssm_norm.weight": "gdn_norm",
    "ssm_out.weight": "out",
}
# nextn.embed_tokens and nextn.shared_head_head are missing on purpose: an MTP module with an
# embedding or a head of its own would draft badly with the model's, and nobody would know why.
# As unknown tensors they are refused.
NEXTN_NAMES = {
    "nextn.eh_proj.weight": "fc",
    "nextn.enorm.weight": "embedding_norm",
    "nextn.hnorm.weight": "hidden_norm",
    "nextn.shared_head_norm.weight": "norm",
}
TOP_NAMES = {
    "token_embd.weight": "token_embd",
    "output.weight": "output",
    "output_norm.weight": "output_norm",
}
DENSE_TOP_NAMES = TOP_NAMES | {"rope_freqs.weight": "rope_freqs"}
LAYER = re.compile(r"^blk\.(0|[1-9]\d{0,5})\.(.+)$")
UNUSED_NAMES = ("attn_rot_embd", "rope.freqs")  # derived values that old converters stored


def is_unused(name: str) -> bool:
    return any(unused in name for unused in UNUSED_NAMES)


def canonical_name(name: str, config: ModelConfig) -> str | None:
    """The engine's name of a GGUF tensor; None for one that a model like this does not have."""
    is_hybrid = config.architecture == "qwen3_5"
    match = LAYER.match(name)
    if match is None:
        return (TOP_NAMES if is_hybrid else DENSE_TOP_NAMES).get(name)
    layer = int(match[1])
    if config.num_mtp_layers and layer == config.num_hidden_layers:
        return _mtp_name(match[2])
    inner = (HYBRID_NAMES if is_hybrid else DENSE_NAMES).get(match[2])
    return f"layers.{layer}.{inner}" if inner else None


def _mtp_name(name: str) -> str | None:
    """The MTP module is the block behind the last layer."""
    if name in NEXTN_NAMES:
        return f"mtp.{NEXTN_NAMES[name]}"
    inner = HYBRID_NAMES.get(name)
    return f"mtp.layers.0.{inner}" if inner else None
