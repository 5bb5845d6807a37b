"""Checkpoints of compressed-tensors, written by its own library, for every scheme that is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from hybrid_models import random_model
from quantised_folders import quantised_folder
from reference_models import HearthLogits

from hearth.engine.weights.folder import _canonical
from hearth.engine.weights.model_files import open_model
from hearth.engine.weights.schemes.entry import SchemeEntry
from hearth.kernels import packing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ct = pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")

from compressed_tensors.compressors import BaseCompressor  # noqa: E402
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8  # noqa: E402
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme  # noqa: E402
from compressed_tensors.quantization.lifecycle.forward import dequantize  # noqa: E402

IDS = torch.randint(0, 256, (60,), generator=torch.Generator().manual_seed(1)).tolist()


def integers(bits: int, *, group: int | None, symmetric: bool = True) -> dict[str, Any]:
    strategy = "channel" if group is None else "group"
    sizes = {"num_bits": bits, "strategy": strategy, "group_size": group, "symmetric": symmetric}
    return {"type": "int", **sizes}


def floats(strategy: str) -> dict[str, Any]:
    block = {"block_structure": [128, 128]} if strategy == "block" else {}
    return {"type": "float", "num_bits": 8, "strategy": strategy, "symmetric": True, **block}


NVFP4 = {"type": "float", "num_bits": 4, "strategy": "tensor_group", "group_size": 16}
MXFP4 = {"type": "float", "num_bits": 4, "strategy": "group", "group_size": 32}
SCHEMES: dict[str, tuple[str, dict[str, Any]]] = {
    "int4 g128": ("pack-quantized", integers(4, group=128)),
    "int4 g64": ("pack-quantized", integers(4, group=64)),
    "int4 g32 asymmetric": ("pack-quantized", integers(4, group=32, symmetric=False)),
    "int8 g64 asymmetric": ("pack-quantized", integers(8, group=64, symmetric=False)),
    "int4 channel asymmetric": ("pack-quantized", integers(4, group=None, symmetric=False)),
    "int4 channel": ("pack-quantized", integers(4, group=None)),
    "int8 g128": ("pack-quantized", integers(8, group=128)),
    "int8 channel": ("int-quantized", integers(8, group=None)),
    "FP8 channel": ("float-quantized", floats("channel")),
    "FP8 tensor": ("float-quantized", floats("tensor")),
    "FP8 block 128x128": ("float-quantized", floats("block")),
    "NVFP4": ("nvfp4-pack-quantized", NVFP4),
    "MXFP4": ("mxfp4-pack-quantized", MXFP4),
}


def grouped(weight: torch.Tensor, args: dict[str, Any]) -> torch.Tensor:
    """The weight as [N, G, weights that share a scale]."""
    rows, columns = weight.shape
    size = {"channel": columns, "tensor": columns}.get(args["strategy"], args.get("group_size"))
    return weight.view(rows, columns // (size or columns), -1)


def scales_of(weight: torch.Tensor, args: dict[str, Any]) -> Mapping[str, torch.Tensor]:
    """Plain scales of the strategy: the largest weight gets the largest code."""
    if args["strategy"] == "block":
        rows, columns = weight.shape
        padded = torch.nn.functional.pad(weight, (0, -columns % 128, 0, -rows % 128))
        blocks = padded.unflatten(0, (-1, 128)).unflatten(2, (-1, 128))
        return {"weight_scale": (blocks.abs().amax((1, 3)) / 448).to(torch.bfloat16)}
    groups = grouped(weight, args)
    largest = groups.abs().amax(2)
    if args["strategy"] == "tensor":
        return {"weight_scale": (largest.max() / 448).view(1)}
    if args == NVFP4:
        whole = 448 * 6 / weight.abs().max()
        return {"weight_scale": (largest / 6 * whole).to(torch.float8_e4m3fn).float(),
                "weight_global_scale": whole.view(1)}  # fmt: skip
    if args == MXFP4:
        return {"weight_scale": 2.0 ** (largest / 6).log2().ceil()}
    if args["type"] == "float":
        return {"weight_scale": (largest / 448).to(torch.bfloat16)}
    if args["symmetric"]:
        negative = torch.arange(largest.numel()).view_as(largest) % 2 * 2 - 1
        return {"weight_scale": (largest / (2 ** (args["num_bits"] - 1) - 1) * negative).half()}
    low, high, half = groups.amin(2), groups.amax(2), 2 ** (args["num_bits"] - 1)
    scale = ((high - low) / (2 * half - 1)).half()
    zero = (-half - low / scale.float()).round().clamp(-half, half - 1).to(torch.int8)
    return {"weight_scale": scale, "weight_zero_point": zero}


def library(name: str) -> Any:
    """What stores one module, and gives its values back in float32."""
    kind, args = SCHEMES[name]
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args))
    compressor = BaseCompressor.get_value_from_registry(kind)

    def quantise(module: str, weight: torch.Tensor) -> tuple[Any, torch.Tensor]:
        scales = scales_of(weight, args)
        parts = compressor.compress({"weight": weight, **scales}, scheme)
        if "weight_packed" in parts and parts["weight_packed"].dtype == torch.uint8:
            return parts, small_floats(parts, scales["weight_scale"], scheme)
        wide = {**parts, "weight_scale": parts["weight_scale"].float()}
        return parts, compressor.decompress(wide, scheme)["weight"]

    return quantise


def small_floats(parts: Any, scales: torch.Tensor, scheme: QuantizationScheme) -> torch.Tensor:
    """The library's values in float32; its decompressor gives bfloat16."""
    rows, half = parts["weight_packed"].shape
    codes = unpack_fp4_from_uint8(parts["weight_packed"], rows, 2 * half, dtype=torch.float32)
    whole = parts.get("weight_global_scale")
    args, wide = scheme.weights, torch.float32
    return dequantize(codes, scales.float(), None, args, dtype=wide, global_scale=whole)


@pytest.mark.parametrize("name", SCHEMES)
def test_values_and_logits(tmp_path: Path, name: str) -> None:
    config = {"quant_method": "compressed-tensors", "format": SCHEMES[name][0]}
    folder, model, values = quantised_folder(tmp_path, config, library(name))
    files = open_model(folder)
    assert len(values) > 20
    for module, expected in values.items():
        entry = files.tensors[str(_canonical(f"{module}.weight"))]
        assert isinstance(entry, SchemeEntry)
        if min(expected.shape) > 128:  # one group, or one block, could be either
            assert entry.format == name, module
        assert torch.equal(entry.values(), expected), module
        assert torch.equal(packing.dequantise(entry.packed()), expected), module
    with torch.no_grad():
        theirs = model(torch.tensor([IDS])).logits[0]
    ours = HearthLogits(files, max_tokens=len(IDS)).feed(IDS)
    assert (ours - theirs).norm() < 1e-4 * theirs.norm()


def test_a_mixed_checkpoint(tmp_path: Path) -> None:
    """As published: MLPs of early layers NVFP4, other linears FP8, the MTP module as trained."""
    nvfp4, fp8 = library("NVFP4"), library("FP8 channel")

    def quantise(module: str, weight: torch.Tensor) -> Any:
        if module.startswith("mtp."):
            return None
        return (nvfp4 if ".mlp." in module and ".0." in module else fp8)(module, weight)

    config = {"quant_method": "compressed-tensors", "format": "mixed-precision"}
    folder, _, _ = quantised_folder(tmp_path, config, quantise)
    formats = {name: entry.format for name, entry in open_model(folder).tensors.items()}
    assert formats["layers.0.gate"] == "NVFP4"
    assert formats["layers.1.gate"] == "FP8 channel"
    assert formats["mtp.layers.0.gate"] == "F32"
    assert random_model().config.vocab_size == 320
