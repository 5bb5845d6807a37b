"""Every ggml block format against gguf's own dequantiser, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants
from gguf.constants import GGML_QUANT_SIZES

from hearth.kernels.ggml_blocks import LAYOUTS, Q4_0, Q5_0, decode_blocks, dequantise

NUM_ROWS, NUM_BLOCKS = 7, 5
HALF_FIELDS = {  # byte offsets of float16 fields, which random bytes would make inf or nan
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82),
    "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,),
}  # fmt: skip
# Zeros, the smallest and the largest subnormal, the smallest normal, the largest.
EDGE_SCALES = np.array(
    [0.0, -0.0, 2**-24, -(2**-24), 2**-14 - 2**-24, 2**-14, 65504.0, -65504.0], dtype=np.float16
)
BLOCK_TYPES = [ggml_type for ggml_type, layout in LAYOUTS.items() if layout.elements > 1]
FLOAT_TYPES = [ggml_type for ggml_type, layout in LAYOUTS.items() if layout.elements == 1]


def random_rows(ggml_type: int, seed: int, *, edges: bool, num_rows: int = NUM_ROWS) -> np.ndarray:
    """Random blocks; scales normal, or drawn from the edges of float16."""
    layout = LAYOUTS[ggml_type]
    random = np.random.default_rng(seed)
    rows = random.integers(0, 256, (num_rows, NUM_BLOCKS, layout.num_bytes), dtype=np.uint8)
    for byte in HALF_FIELDS.get(layout.name, ()):
        shape = (num_rows, NUM_BLOCKS, 1)
        halves = random.choice(EDGE_SCALES, shape) if edges else random.normal(0, 0.05, shape)
        rows[..., byte : byte + 2] = halves.astype(np.float16).view(np.uint8)
    if layout.name == "MXFP4":
        low, high = (0, 255) if edges else (100, 150)  # 255 is the format's NaN
        rows[..., 0] = random.integers(low, high, (num_rows, NUM_BLOCKS))
    return rows.reshape(num_rows, -1)


def bits(values: np.ndarray, ggml_type: int) -> np.ndarray:
    """Q4_0 and Q5_0 may give a zero of the other sign: there, zeros count as equal."""
    if ggml_type in (Q4_0, Q5_0):
        values = values + np.float32(0.0)
    return np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)


def assert_same_bits(rows: np.ndarray, actual: torch.Tensor, ggml_type: int) -> None:
    with np.errstate(over="ignore"):  # the largest exponents of MXFP4
        expected = quants.dequantize(rows, GGMLQuantizationType(ggml_type))
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(bits(actual.numpy(), ggml_type), bits(expected, ggml_type))


@pytest.mark.parametrize("ggml_type", BLOCK_TYPES, ids=lambda t: LAYOUTS[t].name)
@pytest.mark.parametrize("edges", [False, True])
def test_equals_gguf_bit_for_bit(ggml_type: int, edges: bool) -> None:
    for seed in range(3):
        rows = random_rows(ggml_type, seed, edges=edges)
        assert_same_bits(rows, dequantise(torch.from_numpy(rows), ggml_type), ggml_type)


@pytest.mark.parametrize("ggml_type", list(LAYOUTS), ids=lambda t: LAYOUTS[t].name)
@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_one_block_at_any_address(ggml_type: int, shift: int) -> None:
    """A single block is contiguous where it lies, so that views of its parts may be unaligned."""
    layout = LAYOUTS[ggml_type]
    row = random_rows(ggml_type, 5, edges=False, num_rows=1)[:, : layout.num_bytes]
    if layout.elements == 1:
        row = np.array([[0] * (layout.num_bytes - 1) + [0x40]], dtype=np.uint8)
    buffer = torch.zeros(shift + layout.num_bytes, dtype=torch.uint8)
    buffer[shift:] = torch.from_numpy(row[0].copy())
    assert_same_bits(row, dequantise(buffer[shift:].view(1, -1), ggml_type), ggml_type)


@pytest.mark.parametrize("ggml_type", BLOCK_TYPES, ids=lambda t: LAYOUTS[t].name)
def test_rows_picked_from_a_larger_matrix(ggml_type: int) -> None:
    rows = random_rows(ggml_type, 9, edges=False)
    picked = torch.from_numpy(rows)[::2]
    assert_same_bits(rows[::2], dequantise(picked, ggml_type), ggml_type)


@pytest.mark.parametrize("ggml_type", FLOAT_TYPES, ids=lambda t: LAYOUTS[t].name)
def test_floats_of_every_bit_pattern(ggml_type: int) -> None:
    words = np.arange(0, 1 << 16, dtype=np.uint16).view(np.uint8).reshape(64, -1)
    actual = dequantise(torch.from_numpy(words), ggml_type).numpy()
    expected = quants.dequantize(words, GGMLQuantizationType(ggml_type))
    np.testing.assert_array_equal(actual, expected)  # NaN equals NaN, whatever its payload


@pytest.mark.parametrize("ggml_type", BLOCK_TYPES, ids=lambda t: LAYOUTS[t].name)
def test_codes_scales_and_offsets_have_the_promised_shapes(ggml_type: int) -> None:
    rows = random_rows(ggml_type, 3, edges=False)
    blocks = decode_blocks(torch.from_numpy(rows), ggml_type)
    columns = NUM_BLOCKS * LAYOUTS[ggml_type].elements
    assert blocks.codes.shape == (NUM_ROWS, columns)
    assert blocks.codes.dtype in (torch.uint8, torch.int8)
    assert blocks.scales.shape == (NUM_ROWS, columns // blocks.group)
    assert blocks.scales.dtype == torch.float32
    assert blocks.offsets is None or blocks.offsets.shape == blocks.scales.shape


def test_every_size_is_gguf_s() -> None:
    for ggml_type, layout in LAYOUTS.items():
        size = GGML_QUANT_SIZES[GGMLQuantizationType(ggml_type)]
        assert size == (layout.elements, layout.num_bytes), layout.name
