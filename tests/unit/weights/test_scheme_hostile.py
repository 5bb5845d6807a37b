"""Parts that lie: refused in a sentence before anything of their size is made."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tiny_modules import open_parts

from hearth.engine.errors import UserError
from hearth.engine.weights.schemes import Quantisation, read_quantisation

if TYPE_CHECKING:
    from pathlib import Path

N, K = 64, 128
CT, GPTQ, AWQ = (
    Quantisation("compressed-tensors"),
    Quantisation("gptq"),
    Quantisation("awq", layout="awq"),
)
FP8 = torch.float8_e4m3fn


def ints(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


def halves(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.float16)


def small(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.uint8)


PACKED = {
    "weight_packed": ints(N, K // 8),
    "weight_scale": halves(N, 4),
    "weight_shape": torch.tensor([N, K]),
}
QWEIGHT = {
    "qweight": ints(K // 8, N),
    "qzeros": ints(4, N // 8),
    "scales": halves(4, N),
    "g_idx": torch.arange(K).int() // 32,
}
AWQ_PARTS = {"qweight": ints(K, N // 8), "qzeros": ints(4, N // 8), "scales": halves(4, N)}
NVFP4 = {
    "weight_packed": small(N, K // 2),
    "weight_scale": torch.ones(N, K // 16).to(FP8),
    "weight_global_scale": torch.ones(1),
}
MODELOPT = Quantisation("modelopt")
MODELOPT_PARTS = {
    "weight": small(N, K // 2),
    "weight_scale": torch.ones(N, K // 16).to(FP8),
    "weight_scale_2": torch.tensor(1.0),
}
BLOCKS = {"weight": torch.ones(N, K).to(FP8), "weight_scale_inv": torch.ones(1, 1)}
CASES: list[tuple[str, Quantisation, dict[str, torch.Tensor], dict[str, Any]]] = [
    # the sentence, how, parts that are right, and what is wrong (None: missing)
    ("weight_shape is two", CT, PACKED, {"weight_shape": torch.tensor([N, K, 1])}),
    ("weight_shape is two", CT, PACKED, {"weight_shape": torch.tensor([float(N), float(K)])}),
    ("weight_shape is two", CT, PACKED, {"weight_shape": torch.tensor([-N, K])}),
    ("weight_shape is two", CT, PACKED, {"weight_shape": torch.tensor([N, 0])}),
    ("weight_shape is two", CT, PACKED, {"weight_shape": torch.zeros(1 << 20).long()}),
    ("weight_shape's rows", CT, PACKED, {"weight_shape": torch.tensor([1 << 62, K])}),
    ("bits a weight", CT, PACKED, {"weight_shape": torch.tensor([N, 1 << 62])}),
    ("bits a weight", CT, PACKED, {"weight_shape": torch.tensor([N, 96])}),
    ("a line for every output", CT, PACKED, {"weight_scale": halves(N - 1, 4)}),
    ("a line for every output", CT, PACKED, {"weight_scale": halves(N // 2, 2)}),
    ("is a matrix", CT, PACKED, {"weight_scale": halves(N, 2, 2)}),
    ("holds floats", CT, PACKED, {"weight_scale": ints(N, 4)}),
    ("with 3 scales for 128 inputs", CT, PACKED, {"weight_scale": halves(N, 3)}),
    ("in groups of 8", CT, PACKED, {"weight_scale": halves(N, 16)}),
    ("in groups of 1", CT, PACKED, {"weight_scale": halves(N, K)}),
    ("a zero point for every", CT, PACKED, {"weight_zero_point": ints(N // 8, 3)}),
    ("zero points", CT, PACKED, {"weight_zero_point": torch.zeros(N, 4, dtype=torch.int8)}),
    ("groups that exist", CT, PACKED, {"weight_g_idx": torch.full((K,), 4).int()}),
    ("groups that exist", CT, PACKED, {"weight_g_idx": torch.arange(K).int() // 32 - 1}),
    ("as many inputs", CT, PACKED, {"weight_g_idx": torch.zeros(K).int()}),
    ("group for every input", CT, PACKED, {"weight_g_idx": torch.zeros(K + 1).int()}),
    ("group for every input", CT, PACKED, {"weight_g_idx": torch.zeros(K)}),
    ("not known together", CT, PACKED, {"weight_shape": None}),
    ("not known together", CT, PACKED, {"weight_packed": torch.zeros(N, 16).short()}),
    ("with scales beside", CT, PACKED, {"scales": halves(1)}),
    ("bits a weight", GPTQ, QWEIGHT, {"qzeros": ints(4, N // 8 - 1)}),
    ("for every group", GPTQ, QWEIGHT, {"qzeros": ints(3, N // 8)}),
    ("a column for every output", GPTQ, QWEIGHT, {"qweight": ints(K // 8, N - 1)}),
    ("in words of I64", GPTQ, QWEIGHT, {"qweight": ints(K // 8, N).long()}),
    ("scales are floats", GPTQ, QWEIGHT, {"scales": ints(4, N)}),
    ("groups that exist", GPTQ, QWEIGHT, {"g_idx": torch.full((K,), 1 << 30).int()}),
    ("not known together", GPTQ, QWEIGHT, {"qzeros": None}),
    ("eight codes a word", AWQ, AWQ_PARTS, {"qweight": ints(K, N // 8 + 1)}),
    ("for every group", AWQ, AWQ_PARTS, {"qzeros": ints(2, N // 8)}),
    ("is one number", CT, NVFP4, {"weight_global_scale": torch.ones(2)}),
    ("is one number", CT, NVFP4, {"weight_global_scale": ints(1)}),
    ("a scale of the tensor", CT, NVFP4, {"weight_global_scale": torch.zeros(1)}),
    ("a scale of the tensor", CT, NVFP4, {"weight_global_scale": torch.tensor([torch.nan])}),
    ("weight_scale for every 16", CT, NVFP4, {"weight_scale": torch.ones(N, 7).to(FP8)}),
    ("as NVFP4 with U8 scales", CT, NVFP4, {"weight_scale": small(N, K // 16)}),
    ("not known together", MODELOPT, MODELOPT_PARTS, {"weight_scale": None}),
    ("not known together", MODELOPT, MODELOPT_PARTS, {"weight_scale_2": None}),
    ("of shape (1, 2)", CT, BLOCKS, {"weight_scale_inv": torch.ones(1, 2)}),
    ("as FP8 in groups of 32", CT, BLOCKS, {"weight_scale_inv": torch.ones(N, 4)}),
    ("holds floats", CT, BLOCKS, {"weight_scale_inv": ints(1, 1)}),
    ("with 100 inputs", CT, BLOCKS, {"weight": torch.ones(N, 100).to(FP8)}),
    ("not known together", CT, BLOCKS, {"weight": torch.ones(N, K).to(torch.float8_e5m2)}),
    ("is a matrix", CT, BLOCKS, {"weight": torch.ones(2, N, K).to(FP8)}),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_parts_that_lie(tmp_path: Path, case: int) -> None:
    wanted, how, right, wrong = CASES[case]
    open_parts(tmp_path, right, how)
    parts = {part: value for part, value in (right | wrong).items() if value is not None}
    with pytest.raises(UserError) as caught:
        open_parts(tmp_path, parts, how)
    sentence = caught.value.sentence
    assert wanted in sentence
    assert sentence.endswith(".")
    assert len(sentence) < 400
    assert caught.value.action


def test_a_last_group_that_is_not_full(tmp_path: Path) -> None:
    """192 inputs in groups of 128 have two scales, as if they were groups of 96."""
    parts = {
        "weight_packed": ints(N, 24),
        "weight_scale": halves(N, 2),
        "weight_shape": torch.tensor([N, 192]),
    }
    stated = {"config_groups": {"group_0": {"weights": {"group_size": 128}}}}
    how = read_quantisation(tmp_path, config(quant_method="compressed-tensors", **stated))
    with pytest.raises(UserError) as caught:
        open_parts(tmp_path, parts, how)
    assert "in groups of 128 that do not divide its inputs" in caught.value.sentence
    assert open_parts(tmp_path, parts, CT).format == "int4 g96"


# --------------------------------------------------------------------------------- configurations


def config(**keys: Any) -> dict[str, Any]:
    return {"quantization_config": keys}


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("gptq in the format marlin", {"quant_method": "gptq", "checkpoint_format": "marlin"}),
    ("gptq in the format marlin", {"quant_method": "gptq", "is_marlin_format": True}),
    ("gptq in the format bitblas", {"quant_method": "gptq", "checkpoint_format": "bitblas"}),
    ("awq gemv", {"quant_method": "awq", "version": "GEMV"}),
    ("packed as auto_round:fp8_static",
     {"quant_method": "auto-round", "packing_format": "auto_round:fp8_static"}),
    ("packed as 7", {"quant_method": "auto-round", "packing_format": 7}),
    ("the format marlin-24", {"quant_method": "compressed-tensors", "format": "marlin-24"}),
    ("the format mxfp6-pack-quantized",
     {"quant_method": "compressed-tensors", "format": "mixed-precision",
      "config_groups": {"group_0": {"format": "mxfp6-pack-quantized"}}}),
    ("transforms", {"quant_method": "compressed-tensors",
                    "transform_config": {"config_groups": {"R1": {}}}}),
    ("sparse storage", {"quant_method": "compressed-tensors",
                        "sparsity_config": {"format": "sparse-24-bitmask"}}),
    ("blocks of several sizes",
     {"quant_method": "compressed-tensors", "config_groups": {
         "group_0": {"weights": {"block_structure": [128, 128]}},
         "group_1": {"weights": {"block_structure": [64, 64]}}}}),
    ("no pair of sizes", {"quant_method": "fp8", "weight_block_size": [128, 0]}),
    ("fbgemm_fp8", {"quant_method": "fbgemm_fp8"}),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "stated"), REFUSED)
def test_configurations_are_refused_by_name(
    tmp_path: Path, wanted: str, stated: dict[str, Any]
) -> None:
    with pytest.raises(UserError) as caught:
        read_quantisation(tmp_path, config(**stated))
    assert wanted in caught.value.sentence
    assert caught.value.action


@pytest.mark.parametrize(
    ("layout", "stated"),
    [
        ("gptq", {}),
        ("gptq", {"backend": "auto"}),
        ("gptq", {"backend": "auto_round:gptq:exllamav2"}),
        ("gptq", {"packing_format": "auto_round:auto_gptq", "backend": "auto_round"}),
        ("gptq_v2", {"packing_format": "auto_round:gptqmodel"}),
        ("gptq_v2", {"packing_format": "auto_round"}),
        ("gptq_v2", {"backend": "auto_round:exllamav2"}),
        ("awq", {"packing_format": "auto_round:auto_awq"}),
        ("awq", {"packing_format": "auto_round:awq"}),
    ],
)
def test_packings_of_auto_round(tmp_path: Path, layout: str, stated: dict[str, Any]) -> None:
    how = read_quantisation(tmp_path, config(quant_method="auto-round", **stated))
    assert how is not None
    assert how.layout == layout


def test_group_sizes_are_found_where_methods_state_them(tmp_path: Path) -> None:
    stated = {"group_size": 128, "dynamic": {"+:.*down": {"group_size": 32}, "-:.*up": {}},
              "extra_config": {"a": {"group_size": -1}}}  # fmt: skip
    how = read_quantisation(tmp_path, config(quant_method="gptq", **stated))
    assert how is not None
    assert how.group_sizes == {32, 128}
    deep: dict[str, Any] = {"quant_method": "gptq"}
    for _ in range(50):
        deep = {"quant_method": "gptq", "inner": deep}
    assert read_quantisation(tmp_path, config(**deep)) is not None


def test_modelopt_says_it_in_a_file_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "hf_quant_config.json"
    file.write_text(json.dumps({"producer": {}, "quantization": {"quant_algo": "NVFP4"}}))
    how = read_quantisation(tmp_path, {})
    assert how is not None
    assert how.method == "modelopt"
