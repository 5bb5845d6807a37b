"""The parts of tiny GGUF files of the hybrid family, for tests that alter them."""

from __future__ import annotations

import numpy as np
import tiny_models as tiny

KEY_HEADS, VALUE_HEADS, LINEAR_DIM, LAYERS = 2, 6, 16, 4
KEY_SIZE, VALUE_SIZE = KEY_HEADS * LINEAR_DIM, VALUE_HEADS * LINEAR_DIM
Shapes = dict[str, tuple[int, ...]]
MLP: Shapes = {
    "attn_norm.weight": (tiny.HIDDEN,),
    "post_attention_norm.weight": (tiny.HIDDEN,),
    "ffn_gate.weight": (tiny.FFN, tiny.HIDDEN),
    "ffn_up.weight": (tiny.FFN, tiny.HIDDEN),
    "ffn_down.weight": (tiny.HIDDEN, tiny.FFN),
}
Q_SIZE, KV_SIZE = tiny.HEADS * tiny.HEAD_DIM, tiny.KV_HEADS * tiny.HEAD_DIM
FULL: Shapes = MLP | {
    "attn_q.weight": (2 * Q_SIZE, tiny.HIDDEN),
    "attn_k.weight": (KV_SIZE, tiny.HIDDEN),
    "attn_v.weight": (KV_SIZE, tiny.HIDDEN),
    "attn_output.weight": (tiny.HIDDEN, Q_SIZE),
    "attn_q_norm.weight": (tiny.HEAD_DIM,),
    "attn_k_norm.weight": (tiny.HEAD_DIM,),
}
MTP: Shapes = FULL | {
    "nextn.eh_proj.weight": (tiny.HIDDEN, 2 * tiny.HIDDEN),
    "nextn.enorm.weight": (tiny.HIDDEN,),
    "nextn.hnorm.weight": (tiny.HIDDEN,),
    "nextn.shared_head_norm.weight": (tiny.HIDDEN,),
}


def linear_shapes(value_heads: int) -> Shapes:
    value_size = value_heads * LINEAR_DIM
    return MLP | {
        "attn_qkv.weight": (2 * KEY_SIZE + value_size, tiny.HIDDEN),
        "attn_gate.weight": (value_size, tiny.HIDDEN),
        "ssm_beta.weight": (value_heads, tiny.HIDDEN),
        "ssm_alpha.weight": (value_heads, tiny.HIDDEN),
        "ssm_conv1d.weight": (2 * KEY_SIZE + value_size, 4),
        "ssm_a": (value_heads,),
        "ssm_dt.bias": (value_heads,),
        "ssm_norm.weight": (LINEAR_DIM,),
        "ssm_out.weight": (tiny.HIDDEN, value_size),
    }


def parts(*, value_heads: int = VALUE_HEADS) -> tiny.GgufParts:
    """Three linear layers, one of full attention, and the MTP module; tied embeddings."""
    shapes: Shapes = {"token_embd.weight": (tiny.ROWS, tiny.HIDDEN), "output_norm.weight": (64,)}
    blocks = [linear_shapes(value_heads)] * (LAYERS - 1) + [FULL, MTP]
    for block, inner in enumerate(blocks):
        shapes |= {f"blk.{block}.{name}": shape for name, shape in inner.items()}
    random = np.random.default_rng(5)
    tensors = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    key = "qwen35."
    metadata = {
        "general.name": "Tiny hybrid",
        key + "block_count": LAYERS + 1,
        key + "nextn_predict_layers": 1,
        key + "embedding_length": tiny.HIDDEN,
        key + "feed_forward_length": tiny.FFN,
        key + "context_length": 512,
        key + "attention.head_count": tiny.HEADS,
        key + "attention.head_count_kv": tiny.KV_HEADS,
        key + "attention.key_length": tiny.HEAD_DIM,
        key + "attention.value_length": tiny.HEAD_DIM,
        key + "attention.layer_norm_rms_epsilon": 1e-5,
        key + "rope.freq_base": 1e7,
        key + "rope.dimension_count": 8,
        key + "rope.dimension_sections": [2, 1, 1, 0],
        key + "full_attention_interval": LAYERS,
        key + "ssm.conv_kernel": 4,
        key + "ssm.state_size": LINEAR_DIM,
        key + "ssm.group_count": KEY_HEADS,
        key + "ssm.time_step_rank": value_heads,
        key + "ssm.inner_size": value_heads * LINEAR_DIM,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.eos_token_id": 31,
    }
    return tiny.GgufParts("qwen35", tensors, {}, metadata, tiny.TOKENS)
