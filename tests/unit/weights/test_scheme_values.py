"""What a module's parts are worth, against packers that set bit by bit what a format describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tiny_modules import open_parts

from hearth.engine.weights.schemes import Quantisation
from hearth.kernels import packing

if TYPE_CHECKING:
    from pathlib import Path

N, K = 80, 192
CT = Quantisation("compressed-tensors")


def bit_stream(values: np.ndarray, bits: int) -> torch.Tensor:
    """int32 [R, ceil(C bits / 32)]: value c of a row at bit c * bits."""
    rows, columns = values.shape
    result = np.zeros((rows, -(-columns * bits // 32)), dtype=np.uint32)
    for row in range(rows):
        for bit in range(columns * bits):
            value = int(values[row, bit // bits]) >> (bit % bits) & 1
            result[row, bit // 32] |= np.uint32(value << (bit % 32))
    return torch.from_numpy(result.view(np.int32))


def pack_quantized(
    bits: int, group: int, dtype: torch.dtype, *, is_symmetric: bool, index: torch.Tensor | None
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Random parts, and their values by one multiplication a weight."""
    random = np.random.default_rng(bits + group)
    codes = random.integers(0, 2**bits, (N, K))
    scales = torch.from_numpy(random.normal(0, 0.1, (N, K // group))).to(dtype)  # of both signs
    zeros = random.integers(0, 2**bits, scales.shape)
    if is_symmetric:
        zeros[:] = 2 ** (bits - 1)
    parts = {
        "weight_packed": bit_stream(codes, bits),
        "weight_scale": scales,
        "weight_shape": torch.tensor([N, K]),
    }
    if not is_symmetric:
        parts["weight_zero_point"] = bit_stream(zeros.T, bits).t()
    group_of = np.arange(K) // group
    if index is not None:
        parts["weight_g_idx"] = index.int()
        group_of = group_of if bool((index < 0).all()) else index.numpy()
    shifted = torch.from_numpy((codes - zeros[:, group_of]).astype(np.float32))
    return parts, shifted * scales.float()[:, group_of]


def check(folder: Path, how: Quantisation, parts: dict[str, torch.Tensor], values: object) -> str:
    entry = open_parts(folder, parts, how)
    assert entry.shape == (N, K)
    assert torch.equal(entry.values(), values)
    assert torch.equal(packing.dequantise(entry.packed()), values)
    return entry.format


@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [16, 32, 64, K])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_pack_quantized(
    tmp_path: Path, dtype: torch.dtype, group: int, bits: int, is_symmetric: bool
) -> None:
    parts, values = pack_quantized(bits, group, dtype, is_symmetric=is_symmetric, index=None)
    size = "channel" if group == K else f"g{group}"
    found = check(tmp_path, CT, parts, values)
    assert found == f"int{bits} {size}{'' if is_symmetric else ' asymmetric'}"


@pytest.mark.parametrize("is_symmetric", [True, False])
def test_activation_order_of_compressed_tensors(tmp_path: Path, is_symmetric: bool) -> None:
    index = torch.arange(K)[torch.randperm(K, generator=torch.Generator().manual_seed(1))] // 32
    parts, values = pack_quantized(4, 32, torch.half, is_symmetric=is_symmetric, index=index)
    assert check(tmp_path, CT, parts, values).endswith(", activation order")


def test_an_index_that_was_never_set_is_no_order(tmp_path: Path) -> None:
    parts, values = pack_quantized(4, 32, torch.half, is_symmetric=True, index=torch.full((K,), -1))
    assert check(tmp_path, CT, parts, values) == "int4 g32"


def gptq(zero_offset: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """``zero_offset``: what is taken from zero points before they are stored, modulo 16."""
    random = np.random.default_rng(7)
    codes, zeros = random.integers(0, 16, (N, K)), random.integers(0, 16, (N, K // 64))
    scales = torch.from_numpy(random.normal(0, 0.1, (N, K // 64)).astype(np.float16))
    parts = {
        "qweight": bit_stream(codes, 4).t(),
        "qzeros": bit_stream((zeros.T - zero_offset) % 16, 4),
        "scales": scales.t(),
    }
    group_of = np.arange(K) // 64
    shifted = torch.from_numpy((codes - zeros[:, group_of]).astype(np.float32))
    return parts, shifted * scales.float()[:, group_of]


@pytest.mark.parametrize(("layout", "zero_offset"), [("gptq", 1), ("gptq_v2", 0)])
def test_gptq_without_an_index(tmp_path: Path, layout: str, zero_offset: int) -> None:
    """Zero points of 0 are stored as 15 in the first format."""
    parts, values = gptq(zero_offset)
    assert check(tmp_path, Quantisation("gptq", layout), parts, values) == "int4 g64 asymmetric"


def small_floats(scale_shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn((N, K), generator=generator).to(torch.float8_e4m3fn)
    return weight, torch.rand(scale_shape, generator=generator) + 0.1


@pytest.mark.parametrize("name", ["weight_scale", "weight_scale_inv"])
@pytest.mark.parametrize("shape", [(1, 2), (1, 1, 2, 1)])
def test_blocks_of_fp8(tmp_path: Path, shape: tuple[int, ...], name: str) -> None:
    """ModelOpt stores scales of blocks with four dimensions; the last block is not full."""
    weight, scales = small_floats(shape)
    values = torch.empty(N, K)
    for row in range(N):
        for column in range(K):
            place = (row // 128) * 2 + column // 128
            values[row, column] = weight[row, column].float() * scales.flatten()[place]
    how = Quantisation("modelopt")
    assert check(tmp_path, how, {"weight": weight, name: scales}, values) == "FP8 block 128x128"


def test_blocks_of_another_size(tmp_path: Path) -> None:
    weight, scales = small_floats((3, 6))
    values = weight.float() * scales.repeat_interleave(32, 0)[:N].repeat_interleave(32, 1)
    how = Quantisation("fp8", block=(32, 32))
    parts = {"weight": weight, "weight_scale_inv": scales}
    assert check(tmp_path, how, parts, values) == "FP8 block 32x32"


@pytest.mark.parametrize(
    ("shape", "kind"), [((), "tensor"), ((1,), "tensor"), ((N,), "channel"), ((N, 1), "channel")]
)
def test_scales_of_rows_and_tensors(tmp_path: Path, shape: tuple[int, ...], kind: str) -> None:
    weight, scales = small_floats(shape)
    values = weight.float() * scales.view(-1, 1)
    parts = {"weight": weight, "weight_scale": scales}
    assert check(tmp_path, CT, parts, values) == f"FP8 {kind}"


def test_int_quantized(tmp_path: Path) -> None:
    """Two's complement, unlike pack-quantized; one scale for all rows too."""
    generator = torch.Generator().manual_seed(4)
    weight = torch.randint(-128, 128, (N, K), dtype=torch.int8, generator=generator)
    for shape in ((N, 1), (1,), (N, 3)):
        scales = torch.rand(shape, generator=generator).bfloat16()
        columns = scales.float().view(-1, shape[-1]).repeat_interleave(K // shape[-1], 1)
        parts = {"weight": weight, "weight_scale": scales}
        check(tmp_path, CT, parts, weight.float() * columns)


def test_mxfp8(tmp_path: Path) -> None:
    weight, _ = small_floats((1,))
    exponents = torch.randint(100, 140, (N, K // 32), dtype=torch.uint8)
    values = weight.float() * torch.exp2(exponents.float() - 127).repeat_interleave(32, 1)
    parts = {"weight": weight, "weight_scale": exponents}
    assert check(tmp_path, CT, parts, values) == "MXFP8"
