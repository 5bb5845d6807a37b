"""Tiny random checkpoints of the hybrid family, as folders, and their tensors in float64."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

from hearth.engine.weights.model_files import open_model

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from hearth.engine.model.config import ModelConfig

SIZES: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
    "max_position_embeddings": 512,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "initializer_range": 0.2,
    "num_mtp_layers": 1,
    "mtp_layer_types": ["full_attention"],
}
ROPE = {
    "rope_type": "default",
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.5,
    "mrope_section": [3, 3, 2],
    "mrope_interleaved": True,
}


def save_tiny_hybrid(folder: Path, *, tied: bool = False, **changes: Any) -> Path:
    """A checkpoint with an MTP module, written by transformers but for the module's own tensors."""
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    config = Qwen3_5TextConfig(**(SIZES | changes), rope_parameters=ROPE, tie_word_embeddings=tied)
    torch.manual_seed(7)
    model = Qwen3_5ForCausalLM(config).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith(("norm.weight", "dt_bias")):
                value.add_(torch.randn_like(value) * 0.3)
            if name.endswith("A_log"):
                value.uniform_(-3.0, 1.5)
    model.save_pretrained(folder)
    file = folder / "model.safetensors"
    save_file(load_file(file) | _mtp_tensors(config), file, metadata={"format": "pt"})
    vocabulary = {"model": {"type": "BPE", "vocab": {}, "merges": []}, "added_tokens": []}
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary))
    return folder


def _mtp_tensors(config: Any) -> dict[str, torch.Tensor]:
    """Under their published names."""
    hidden, ffn, size = config.hidden_size, config.intermediate_size, config.head_dim
    q, kv = config.num_attention_heads * size, config.num_key_value_heads * size
    shapes = {
        "fc": (hidden, 2 * hidden),
        "pre_fc_norm_embedding": (hidden,),
        "pre_fc_norm_hidden": (hidden,),
        "norm": (hidden,),
        "layers.0.input_layernorm": (hidden,),
        "layers.0.post_attention_layernorm": (hidden,),
        "layers.0.self_attn.q_proj": (2 * q, hidden),
        "layers.0.self_attn.k_proj": (kv, hidden),
        "layers.0.self_attn.v_proj": (kv, hidden),
        "layers.0.self_attn.o_proj": (hidden, q),
        "layers.0.self_attn.q_norm": (size,),
        "layers.0.self_attn.k_norm": (size,),
        "layers.0.mlp.gate_proj": (ffn, hidden),
        "layers.0.mlp.up_proj": (ffn, hidden),
        "layers.0.mlp.down_proj": (hidden, ffn),
    }
    generator = torch.Generator().manual_seed(8)
    return {
        f"mtp.{name}.weight": torch.randn(shape, generator=generator) * 0.2
        for name, shape in shapes.items()
    }


def float64_of(folder: Path) -> tuple[dict[str, np.ndarray], ModelConfig]:
    """The tensors of ``folder`` by canonical name, as the engine sees them."""
    files = open_model(folder)
    tensors = {name: entry.values().double().numpy() for name, entry in files.tensors.items()}
    return tensors, files.config
