"""Writes tiny models of each family as GGUF files and as folders, with independent writers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from gguf import GGMLQuantizationType, GGUFWriter, quants
from safetensors.torch import save_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 64, 96, 2, 4, 2, 16
TOKENS = [f"t{index}" for index in range(30)] + ["<|im_start|>", "<|im_end|>"]
TOKEN_TYPES = [1] * 30 + [3, 3]
ROWS = len(TOKENS)


def layer_shapes(architecture: str) -> dict[str, tuple[int, ...]]:
    """HF's names of one layer's tensors."""
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (HIDDEN,),
        "self_attn.q_proj.weight": (q, HIDDEN),
        "self_attn.k_proj.weight": (kv, HIDDEN),
        "self_attn.v_proj.weight": (kv, HIDDEN),
        "self_attn.o_proj.weight": (HIDDEN, q),
        "post_attention_layernorm.weight": (HIDDEN,),
        "mlp.gate_proj.weight": (FFN, HIDDEN),
        "mlp.up_proj.weight": (FFN, HIDDEN),
        "mlp.down_proj.weight": (HIDDEN, FFN),
    }
    if architecture == "qwen2":
        for name, size in (("q", q), ("k", kv), ("v", kv)):
            shapes[f"self_attn.{name}_proj.bias"] = (size,)
    if architecture == "qwen3":
        shapes |= {f"self_attn.{name}_norm.weight": (HEAD_DIM,) for name in ("q", "k")}
    return shapes


def weights(architecture: str, *, tied: bool = True) -> dict[str, torch.Tensor]:
    """Random weights under HF's names."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (ROWS, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    if not tied:
        shapes["lm_head.weight"] = (ROWS, HIDDEN)
    for layer in range(LAYERS):
        inner = layer_shapes(architecture)
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in inner.items()}
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


# -------------------------------------------------------------------------------------------- GGUF

GGUF_PARTS = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers": "blk",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    for part, replacement in GGUF_PARTS.items():
        name = name.replace(part, replacement)
    return name


def adjacent_pairs(weight: torch.Tensor) -> torch.Tensor:
    """Rows of q or k as converters of architecture llama store them."""
    halves = weight.view(-1, 2, HEAD_DIM // 2, weight.shape[1])
    return halves.transpose(1, 2).reshape(weight.shape)


@dataclass
class GgufParts:
    """What a test may alter before the file is written."""

    architecture: str
    tensors: dict[str, np.ndarray]
    kinds: dict[str, GGMLQuantizationType]
    metadata: dict[str, Any]
    tokens: list[str] | None
    alignment: int = 32


def gguf_parts(architecture: str = "llama", *, tied: bool = True) -> GgufParts:
    tensors = {}
    for name, weight in weights(architecture, tied=tied).items():
        permuted = architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight"))
        tensors[gguf_name(name)] = (adjacent_pairs(weight) if permuted else weight).numpy()
    prefix = architecture + "."
    metadata = {
        "general.name": "Tiny",
        prefix + "block_count": LAYERS,
        prefix + "embedding_length": HIDDEN,
        prefix + "feed_forward_length": FFN,
        prefix + "context_length": 512,
        prefix + "attention.head_count": HEADS,
        prefix + "attention.head_count_kv": KV_HEADS,
        prefix + "attention.layer_norm_rms_epsilon": 1e-5,
        prefix + "rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.bos_token_id": 30,
        "tokenizer.ggml.eos_token_id": 31,
        "tokenizer.chat_template": "{{ messages }}",
    }
    return GgufParts(architecture, tensors, {}, metadata, TOKENS)


def write_gguf(path: Path, parts: GgufParts) -> Path:
    writer = GGUFWriter(path, parts.architecture)
    writer.add_custom_alignment(parts.alignment)
    for key, value in parts.metadata.items():
        _adder(writer, value)(key, value)
    if parts.tokens is not None:
        writer.add_token_list(parts.tokens)
        writer.add_token_types(TOKEN_TYPES[: len(parts.tokens)])
        writer.add_token_merges(["t 0"])
    for name, array in parts.tensors.items():
        kind = parts.kinds.get(name, GGMLQuantizationType.F32)
        writer.add_tensor(name, quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _adder(writer: GGUFWriter, value: object) -> Callable[[str, Any], None]:
    if isinstance(value, bool):
        return writer.add_bool
    if isinstance(value, int):
        return writer.add_uint32
    if isinstance(value, float):
        return writer.add_float32
    return writer.add_array if isinstance(value, list) else writer.add_string


def write_split(folder: Path, count: int) -> list[Path]:
    """A llama model in ``count`` parts, metadata in the first."""
    parts = gguf_parts()
    names = list(parts.tensors)
    paths = []
    for number in range(count):
        chosen = {name: parts.tensors[name] for name in names[number::count]}
        first = number == 0
        metadata = dict(parts.metadata) if first else {}
        metadata |= {"split.no": number, "split.count": count, "split.tensors.count": len(names)}
        part = GgufParts("llama", chosen, {}, metadata, TOKENS if first else None)
        path = folder / f"tiny-{number + 1:05d}-of-{count:05d}.gguf"
        paths.append(write_gguf(path, part))
    return paths


# ------------------------------------------------------------------------------------------ folder


def hf_config(architecture: str = "llama", **changes: Any) -> dict[str, Any]:
    config = {
        "model_type": architecture,
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": 512,
        "vocab_size": ROWS,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "eos_token_id": 31,
    }
    return config | changes


def write_folder(
    folder: Path,
    config: dict[str, Any] | None = None,
    tensors: dict[str, torch.Tensor] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Path:
    folder.mkdir(exist_ok=True)
    config = config or hf_config()
    tied = bool(config["tie_word_embeddings"])
    if tensors is None:
        tensors = weights(config["model_type"], tied=tied)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    save_file({k: v.to(dtype) for k, v in tensors.items()}, folder / "model.safetensors")
    return folder
