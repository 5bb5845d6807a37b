"""Random hybrid checkpoints that transformers itself builds, runs and writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

if TYPE_CHECKING:
    from pathlib import Path

VOCAB = 320  # 256 bytes, control tokens and unused rows
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
# Key and value heads of the two kinds of layers, head sizes and depths that differ.
VARIANTS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "equal heads, tied": {
        "linear_num_value_heads": 2,
        "linear_value_head_dim": 32,
        "tie_word_embeddings": True,
    },
    "wide": {
        "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "head_dim": 64,
        "num_key_value_heads": 1,
        "linear_key_head_dim": 32,
        "linear_num_value_heads": 6,
    },
}


def text_config(**changes: Any) -> Qwen3_5TextConfig:
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "max_position_embeddings": 2048,
        "eos_token_id": 256,
        "tie_word_embeddings": False,
        "num_mtp_layers": 1,
        "mtp_layer_types": ["full_attention"],
    }
    head_dim = changes.get("head_dim", sizes["head_dim"])
    rope = {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
        "mrope_section": [head_dim // 8 - 2, 1, 1],
        "mrope_interleaved": True,
    }
    return Qwen3_5TextConfig(**(sizes | {"rope_parameters": rope} | changes))


def random_model(seed: int = 3, **changes: Any) -> Any:
    """Weights large enough that what was read decides what comes; norms away from their zeros."""
    torch.manual_seed(seed)
    model = Qwen3_5ForCausalLM(text_config(**changes)).float().eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith(("norm.weight", "dt_bias")):
                value.add_(torch.randn_like(value) * 0.2)
            elif "conv1d" in name:
                value.normal_(0.0, 0.6)
            elif value.dim() == 2:
                gain = 6.0 if "embed_tokens" in name else 2.0
                value.normal_(0.0, gain / value.shape[1] ** 0.5)
    return model


def save(model: Any, folder: Path, *, with_mtp: bool = True) -> Path:
    """The model's folder with a byte-level tokenizer, and a random MTP module."""
    model.save_pretrained(folder)
    write_tokenizer(folder)
    if with_mtp:
        file = folder / "model.safetensors"
        save_file(load_file(file) | mtp_tensors(model.config), file, {"format": "pt"})
    return folder


def mtp_tensors(config: Qwen3_5TextConfig) -> dict[str, torch.Tensor]:
    """Under their published names."""
    hidden, ffn = config.hidden_size, config.intermediate_size
    q_size = config.num_attention_heads * config.head_dim
    kv_size = config.num_key_value_heads * config.head_dim
    matrices = {
        "fc": (hidden, 2 * hidden),
        "layers.0.self_attn.q_proj": (2 * q_size, hidden),
        "layers.0.self_attn.k_proj": (kv_size, hidden),
        "layers.0.self_attn.v_proj": (kv_size, hidden),
        "layers.0.self_attn.o_proj": (hidden, q_size),
        "layers.0.mlp.gate_proj": (ffn, hidden),
        "layers.0.mlp.up_proj": (ffn, hidden),
        "layers.0.mlp.down_proj": (hidden, ffn),
    }
    vectors = {
        "norm": hidden,
        "pre_fc_norm_embedding": hidden,
        "pre_fc_norm_hidden": hidden,
        "layers.0.input_layernorm": hidden,
        "layers.0.post_attention_layernorm": hidden,
        "layers.0.self_attn.q_norm": config.head_dim,
        "layers.0.self_attn.k_norm": config.head_dim,
    }
    torch.manual_seed(12)
    result = {n: torch.randn(shape) * 2 / shape[1] ** 0.5 for n, shape in matrices.items()}
    result |= {name: torch.randn(size) * 0.2 for name, size in vectors.items()}
    return {f"mtp.{name}.weight": value for name, value in result.items()}


def write_tokenizer(folder: Path) -> None:
    """256 bytes, then the control tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    names = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in CONTROL])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "config.json").read_text())
    assert config["vocab_size"] >= tokenizer.get_vocab_size(), "every token has a row"
