"""A drafter whose linears compressed-tensors stored as int4 drafts what its values say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dflash_models import Pair, random_taps
from float64 import dflash as oracle
from tiny_drafters import TARGET, dflash2_config, drafter_tensors, write_drafter

from hearth.engine.draft.dflash import Ask, _Block
from hearth.engine.draft.dflash_files import open_drafter

if TYPE_CHECKING:
    from pathlib import Path

    import torch

pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")

from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

GROUP = 32
WEIGHTS = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group",
           "group_size": GROUP}  # fmt: skip
STATED: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": WEIGHTS}},
}


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """Layers and the projection of taps int4, the selector bf16."""
    config = dflash2_config()
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**WEIGHTS))
    library = BaseCompressor.get_value_from_registry("pack-quantized")
    parts: dict[str, torch.Tensor] = {}
    values = drafter_tensors(config)
    for name, tensor in list(values.items()):
        module = name.removesuffix(".weight")
        if not module.endswith(("_proj", "fc")):
            parts[name] = tensor
            continue
        weight = tensor.float()
        scale = (weight.view(len(weight), -1, GROUP).abs().amax(2) / -7).half()
        made = library.compress({"weight": weight, "weight_scale": scale}, scheme)
        parts |= {f"{module}.{part}": value.contiguous() for part, value in made.items()}
        values[name] = library.decompress({**made, "weight_scale": scale.float()}, scheme)["weight"]
    published = write_drafter(tmp_path / "int4", config | {"quantization_config": STATED}, parts)
    return Pair(write_drafter(tmp_path / "float", config, values), published=published)


def relative_error(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


def test_formats_and_a_block(pair: Pair, tmp_path: Path) -> None:
    tensors = open_drafter(tmp_path / "int4", TARGET).tensors
    formats = {tensors[name].format for name in ("fc", "layers.1.mlp.up_proj")}
    assert formats == {"int4 g32"}
    taps, anchor = random_taps(20), 17
    context = pair.engine.new_context()
    pair.engine.append(context, taps, 0)
    parts = [_Block(Ask(context, anchor, len(taps), 5), 0, 6)]
    hidden = pair.engine._drafting_rows(pair.engine._forward(parts), parts)
    theirs = oracle.block_forward(pair.oracle, taps.numpy(), anchor, 5)
    assert relative_error(hidden.numpy(), theirs.hidden) < 1e-4
    assert relative_error(pair.engine._logits(hidden).numpy(), theirs.logits) < 1e-4
