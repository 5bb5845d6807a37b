"""Every ggml block format against gguf's own dequantiser, on random blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants

from hearth.kernels.ggml_blocks import LAYOUTS, dequantise

NUM_ROWS, NUM_BLOCKS = 7, 5
HALF_FIELDS = {  # byte offsets of float16 fields, which random bytes would make inf or nan
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82),
    "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,),
}  # fmt: skip


def random_rows(ggml_type: int, seed: int) -> np.ndarray:
    layout = LAYOUTS[ggml_type]
    random = np.random.default_rng(seed)
    rows = random.integers(0, 256, (NUM_ROWS, NUM_BLOCKS, layout.num_bytes), dtype=np.uint8)
    for byte in HALF_FIELDS.get(layout.name, ()):
        halves = random.normal(0, 0.05, (NUM_ROWS, NUM_BLOCKS, 1)).astype(np.float16)
        rows[..., byte : byte + 2] = halves.view(np.uint8)
    if layout.name == "MXFP4":
        rows[..., 0] = random.integers(100, 150, (NUM_ROWS, NUM_BLOCKS))
    if layout.name == "NVFP4":
        rows[..., :4] &= 0x7F  # the scale is unsigned
    return rows.reshape(NUM_ROWS, -1)


@pytest.mark.parametrize("ggml_type", [t for t in LAYOUTS if LAYOUTS[t].elements > 1])
@pytest.mark.parametrize("seed", [0, 1])
def test_equals_gguf_bit_for_bit(ggml_type: int, seed: int) -> None:
    rows = random_rows(ggml_type, seed)
    expected = quants.dequantize(rows, GGMLQuantizationType(ggml_type))
    actual = dequantise(torch.from_numpy(rows), ggml_type).numpy()
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual, expected)


def test_every_size_is_gguf_s() -> None:
    from gguf.constants import GGML_QUANT_SIZES

    for ggml_type, layout in LAYOUTS.items():
        size = GGML_QUANT_SIZES[GGMLQuantizationType(ggml_type)]
        assert size == (layout.elements, layout.num_bytes), layout.name
