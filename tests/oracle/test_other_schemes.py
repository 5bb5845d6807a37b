"""GPTQ, AutoRound, AWQ, official FP8 and ModelOpt, packed here code by code from their formats'
public descriptions, with no code of the loader's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from quantised_folders import quantised_folder
from reference_models import HearthLogits
from tiny_modules import open_parts

from hearth.engine.weights.folder import _canonical
from hearth.engine.weights.model_files import open_model
from hearth.engine.weights.schemes import Quantisation
from hearth.kernels import packing

if TYPE_CHECKING:
    from pathlib import Path

IDS = torch.randint(0, 256, (60,), generator=torch.Generator().manual_seed(1)).tolist()
GROUP = 64
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
Made = "tuple[dict[str, torch.Tensor], torch.Tensor]"


def grid(weight: torch.Tensor, bits: int, *, symmetric: bool) -> tuple[np.ndarray, ...]:
    """Codes [N, K], zero points [N, G] and float16 scales [N, G] of a plain rounding."""
    rows, columns = weight.shape
    groups = weight.view(rows, -1, GROUP).numpy()
    top = 2**bits - 1
    if symmetric:
        scale = (np.abs(groups).max(2) / (top // 2)).astype(np.float16)
        zero = np.full(scale.shape, 2 ** (bits - 1))
    else:
        low, high = np.minimum(groups.min(2), 0), np.maximum(groups.max(2), 0)
        scale = ((high - low) / top).astype(np.float16)
        zero = np.clip(np.round(-low / scale.astype(np.float32)), 1, top).astype(int)
    codes = np.round(groups / scale.astype(np.float32)[..., None]) + zero[..., None]
    return np.clip(codes, 0, top).astype(int).reshape(rows, columns), zero, scale


def worth(codes: np.ndarray, zero: np.ndarray, scale: np.ndarray, group_of: np.ndarray) -> Any:
    """float32 [N, K]."""
    shifted = (codes - zero[:, group_of]).astype(np.float32)
    return torch.from_numpy(shifted * scale.astype(np.float32)[:, group_of])


def words(values: np.ndarray, bits: int) -> torch.Tensor:
    """int32 [R, C * bits / 32] of unsigned values [R, C], the first in the lowest bits."""
    per_word = 32 // bits
    result = np.zeros((values.shape[0], values.shape[1] // per_word), dtype=np.uint32)
    for column in range(values.shape[1]):
        shifted = values[:, column].astype(np.uint32) << np.uint32(bits * (column % per_word))
        result[:, column // per_word] |= shifted
    return torch.from_numpy(result.view(np.int32))


def gptq(bits: int, *, symmetric: bool, adds_one: bool, act_order: bool) -> Any:
    def quantise(module: str, weight: torch.Tensor) -> Any:
        columns = weight.shape[1]
        order = np.arange(columns)
        if act_order:
            order = np.random.default_rng(columns).permutation(columns)
        codes, zero, scale = grid(weight[:, order], bits, symmetric=symmetric)
        group_of = np.empty(columns, dtype=int)
        group_of[order] = np.arange(columns) // GROUP
        own = np.empty_like(codes)
        own[:, order] = codes
        parts = {
            "qweight": words(own, bits).t().contiguous(),
            "qzeros": words((zero - adds_one).T % 2**bits, bits),
            "scales": torch.from_numpy(scale.T.copy()),
            "g_idx": torch.from_numpy(group_of.astype(np.int32)),
        }
        return parts, worth(own, zero, scale, group_of)

    return quantise


def awq(module: str, weight: torch.Tensor) -> Any:
    codes, zero, scale = grid(weight, 4, symmetric=False)

    def interleaved(values: np.ndarray) -> torch.Tensor:
        return words(values.reshape(len(values), -1, 8)[:, :, AWQ_ORDER].reshape(values.shape), 4)

    parts = {
        "qweight": interleaved(codes.T.copy()),
        "qzeros": interleaved(zero.T.copy()),
        "scales": torch.from_numpy(scale.T.copy()),
    }
    return parts, worth(codes, zero, scale, np.arange(weight.shape[1]) // GROUP)


def fp8(module: str, weight: torch.Tensor) -> Any:
    rows, columns = weight.shape
    scale = torch.empty(-(-rows // 128), -(-columns // 128))
    codes = torch.empty(rows, columns, dtype=torch.float8_e4m3fn)
    values = torch.empty(rows, columns)
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            place = slice(128 * i, 128 * i + 128), slice(128 * j, 128 * j + 128)
            scale[i, j] = (weight[place].abs().max() / 448).bfloat16()
            codes[place] = (weight[place] / scale[i, j]).to(torch.float8_e4m3fn)
            values[place] = codes[place].float() * scale[i, j]
    return {"weight": codes, "weight_scale_inv": scale.bfloat16()}, values


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)


def modelopt_nvfp4(module: str, weight: torch.Tensor) -> Any:
    rows, columns = weight.shape
    groups = weight.view(rows, -1, 16)
    whole = (weight.abs().max() / (448 * 6)).float()
    local = (groups.abs().amax(2) / 6 / whole).to(torch.float8_e4m3fn)
    scale = local.float() * whole
    wanted = (groups / scale.clamp(min=1e-12).unsqueeze(2)).numpy()
    codes = np.abs(wanted[..., None] - E2M1).argmin(-1).astype(np.uint8)
    flat = codes.reshape(rows, columns)
    parts = {
        "weight": torch.from_numpy(flat[:, 0::2] | (flat[:, 1::2] << 4)),
        "weight_scale": local,
        "weight_scale_2": whole,
        "input_scale": torch.tensor(0.5),
    }
    return parts, (torch.from_numpy(E2M1[codes]) * scale.unsqueeze(2)).reshape(rows, columns)


def modelopt_mixed(module: str, weight: torch.Tensor) -> Any:
    """MLPs NVFP4, the other linears FP8 with one scale, the MTP projection left alone."""
    if module == "mtp.fc":
        return None
    if ".mlp." in module or module == "lm_head":
        return modelopt_nvfp4(module, weight)
    scale = (weight.abs().max() / 448).float()
    codes = (weight / scale).to(torch.float8_e4m3fn)
    return {
        "weight": codes,
        "weight_scale": scale,
        "input_scale": scale.clone(),
    }, codes.float() * scale


CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "gptq": (
        {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "checkpoint_format": "gptq"},
        gptq(4, symmetric=True, adds_one=True, act_order=False),
    ),
    "gptq asymmetric, activation order": (
        {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True},
        gptq(4, symmetric=False, adds_one=True, act_order=True),
    ),
    "gptq_v2, 8 bits": (
        {"quant_method": "gptq", "bits": 8, "group_size": GROUP, "checkpoint_format": "gptq_v2"},
        gptq(8, symmetric=True, adds_one=False, act_order=False),
    ),
    "auto-round": (
        {"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:auto_gptq"},
        gptq(4, symmetric=True, adds_one=True, act_order=False),
    ),
    "auto-round, plain zero points": (
        {"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round"},
        gptq(4, symmetric=False, adds_one=False, act_order=False),
    ),
    "auto-round for gptqmodel": (
        {"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:gptqmodel"},
        gptq(4, symmetric=True, adds_one=False, act_order=False),
    ),
    "auto-round as awq": (
        {"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:auto_awq"},
        awq,
    ),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}, awq),
    "fp8": ({"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"}, fp8),
    "modelopt nvfp4": ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, modelopt_nvfp4),
    "modelopt mixed": (
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
        modelopt_mixed,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_logits(tmp_path: Path, name: str) -> None:
    folder, model, values = quantised_folder(tmp_path, *CASES[name])
    files = open_model(folder)
    assert len(values) > 20
    for module, expected in values.items():
        entry = files.tensors[str(_canonical(f"{module}.weight"))]
        assert torch.equal(entry.values(), expected), (module, entry.format)
        assert torch.equal(packing.dequantise(entry.packed()), expected), (module, entry.format)
    with torch.no_grad():
        theirs = model(torch.tensor([IDS])).logits[0]
    ours = HearthLogits(files, max_tokens=len(IDS)).feed(IDS)
    assert (ours - theirs).norm() < 1e-4 * theirs.norm()


def test_four_bits_take_half_a_byte(tmp_path: Path) -> None:
    """Packed stays packed: codes, and scales of their groups."""
    folder, _, _ = quantised_folder(tmp_path, *CASES["gptq"])
    for name, entry in open_model(folder).tensors.items():
        if name.endswith((".gate", ".up", ".down")):
            rows, columns = entry.shape
            assert entry.packed().num_bytes == rows * columns // 2 + rows * columns // GROUP * 2


def test_blocks_of_fp8_are_worth_what_transformers_says(tmp_path: Path) -> None:
    """Its loader of such checkpoints, on shapes that it takes: whole blocks."""
    oracle = pytest.importorskip("transformers.integrations.finegrained_fp8")
    weight = torch.randn((384, 256), generator=torch.Generator().manual_seed(2))
    parts, values = fp8("", weight)
    theirs = oracle.Fp8Dequantize(None)._dequantize_one(
        parts["weight"], parts["weight_scale_inv"], torch.float32
    )
    assert torch.equal(values, theirs)
    entry = open_parts(tmp_path, parts, Quantisation("fp8"))
    assert torch.equal(entry.values(), theirs)
