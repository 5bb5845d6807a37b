"""Headers as published 27B checkpoints have them: names, types and full shapes, in files without
data. Every linear of a layer finds its scheme; others are refused by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearth.engine.errors import UserError
from hearth.engine.weights.model_files import open_model

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
Scheme = "Callable[[str, int, int], dict[str, Tensor]]"


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


CT = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"]}
CHECKPOINTS: dict[str, tuple[dict[str, Any], Any, bool, str]] = {
    # quantization_config, linears of the layers, whether the head is one too, a linear's format
    "INT4 W4A16": (CT, w4a16(128), False, "int4 g128"),
    "AWQ-INT4 asymmetric": (CT, w4a16(32, zeros=True), True, "int4 g32 asymmetric"),
    "INT8 W8A16": (CT, w8a16, False, "int8 g128"),
    "int4 AutoRound": (
        {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True,
         "packing_format": "auto_round:auto_gptq", "extra_config": {}},
        gptq, False, "int4 g128"),
    "GPTQ-Int4": (
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True},
        gptq, False, "int4 g128"),
    "AWQ gemm": (
        {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True,
         "version": "gemm", "modules_to_not_convert": ["visual"]}, awq, False, "int4 g128"),
    "official FP8": (
        {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
         "weight_block_size": [128, 128]}, fp8, False, "FP8 block 128x128"),
    "NVFP4 mixed": (CT | {"format": "mixed-precision"}, mixed, False, "NVFP4"),
    "ModelOpt mixed": (
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, modelopt, True, "NVFP4"),
}  # fmt: skip


def header(linears: Any, *, with_head: bool, prefix: str) -> dict[str, Tensor]:
    """All tensors of four layers, the MTP module in bf16, and some of the vision tower's."""
    result: dict[str, Tensor] = {
        f"{prefix}embed_tokens.weight": ("BF16", (VOCAB, H)),
        f"{prefix}norm.weight": ("BF16", (H,)),
        "model.visual.blocks.0.attn.qkv.weight": ("BF16", (3456, 1152)),
        "mtp.fc.weight": ("BF16", (H, 2 * H)),
        "mtp.norm.weight": ("BF16", (H,)),
        "mtp.pre_fc_norm_embedding.weight": ("BF16", (H,)),
        "mtp.pre_fc_norm_hidden.weight": ("BF16", (H,)),
    }
    head = linears if with_head else bf16
    result |= {f"lm_head.{p}": t for p, t in head("lm_head", VOCAB, H).items()}
    for name in (*(f"{prefix}layers.{index}" for index in range(4)), "mtp.layers.0"):
        is_full = name.endswith(".3") or name.startswith("mtp")
        make = bf16 if name.startswith("mtp") else linears
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


@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model.", "model."])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_linear_finds_its_scheme(tmp_path: Path, name: str, prefix: str) -> None:
    quantisation, linears, with_head, kind = CHECKPOINTS[name]
    tensors = header(linears, with_head=with_head, prefix=prefix)
    files = open_model(write(tmp_path, tensors, quantisation))
    assert files.config.num_mtp_layers == 1
    formats = {key: entry.format for key, entry in files.tensors.items()}
    for linear in ("layers.0.gate", "layers.3.up", "layers.1.down"):
        found = formats[linear]
        assert found.removesuffix(" asymmetric") == kind.removesuffix(" asymmetric"), found
    assert formats["layers.0.in_a"] == formats["mtp.layers.0.q"] == "BF16"
    assert (formats["output"] == "BF16") is not with_head


REFUSED: dict[str, tuple[dict[str, Any] | None, dict[str, Tensor], str]] = {
    "an unknown method": ({"quant_method": "exl3"}, {}, "quantised as exl3"),
    "three bits": (
        CT,
        {"weight_packed": ("I32", (FFN, H * 3 // 32)), "weight_scale": ("F16", (FFN, H // 128)),
         "weight_shape": ("I64", (2,))},
        "with 3 bits a weight"),
    "scaled inputs": (
        {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"},
        {"weight": ("U8", (FFN, H // 2)), "weight_scale": ("F8_E4M3", (FFN, H // 16)),
         "pre_quant_scale": ("BF16", (H,))},
        "scaled inputs"),
    "zero points of int8": (
        CT,
        {"weight": ("I8", (FFN, H)), "weight_scale": ("BF16", (FFN, 1)),
         "weight_zero_point": ("I8", (FFN, 1))},
        "with weight_zero_point beside"),
    "MXFP6": (
        CT,
        {"weight_packed": ("U8", (FFN, H * 3 // 4)), "weight_scale": ("U8", (FFN, H // 32))},
        "as MXFP6"),
    "nothing in the configuration": (
        None, fp8("", FFN, H), "that config.json does not explain"),
    "scales of another shape": (
        {"quant_method": "fp8"},
        {"weight": ("F8_E4M3", (FFN, H)), "weight_scale_inv": ("BF16", (7, 9))},
        "of shape (7, 9)"),
    "a lying shape": (
        CT,
        {"weight_packed": ("I32", (FFN, 8)), "weight_scale": ("F16", (FFN, H // 128)),
         "weight_shape": ("I64", (2,))},
        "bits a weight"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_others_are_refused_by_name(tmp_path: Path, case: str) -> None:
    quantisation, parts, sentence = REFUSED[case]
    tensors = header(bf16, with_head=False, prefix="model.")
    if parts:
        name = "model.layers.0.mlp.up_proj"
        del tensors[f"{name}.weight"]
        tensors |= {f"{name}.{part}": tensor for part, tensor in parts.items()}
    with pytest.raises(UserError) as caught:
        open_model(write(tmp_path, tensors, quantisation))
    assert sentence in caught.value.sentence
    assert caught.value.action
