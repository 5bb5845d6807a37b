"""What the plan says of the processor's memory is what packing really takes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from hearth.engine.plan import weights
from hearth.engine.weights.entries import TensorEntry
from hearth.kernels import ggml_blocks, packing

ROWS, COLUMNS = 100, 512


def entry(ggml_type: int) -> TensorEntry:
    layout = ggml_blocks.LAYOUTS[ggml_type]
    generator = torch.Generator().manual_seed(ggml_type)
    blocks = COLUMNS // layout.elements
    raw = torch.randint(
        0, 60, (ROWS, blocks * layout.num_bytes), dtype=torch.uint8, generator=generator
    )
    return TensorEntry("layers.0.up", (ROWS, COLUMNS), ggml_type, raw)


@pytest.mark.parametrize("ggml_type", ggml_blocks.LAYOUTS)
def test_packed_matrices_take_at_most_what_is_planned(ggml_type: int) -> None:
    tensor = entry(ggml_type)
    packed, planned = tensor.packed().num_bytes, weights.host_bytes(tensor)
    assert packed <= planned <= packed * 1.5


@pytest.mark.parametrize("ggml_type", [ggml_blocks.Q4_0, ggml_blocks.Q8_0, ggml_blocks.BF16])
def test_common_formats_are_planned_exactly(ggml_type: int) -> None:
    tensor = entry(ggml_type)
    assert tensor.packed().num_bytes == weights.host_bytes(tensor)


def test_every_readable_format_is_known() -> None:
    names = {layout.name for layout in ggml_blocks.LAYOUTS.values()}
    assert names == set(weights.HOST_GROUPS) | weights.FLOAT_FORMATS
    assert weights.HOST_UNIT == packing.UNIT


@dataclass(frozen=True)
class Vector:
    shape: tuple[int, ...] = (96,)
    format: str = "BF16"
    num_bytes: int = 192


def test_vectors_become_float32() -> None:
    assert weights.host_bytes(Vector()) == 384  # type: ignore[arg-type]
