"""Packing in slabs: the same bytes as in one piece, whatever the slabs, and bounded memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from hearth.kernels import ggml_blocks, packing, packing_gguf

sys.path.insert(0, str(Path(__file__).parents[1] / "weights"))
from live_tensors import LiveTensors

ROWS, COLUMNS = 200, 512


def random_raw(ggml_type: int) -> torch.Tensor:
    layout = ggml_blocks.LAYOUTS[ggml_type]
    shape = (ROWS, COLUMNS // layout.elements * layout.num_bytes)
    generator = torch.Generator().manual_seed(ggml_type)
    raw = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    return raw & 0x3B  # no float16 of these is infinite


def in_slabs(
    monkeypatch: pytest.MonkeyPatch, raw: torch.Tensor, ggml_type: int, max_weights: int
) -> packing.PackedLinear:
    monkeypatch.setattr(packing, "SLAB_WEIGHTS", max_weights)
    order = torch.arange(ROWS).flip(0)
    return packing_gguf.pack_gguf(raw, ggml_type, order)


@pytest.mark.parametrize("ggml_type", ggml_blocks.LAYOUTS)
def test_slabs_change_no_byte(monkeypatch: pytest.MonkeyPatch, ggml_type: int) -> None:
    raw = random_raw(ggml_type)
    whole = in_slabs(monkeypatch, raw, ggml_type, ROWS * COLUMNS)
    for max_weights in (1, 128 * COLUMNS):
        parts = in_slabs(monkeypatch, raw, ggml_type, max_weights)
        assert (parts.format, parts.shape) == (whole.format, whole.shape)
        assert torch.equal(parts.data, whole.data)
    expected = ggml_blocks.dequantise(raw.flip(0), ggml_type)
    torch.testing.assert_close(packing.dequantise(whole), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("ggml_type", "first_byte", "name_before"),
    [
        (ggml_blocks.Q5_0, 2, "u4b16g32h"),  # no fifth bits: codes of 4 bits
        (ggml_blocks.Q8_0, 2, "u4b4g32h"),  # codes of 0
    ],
)
def test_a_later_slab_widens_the_format(
    monkeypatch: pytest.MonkeyPatch, ggml_type: int, first_byte: int, name_before: str
) -> None:
    raw = random_raw(ggml_type)
    layout = ggml_blocks.LAYOUTS[ggml_type]
    blocks = raw.view(ROWS, -1, layout.num_bytes)
    blocks[72:, :, first_byte:] = 0  # the order is turned round: these are packed first
    narrow = in_slabs(monkeypatch, torch.cat((raw[72:], raw[72:144])), ggml_type, 64 * COLUMNS)
    assert narrow.format.name == name_before
    parts = in_slabs(monkeypatch, raw, ggml_type, 64 * COLUMNS)
    whole = in_slabs(monkeypatch, raw, ggml_type, ROWS * COLUMNS)
    assert parts.format.bits == 8
    assert parts.format == whole.format
    assert torch.equal(parts.data, whole.data)


@pytest.mark.parametrize("ggml_type", [ggml_blocks.Q4_K, ggml_blocks.Q6_K, ggml_blocks.BF16])
def test_beside_the_result_only_a_slab_is_held(
    monkeypatch: pytest.MonkeyPatch, ggml_type: int
) -> None:
    raw = random_raw(ggml_type).repeat(20, 1)
    monkeypatch.setattr(packing, "SLAB_WEIGHTS", 64 * COLUMNS)
    with LiveTensors() as live:
        packed = packing_gguf.pack_gguf(raw, ggml_type)
    beside = live.peak_bytes - packed.num_bytes - raw.numel()
    assert beside < 24 * 64 * COLUMNS
