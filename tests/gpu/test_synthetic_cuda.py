"""Synthetic weights are made on the GPU itself: nothing passes through host memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import torch

from hearth.engine.weights.shapes import FORMATS
from hearth.engine.weights.synthetic import open_synthetic
from hearth.kernels import packing

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("checkpoint", FORMATS)
def test_weights_are_made_where_they_are_used(checkpoint: str) -> None:
    on_gpu, on_cpu = (open_synthetic("tiny", checkpoint, device=d) for d in ("cuda", "cpu"))
    assert on_gpu.fingerprint != on_cpu.fingerprint
    for name, entry in on_gpu.tensors.items():
        if len(entry.shape) == 1 or name.endswith("conv"):
            assert entry.values().is_cuda
            continue
        packed, twin = entry.packed(), on_cpu.tensors[name].packed()
        assert packed.data.is_cuda
        assert (packed.format, packed.num_bytes) == (twin.format, twin.num_bytes)
        values = entry.values()
        on_host = packing.PackedLinear(packed.shape, packed.format, packed.data.cpu())
        assert torch.equal(values.cpu(), packing.dequantise(on_host))
        assert torch.isfinite(values).all()
        if values.numel() > 4096:
            assert 0.7 < values.var() * values.shape[1] < 1.4, name
        assert torch.equal(entry.packed().data, packed.data), "the same every time"


def test_the_27b_shape_is_made_within_a_minute_and_needs_no_second_copy(
    record_property: Callable[[str, object], None],
) -> None:
    files = open_synthetic("qwen3.8-27b", "w4a16", device="cuda")
    if torch.cuda.mem_get_info()[0] < files.weight_bytes * 1.1:
        pytest.skip("the device has too little free memory")
    torch.cuda.reset_peak_memory_stats()
    before, started = torch.cuda.memory_allocated(), time.perf_counter()
    kept = [
        entry.packed()
        for name, entry in files.tensors.items()
        if len(entry.shape) == 2 and not name.endswith("conv")
    ]
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    held = sum(packed.num_bytes for packed in kept)
    peak = torch.cuda.max_memory_allocated() - before
    record_property("gigabytes", held / 1e9)
    record_property("seconds", seconds)
    assert seconds < 60.0
    assert peak < held + (128 << 20)  # noise, and a mask's temporary
