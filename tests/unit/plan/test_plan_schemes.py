"""What the plan says of quantised safetensors is at least what packing them takes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from hearth.engine.plan import weights
from hearth.engine.weights import stored_formats
from hearth.kernels.ggml_blocks import Blocks
from hearth.kernels.packing_gguf import pack_blocks

ROWS, COLUMNS = 100, 640
# name: inputs that share a scale in kernel layout, what codes are, whether there are offsets
PACKED: dict[str, tuple[int, str, bool]] = {
    "int4 g128": (128, "int4", False),
    "int4 g32": (32, "int4", False),
    "int4 g32 asymmetric": (32, "uint4", True),
    "int4 channel asymmetric": (128, "uint4", True),
    "int4 g64, activation order": (64, "int4", False),
    "int8 channel": (128, "int8", False),
    "FP8 tensor": (128, "e4m3", False),
    "FP8 channel": (128, "e4m3", False),
    "FP8 block 128x128": (128, "e4m3", False),
    "FP8 block 64x64": (64, "e4m3", False),
    "fp8 128x128": (128, "e4m3", False),
    "MXFP8": (32, "e4m3", False),
    "NVFP4": (16, "e2m1", False),
}


@dataclass(frozen=True)
class Named:
    format: str
    shape: tuple[int, int] = (ROWS, COLUMNS)
    num_bytes: int = 0


def blocks(group: int, kind: str, *, has_offsets: bool, dtype: torch.dtype) -> Blocks:
    generator = torch.Generator().manual_seed(group)
    low, high = (-8, 8) if kind == "int4" else (-128, 128) if kind == "int8" else (0, 16)
    codes = torch.randint(low, high, (ROWS, COLUMNS), generator=generator)
    scales = torch.randn(ROWS, COLUMNS // group, generator=generator).to(dtype).float() * 1e-6
    offsets = -3.0 * scales if has_offsets else None
    small = kind if kind in ("e4m3", "e2m1") else None
    stored = codes.to(torch.int8 if low < 0 else torch.uint8)
    return Blocks(stored, scales, offsets, group, small)


@pytest.mark.parametrize("name", PACKED)
def test_packed_matrices_take_at_most_what_is_planned(name: str) -> None:
    """Scales that no float16 holds: what published ones may be."""
    group, kind, has_offsets = PACKED[name]
    slab = blocks(group, kind, has_offsets=has_offsets, dtype=torch.float32)
    packed = pack_blocks((ROWS, COLUMNS), lambda: iter([slab])).num_bytes
    planned = weights.host_bytes(Named(name))  # type: ignore[arg-type]
    order = 4 * COLUMNS if "order" in name else 0
    assert planned == packed + order


def test_formats_of_synthetic_weights_are_planned() -> None:
    for stored in (stored_formats.INT4, stored_formats.INT8, stored_formats.FP8_CHANNELS):
        planned = weights.host_bytes(Named(stored.name))  # type: ignore[arg-type]
        exact = 128 * COLUMNS // stored.form.group * stored.form.group_bytes // 16
        assert exact <= planned <= exact * 1.05


def test_what_is_made_here_keeps_its_own_size() -> None:
    entry = Named("int8 g128 (made here)", (64, COLUMNS), num_bytes=1234)
    assert weights.host_bytes(entry) == 1234  # type: ignore[arg-type]
