"""Headers as published 27B checkpoints have them: names, types and full shapes, in files without
data but for what says how large things are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

H, FFN, VOCAB = 5120, 17408, 248320
Tensor = tuple[str, tuple[int, ...]]
LINEARS = {
    "linear_attn.in_proj_qkv": (10240, H),
    "linear_attn.in_proj_z": (6144, H),
    "linear_attn.out_proj": (H, 6144),
    "mlp.gate_proj": (FFN, H),
    "mlp.up_proj": (FFN, H),
    "mlp.down_proj": (H, FFN),
}
FULL_LINEARS = {
    "self_attn.q_proj": (12288, H),
    "self_attn.k_proj": (1024, H),
    "self_attn.v_proj": (1024, H),
    "self_attn.o_proj": (H, 6144),
    "mlp.gate_proj": (FFN, H),
    "mlp.up_proj": (FFN, H),
    "mlp.down_proj": (H, FFN),
}
NORMS = {"input_layernorm.weight": (H,), "post_attention_layernorm.weight": (H,)}
GDN = {
    "linear_attn.in_proj_a.weight": (48, H),
    "linear_attn.in_proj_b.weight": (48, H),
    "linear_attn.conv1d.weight": (10240, 1, 4),
    "linear_attn.A_log": (48,),
    "linear_attn.dt_bias": (48,),
    "linear_attn.norm.weight": (128,),
}
HEADS = {"self_attn.q_norm.weight": (256,), "self_attn.k_norm.weight": (256,)}
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "U8": 1, "I8": 1, "I32": 4, "I64": 8}
TEXT = {
    "model_type": "qwen3_5_text", "hidden_size": H, "intermediate_size": FFN,
    "num_hidden_layers": 4, "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256,
    "vocab_size": VOCAB, "max_position_embeddings": 262144, "rms_norm_eps": 1e-6,
    "linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
                        "mrope_section": [11, 11, 10], "mrope_interleaved": True},
    "tie_word_embeddings": False, "hidden_act": "silu", "attn_output_gate": True,
}  # fmt: skip
CONFIG = {
    "model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"],
    "text_config": TEXT, "tie_word_embeddings": False, "eos_token_id": 248046,
}  # fmt: skip


def bf16(module: str, n: int, k: int) -> dict[str, Tensor]:
    return {"weight": ("BF16", (n, k))}


def w4a16(group: int, *, zeros: bool = False) -> Callable[[str, int, int], dict[str, Tensor]]:
    def parts(module: str, n: int, k: int) -> dict[str, Tensor]:
        result: dict[str, Tensor] = {
            "weight_packed": ("I32", (n, k // 8)),
            "weight_scale": ("F16", (n, k // group)),
            "weight_shape": ("I64", (2,)),
        }
        if zeros:
            result["weight_zero_point"] = ("I32", (n // 8, k // group))
        return result

    return parts


def w8a16(module: str, n: int, k: int) -> dict[str, Tensor]:
    return w4a16(128)(module, n, k) | {"weight_packed": ("I32", (n, k // 4))}


def gptq(module: str, n: int, k: int) -> dict[str, Tensor]:
    return {
        "qweight": ("I32", (k // 8, n)),
        "qzeros": ("I32", (k // 128, n // 8)),
        "scales": ("F16", (k // 128, n)),
        "g_idx": ("I32", (k,)),
    }


def awq(module: str, n: int, k: int) -> dict[str, Tensor]:
    return {
        "qweight": ("I32", (k, n // 8)),
        "qzeros": ("I32", (k // 128, n // 8)),
        "scales": ("F16", (k // 128, n)),
    }


def gptq_channel8(module: str, n: int, k: int) -> dict[str, Tensor]:
    return {
        "qweight": ("I32", (k // 4, n)),
        "qzeros": ("I32", (1, n // 4)),
        "scales": ("F16", (1, n)),
    }


def w8a8(module: str, n: int, k: int) -> dict[str, Tensor]:
    return {"weight": ("I8", (n, k)), "weight_scale": ("BF16", (n, 1))}


def mxfp4(module: str, n: int, k: int) -> dict[str, Tensor]:
    return {"weight_packed": ("U8", (n, k // 2)), "weight_scale": ("U8", (n, k // 32))}


def fp8(module: str, n: int, k: int) -> dict[str, Tensor]:
    return {"weight": ("F8_E4M3", (n, k)), "weight_scale_inv": ("BF16", (n // 128, k // 128))}


def fp8_channel(module: str, n: int, k: int) -> dict[str, Tensor]:
    return {"weight": ("F8_E4M3", (n, k)), "weight_scale": ("BF16", (n, 1))}


def nvfp4(module: str, n: int, k: int) -> dict[str, Tensor]:
    return {
        "weight_packed": ("U8", (n, k // 2)),
        "weight_scale": ("F8_E4M3", (n, k // 16)),
        "weight_global_scale": ("F32", (1,)),
        "input_global_scale": ("F32", (1,)),
    }


def mixed(module: str, n: int, k: int) -> dict[str, Tensor]:
    return (nvfp4 if ".mlp." in module else fp8_channel)(module, n, k)


def modelopt(module: str, n: int, k: int) -> dict[str, Tensor]:
    if ".mlp." not in module and module != "lm_head":
        scale: Tensor = ("F32", ())
        return {"weight": ("F8_E4M3", (n, k)), "weight_scale": scale, "input_scale": scale}
    return {
        "weight": ("U8", (n, k // 2)),
        "weight_scale": ("F8_E4M3", (n, k // 16)),
        "weight_scale_2": ("F32", ()),
        "input_scale": ("F32", ()),
    }


def header(
    linears: Any, *, with_head: bool, prefix: str, with_mtp: bool = False
) -> dict[str, Tensor]:
    """All tensors of four layers, an MTP module, one tensor of the vision tower, scales of an 8-bit
    cache. ``with_head``, ``with_mtp``: whether those are stored as the layers are, or in bf16."""
    result: dict[str, Tensor] = {
        f"{prefix}embed_tokens.weight": ("BF16", (VOCAB, H)),
        f"{prefix}norm.weight": ("BF16", (H,)),
        "model.visual.blocks.0.attn.qkv.weight": ("BF16", (3456, 1152)),
        f"{prefix}layers.3.self_attn.k_scale": ("BF16", (1,)),
        f"{prefix}layers.3.self_attn.v_scale": ("BF16", (1,)),
        "mtp.fc.weight": ("BF16", (H, 2 * H)),
        "mtp.norm.weight": ("BF16", (H,)),
        "mtp.pre_fc_norm_embedding.weight": ("BF16", (H,)),
        "mtp.pre_fc_norm_hidden.weight": ("BF16", (H,)),
    }
    head = linears if with_head else bf16
    result |= {f"lm_head.{p}": t for p, t in head("lm_head", VOCAB, H).items()}
    for name in (*(f"{prefix}layers.{index}" for index in range(4)), "mtp.layers.0"):
        is_full = name.endswith(".3") or name.startswith("mtp")
        make = linears if with_mtp or not name.startswith("mtp") else bf16
        for module, shape in (FULL_LINEARS if is_full else LINEARS).items():
            parts = make(f"{name}.{module}", *shape)
            result |= {f"{name}.{module}.{part}": tensor for part, tensor in parts.items()}
        plain = NORMS | (HEADS if is_full else GDN)
        result |= {f"{name}.{inner}": ("BF16", shape) for inner, shape in plain.items()}
    return result


def write(folder: Path, tensors: dict[str, Tensor], quantisation: dict[str, Any] | None) -> Path:
    """A file without data but for what says how large things are."""
    config = CONFIG | ({"quantization_config": quantisation} if quantisation else {})
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    entries, at, shapes = {}, 0, []
    for name, (dtype, shape) in tensors.items():
        size = SIZES[dtype]
        for part in shape:
            size *= part
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        if name.endswith("weight_shape"):
            shapes.append((at, name))
        at += size
    head = json.dumps(entries).encode()
    head += b" " * (-len(head) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        start = file.tell()
        for place, name in shapes:
            module = name.removesuffix(".weight_shape")
            wanted = (VOCAB, H) if module == "lm_head" else _shape_of(module)
            file.seek(start + place)
            file.write(b"".join(part.to_bytes(8, "little") for part in wanted))
        for name, entry in entries.items():  # a scale of zero would be refused
            if name.endswith(("weight_global_scale", "weight_scale_2")):
                file.seek(start + entry["data_offsets"][0])
                file.write(b"\0\0\x80?")
            if name.endswith("g_idx"):
                file.seek(start + entry["data_offsets"][0])
                groups = np.arange(entry["shape"][0], dtype=np.int32) // 128
                file.write(groups.tobytes())
        file.truncate(start + at)
    return folder


def _shape_of(module: str) -> tuple[int, int]:
    inner = ".".join(module.split(".")[-2:])
    return (LINEARS | FULL_LINEARS)[inner]
