"""Headers of published 27B checkpoints: every linear of a layer finds its scheme; others are
refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from published_headers import (
    FFN,
    FULL_LINEARS,
    LINEARS,
    H,
    Tensor,
    awq,
    bf16,
    fp8,
    gptq,
    gptq_channel8,
    header,
    mixed,
    modelopt,
    mxfp4,
    w4a16,
    w8a8,
    w8a16,
    write,
)

from hearth.engine.errors import UserError
from hearth.engine.weights.folder import LAYER_NAMES
from hearth.engine.weights.model_files import open_model

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hearth.engine.weights.entries import WeightEntry


def group(size: int | None, bits: int = 4, **weights: Any) -> dict[str, Any]:
    strategy = "group" if size else "channel"
    sizes = {"num_bits": bits, "group_size": size, "strategy": strategy, "symmetric": True}
    return {"targets": ["Linear"], "weights": {"type": "int", "dynamic": False} | sizes | weights}


def ct(form: str, *groups: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """Ignores what is plain, but not the MTP module, as published ones."""
    ignored = ["lm_head", "re:.*visual.*", "model.language_model.layers.0.linear_attn.in_proj_a"]
    return {
        "quant_method": "compressed-tensors", "format": form, "ignore": ignored,
        "quantization_status": "compressed", "kv_cache_scheme": None,
        "config_groups": {f"group_{index}": part for index, part in enumerate(groups)},
    } | keys  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """What config.json says, how linears of the layers are stored, and by which names they are then
    known: those of the MLPs, those of attention and DeltaNet, the head."""

    stated: dict[str, Any]
    linears: Any
    mlp: str
    mixer: str
    head: str = "BF16"
    mtp: str = "BF16"


def same(stated: dict[str, Any], linears: Any, kind: str, **others: str) -> Checkpoint:
    return Checkpoint(stated, linears, kind, kind, **others)


GPTQ: dict[str, Any] = {"bits": 4, "group_size": 128, "sym": True}
FLOAT8 = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
FLOAT4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
EXCEPT = {f"model.language_model.layers.{index}.linear_attn.in_proj_{name}": {"bits": 16}
          for index in range(4) for name in "ab"}  # fmt: skip
CT = ct("pack-quantized", group(128))
CHECKPOINTS: dict[str, Checkpoint] = {
    "INT4 W4A16": same(CT, w4a16(128), "int4 g128"),
    "AWQ-INT4 asymmetric": same(
        ct("pack-quantized", group(32, symmetric=False)), w4a16(32, zeros=True),
        "int4 g32 asymmetric", head="int4 g32 asymmetric"),
    "INT8 W8A16": same(ct("pack-quantized", group(128, 8)), w8a16, "int8 g128"),
    "INT8 W8A8": same(ct("int-quantized", group(None, 8)), w8a8, "int8 channel"),
    "MXFP4": same(ct("mxfp4-pack-quantized", group(32, type="float")), mxfp4, "MXFP4"),
    "int4 AutoRound": same(
        GPTQ | {"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq",
                "data_type": "int", "extra_config": EXCEPT}, gptq, "int4 g128 asymmetric"),
    "INT8 AutoRound": same(
        {"quant_method": "auto-round", "bits": 8, "group_size": -1, "sym": True,
         "packing_format": "auto_round:auto_gptq", "extra_config": EXCEPT},
        gptq_channel8, "int8 channel asymmetric"),
    "GPTQ-Int4": same(
        GPTQ | {"quant_method": "gptq", "desc_act": False}, gptq, "int4 g128 asymmetric"),
    "AWQ gemm": same(
        {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True,
         "version": "gemm", "modules_to_not_convert": ["visual"]},
        awq, "int4 g128 asymmetric"),
    "official FP8": same(
        {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
         "weight_block_size": [128, 128]}, fp8, "FP8 block 128x128", mtp="FP8 block 128x128"),
    "NVFP4 mixed": Checkpoint(
        ct("mixed-precision", {"weights": FLOAT8, "format": "float-quantized"},
           {"weights": FLOAT4, "format": "nvfp4-pack-quantized"},
           kv_cache_scheme={"num_bits": 8, "type": "float"}),
        mixed, "NVFP4", "FP8 channel"),
    "ModelOpt mixed": Checkpoint(
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "FP8",
         "quantized_layers": {"lm_head": {"quant_algo": "NVFP4", "group_size": 16}}},
        modelopt, "NVFP4", "FP8 tensor", head="NVFP4"),
}  # fmt: skip


PREFIXES = ("model.language_model.", "language_model.model.", "model.")


@pytest.mark.parametrize(
    ("name", "prefix"),
    [(name, PREFIXES[0]) for name in CHECKPOINTS]
    + [(name, prefix) for name in ("INT4 W4A16", "official FP8") for prefix in PREFIXES[1:]],
)
def test_every_linear_finds_its_scheme(tmp_path: Path, name: str, prefix: str) -> None:
    made = CHECKPOINTS[name]
    with_head, with_mtp = made.head != "BF16", made.mtp != "BF16"
    tensors = header(made.linears, with_head=with_head, prefix=prefix, with_mtp=with_mtp)
    files = open_model(write(tmp_path, tensors, made.stated))
    assert files.config.num_mtp_layers == 1
    for layer in range(4):
        check_layer(files.tensors, f"layers.{layer}", made.mlp, made.mixer, is_full=layer == 3)
    check_layer(files.tensors, "mtp.layers.0", made.mtp, made.mtp, is_full=True)
    others = {key: files.tensors[key].format for key in ("output", "mtp.fc", "token_embd")}
    assert others == {"output": made.head, "mtp.fc": "BF16", "token_embd": "BF16"}


def check_layer(
    tensors: Mapping[str, WeightEntry], layer: str, mlp: str, mixer: str, *, is_full: bool
) -> None:
    for published, shape in (FULL_LINEARS if is_full else LINEARS).items():
        entry = tensors[f"{layer}.{LAYER_NAMES[published + '.weight']}"]
        assert entry.format == (mlp if published.startswith("mlp") else mixer), entry.name
        assert entry.shape == shape
    if not is_full:
        assert {tensors[f"{layer}.in_{gate}"].format for gate in "ab"} == {"BF16"}


@pytest.mark.parametrize("mtp_prefix", ["mtp.", "model.mtp."])
def test_a_module_in_a_file_beside_the_model(tmp_path: Path, mtp_prefix: str) -> None:
    """Without an index too; other things in that file are left alone."""
    tensors = header(w4a16(128), with_head=False, prefix="model.")
    mtp = {name: tensor for name, tensor in tensors.items() if name.startswith("mtp.")}
    body = {name: tensor for name, tensor in tensors.items() if name not in mtp}
    write(tmp_path, body, CT)
    assert open_model(tmp_path).config.num_mtp_layers == 0
    (tmp_path / "model.safetensors").rename(tmp_path / "body")
    moved = {name.replace("mtp.", mtp_prefix, 1): tensor for name, tensor in mtp.items()}
    write(tmp_path, moved | {"mtp.draft_lm_head.weight": ("BF16", (8, H))}, CT)
    (tmp_path / "model.safetensors").rename(tmp_path / "model_extra_tensors.safetensors")
    (tmp_path / "body").rename(tmp_path / "model.safetensors")
    assert open_model(tmp_path).config.num_mtp_layers == 1


def test_an_unlisted_module_with_parts_that_are_not_known(tmp_path: Path) -> None:
    tensors = header(bf16, with_head=False, prefix="model.")
    body = {name: tensor for name, tensor in tensors.items() if not name.startswith("mtp.")}
    own: dict[str, Tensor] = {"mtp.embed_tokens.weight": ("BF16", (8, H))}
    write(tmp_path, own, None)
    (tmp_path / "model.safetensors").rename(tmp_path / "model_extra_tensors.safetensors")
    write(tmp_path, body, None)
    with pytest.raises(UserError) as caught:
        open_model(tmp_path)
    assert "mtp.embed_tokens.weight" in caught.value.sentence


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
