"""One tiny model of the hybrid family as a folder and as a GGUF file.

The conversion is written from the format's description; ``test_gguf_qwen35`` compares it with
llama.cpp's own converter where that is at hand.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter, quants
from gguf.constants import GGML_QUANT_SIZES
from safetensors.torch import save_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

# Three value heads a key head: with two of two the order would be its own inverse.
KEY_HEADS, VALUE_HEADS, LINEAR_DIM = 2, 6, 128
HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, ROWS = 256, 512, 4, 2, 64, 320
LAYER_TYPES = ["linear_attention"] * 3 + ["full_attention"]
LAYERS = len(LAYER_TYPES)
SECTION = [4, 2, 2]
KEY_ROWS = 2 * KEY_HEADS * LINEAR_DIM  # of q and k in front of v
MTP_SHAPES = {
    "fc.weight": (HIDDEN, 2 * HIDDEN),
    "norm.weight": (HIDDEN,),
    "pre_fc_norm_embedding.weight": (HIDDEN,),
    "pre_fc_norm_hidden.weight": (HIDDEN,),
}
TOKENS = [f"t{index}" for index in range(ROWS - 3)] + ["<|im_start|>", "<|im_end|>", "[PAD319]"]
TOKEN_TYPES = [1] * (ROWS - 3) + [3, 3, 5]

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Stored:
    """A tensor as a GGUF file holds it: bytes of a type, or floats."""

    data: NDArray[Any]
    kind: Kind
    scale: float = 1.0

    def values(self) -> NDArray[np.float32]:
        """By the library's dequantiser."""
        return quants.dequantize(self.data, self.kind) * np.float32(self.scale)


def published() -> tuple[dict[str, Any], Tensors]:
    """config.json and weights, as transformers names and shapes them; MTP beside them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

        config = Qwen3_5TextConfig(
            vocab_size=ROWS, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS,
            num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM,
            linear_num_key_heads=KEY_HEADS, linear_num_value_heads=VALUE_HEADS,
            linear_key_head_dim=LINEAR_DIM, linear_value_head_dim=LINEAR_DIM,
            linear_conv_kernel_dim=4, layer_types=LAYER_TYPES, max_position_embeddings=512,
            tie_word_embeddings=False,
            rope_parameters={"rope_type": "default", "rope_theta": 1e7, "mrope_section": SECTION,
                             "mrope_interleaved": True, "partial_rotary_factor": 0.25},
        )  # fmt: skip
        shapes = {n: tuple(t.shape) for n, t in Qwen3_5ForCausalLM(config).state_dict().items()}
    full = f"model.layers.{LAYERS - 1}."
    for name in [name for name in shapes if name.startswith(full)]:
        shapes["mtp.layers.0." + name.removeprefix(full)] = shapes[name]
    shapes |= {"mtp." + name: shape for name, shape in MTP_SHAPES.items()}
    generator = torch.Generator().manual_seed(3)
    weights = {
        name: torch.randn(shape, generator=generator) / (shape[1] ** 0.5 if len(shape) == 2 else 4)
        for name, shape in shapes.items()
    }
    raw_config = config.to_dict() | {
        "architectures": ["Qwen3_5ForCausalLM"],
        "mtp_num_hidden_layers": 1,
    }
    return raw_config, weights


# ---------------------------------------------------------------------------------------- to GGUF

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "lm_head.weight": "output.weight",
    "model.norm.weight": "output_norm.weight",
    "mtp.fc.weight": f"blk.{LAYERS}.nextn.eh_proj.weight",
    "mtp.pre_fc_norm_embedding.weight": f"blk.{LAYERS}.nextn.enorm.weight",
    "mtp.pre_fc_norm_hidden.weight": f"blk.{LAYERS}.nextn.hnorm.weight",
    "mtp.norm.weight": f"blk.{LAYERS}.nextn.shared_head_norm.weight",
}
INNER_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight",
    "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight",
}


def gguf_name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    prefix, rest = name.split("layers.", 1)
    layer, inner = rest.split(".", 1)
    block = LAYERS + int(layer) if prefix == "mtp." else int(layer)
    return f"blk.{block}.{INNER_NAMES[inner]}"


def tiled(size: int) -> torch.Tensor:
    """Published indexes in GGUF's order, of value heads with ``size`` elements each."""
    per_key = VALUE_HEADS // KEY_HEADS
    heads = [(j % KEY_HEADS) * per_key + j // KEY_HEADS for j in range(VALUE_HEADS)]
    return torch.cat([torch.arange(head * size, (head + 1) * size) for head in heads])


def reorder_heads(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Value heads from grouped to tiled."""
    inner = name.partition("linear_attn.")[2].removesuffix(".weight")
    if inner in ("in_proj_qkv", "conv1d"):
        return torch.cat((tensor[:KEY_ROWS], tensor[KEY_ROWS:][tiled(LINEAR_DIM)]))
    if inner == "in_proj_z":
        return tensor[tiled(LINEAR_DIM)]
    if inner in ("in_proj_b", "in_proj_a", "A_log", "dt_bias"):
        return tensor[tiled(1)]
    if inner == "out_proj":
        return tensor[:, tiled(LINEAR_DIM)]
    return tensor


def converted(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """A published tensor as GGUF files hold it."""
    tensor = reorder_heads(name, tensor)
    if name.endswith("A_log"):
        return -tensor.exp()
    if name.endswith("conv1d.weight"):
        return tensor.squeeze(1)
    if "norm" in name and "linear_attn" not in name:
        return tensor + 1
    return tensor


def published_again(name: str, values: torch.Tensor) -> torch.Tensor:
    """A matrix of a GGUF file in the published order."""
    order = reorder_heads(name, torch.arange(values.numel()).view(values.shape))
    result = torch.empty(values.numel())
    result[order.flatten()] = values.flatten()
    return result.view(values.shape)


# ---------------------------------------------------------------------------------------- writing

HALF_FIELDS = {Kind.Q4_K: (0, 2), Kind.Q5_K: (0, 2), Kind.Q6_K: (208,), Kind.IQ4_XS: (0,)}


def stored_as(kind: Kind, values: torch.Tensor, seed: int) -> Stored:
    """Quantised by the library where it can; else random blocks of the same shape."""
    if kind not in HALF_FIELDS and kind is not Kind.NVFP4:
        return Stored(quants.quantize(values.numpy(), kind), kind)
    elements, num_bytes = GGML_QUANT_SIZES[kind]
    shape = (values.shape[0], values.shape[1] // elements, num_bytes)
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, shape, dtype=np.uint8)
    for byte in HALF_FIELDS.get(kind, ()):
        halves = random.normal(0, 0.05, (*shape[:2], 1)).astype(np.float16)
        blocks[..., byte : byte + 2] = halves.view(np.uint8)
    scale = 2.0**-9 if kind is Kind.NVFP4 else 1.0
    return Stored(blocks.reshape(shape[0], -1), kind, scale)


def stored_tensors(weights: Tensors, kinds: Mapping[str, Kind]) -> dict[str, Stored]:
    """GGUF tensors; ``kinds`` by the name inside a block."""
    stored = {}
    for seed, (name, tensor) in enumerate(weights.items()):
        inner = gguf_name(name).split(".", 2)[-1] if "layers." in name else gguf_name(name)
        kind = kinds.get(inner.removesuffix(".weight"), Kind.F32)
        stored[gguf_name(name)] = stored_as(kind, converted(name, tensor), seed)
    return stored


def metadata() -> dict[str, Any]:
    key = "qwen35."
    return {
        "general.name": "Tiny hybrid",
        key + "block_count": LAYERS + 1,
        key + "nextn_predict_layers": 1,
        key + "embedding_length": HIDDEN,
        key + "feed_forward_length": FFN,
        key + "context_length": 512,
        key + "attention.head_count": HEADS,
        key + "attention.head_count_kv": KV_HEADS,
        key + "attention.key_length": HEAD_DIM,
        key + "attention.value_length": HEAD_DIM,
        key + "attention.layer_norm_rms_epsilon": 1e-6,
        key + "attention.recurrent_layers": [True, True, True, False, False],
        key + "rope.freq_base": 1e7,
        key + "rope.dimension_count": HEAD_DIM // 4,
        key + "rope.dimension_sections": [*SECTION, 0],
        key + "full_attention_interval": 4,
        key + "ssm.conv_kernel": 4,
        key + "ssm.state_size": LINEAR_DIM,
        key + "ssm.group_count": KEY_HEADS,
        key + "ssm.time_step_rank": VALUE_HEADS,
        key + "ssm.inner_size": VALUE_HEADS * LINEAR_DIM,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.eos_token_id": ROWS - 2,
    }


def write_gguf(
    path: Path, stored: Mapping[str, Stored], tokens: list[str] = TOKENS, merge: str = "t 0"
) -> Path:
    writer = GGUFWriter(path, "qwen35")
    adders: dict[type, Callable[[str, Any], None]] = {
        str: writer.add_string, int: writer.add_uint32, float: writer.add_float32,
        list: writer.add_array,
    }  # fmt: skip
    for key, value in metadata().items():
        adders[type(value)](key, value)
    writer.add_token_list(tokens)
    writer.add_token_types(TOKEN_TYPES)
    writer.add_token_merges([merge])
    for name, tensor in stored.items():
        writer.add_tensor(name, tensor.data, raw_dtype=tensor.kind)
        if tensor.scale != 1.0:
            stem = name.removesuffix(".weight")
            writer.add_tensor(stem + ".scale", np.array([tensor.scale], np.float32))
            writer.add_tensor(stem + ".input_scale", np.array([3.0], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_folder(folder: Path, config: dict[str, Any], weights: Tensors) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    save_file(weights, folder / "model.safetensors")
    return folder
