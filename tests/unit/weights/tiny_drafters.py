"""Tiny random drafters as folders, under the names that published ones have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from hearth.engine.model.config import ModelConfig

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN, VOCAB, VALID, WINDOW, BLOCK, TAPS = 64, 300, 290, 12, 8, (0, 2, 3)
TARGET = ModelConfig(
    architecture="qwen3",
    hidden_size=HIDDEN,
    intermediate_size=96,
    num_hidden_layers=5,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    vocab_size=VOCAB,
    max_position_embeddings=512,
    rms_norm_eps=1e-6,
    rope_theta=1e7,
)
SLIDING, FULL = "sliding_attention", "full_attention"


def dflash2_config(**changes: Any) -> dict[str, Any]:
    """Keys as the published drafter has them."""
    return {
        "architectures": ["DFlash2DraftModel"],
        "model_type": "qwen3",
        "hidden_size": HIDDEN,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": VOCAB,
        "layer_types": [SLIDING] * 3,
        "sliding_window": WINDOW,
        "use_sliding_window": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "rms_norm_eps": 1e-6,
        "is_causal": False,
        "attention_bias": False,
        "num_target_layers": 5,
        "dflash_config": {
            "block_size": BLOCK,
            "target_layer_ids": list(TAPS),
            "mask_token_id": 287,
            "conv_kernel_size": 2,
            "conv_group_size": 16,
            "selector_rank": 8,
            "selector_top_k": 6,
        },
    } | changes


def dflash_config(**changes: Any) -> dict[str, Any]:
    """The first version: no convolutions, no selector, nothing said about causality."""
    config = dflash2_config(architectures=["DFlashDraftModel"], block_size=16)
    config["dflash_config"] = {"target_layer_ids": list(TAPS), "mask_token_id": 287}
    config["layer_types"] = [SLIDING, SLIDING, FULL]
    del config["is_causal"]
    return config | changes


def drafter_tensors(config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Under their published names, bf16 but for the norms."""
    hidden, ffn, size = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    inner = config["dflash_config"]
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, len(inner["target_layer_ids"]) * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    layer = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (q, hidden),
        "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.v_proj.weight": (kv, hidden),
        "self_attn.o_proj.weight": (hidden, q),
        "self_attn.q_norm.weight": (size,),
        "self_attn.k_norm.weight": (size,),
        "mlp.gate_proj.weight": (ffn, hidden),
        "mlp.up_proj.weight": (ffn, hidden),
        "mlp.down_proj.weight": (hidden, ffn),
    }
    if "conv_kernel_size" in inner:
        taps, groups = inner["conv_kernel_size"], hidden // inner["conv_group_size"]
        for name in ("attention_conv", "mlp_conv"):
            layer[f"{name}.base_kernel"] = (2, taps, hidden)
            layer[f"{name}.kernel_projection.weight"] = (2 * taps * groups, hidden)
    for index in range(config["num_hidden_layers"]):
        shapes |= {f"layers.{index}.{name}": shape for name, shape in layer.items()}
    if "selector_rank" in inner:
        rank, vocab = inner["selector_rank"], config["vocab_size"]
        shapes["candidate_selector.hidden_projection.weight"] = (rank, hidden)
        shapes["candidate_selector.predecessor_codebook"] = (vocab, rank)
        shapes["candidate_selector.successor_codebook"] = (vocab, rank)
    generator = torch.Generator().manual_seed(5)
    return {name: _random(name, shape, generator) for name, shape in shapes.items()}


def _random(name: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Sizes at which every part is heard: norms around one, edges as large as logits."""
    values = torch.randn(shape, generator=generator)
    if len(shape) == 1:
        return 1.0 + 0.3 * values
    scale = 1.0 if "codebook" in name else 0.5 if "base_kernel" in name else shape[-1] ** -0.5
    return (values * scale).bfloat16()


def write_drafter(
    folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor] | None = None
) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors or drafter_tensors(config), folder / "model.safetensors")
    return folder
