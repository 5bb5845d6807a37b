"""Tiny hybrid checkpoints whose linear layers are stored quantised, and what they are worth."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hybrid_models import random_model, save, text_config
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import torch

    Parts = Mapping[str, torch.Tensor]

SIZES = {"hidden_size": 256, "intermediate_size": 256, "linear_value_head_dim": 32}
LINEARS = ("_proj", "in_proj_qkv", "in_proj_z", "mtp.fc", "lm_head")


def is_linear(module: str) -> bool:
    """Gates of Gated DeltaNet are small and never quantised."""
    return module.endswith(LINEARS)


def quantised_folder(
    folder: Path,
    config: Mapping[str, Any],
    quantise: Callable[[str, torch.Tensor], tuple[Parts, torch.Tensor] | None],
) -> tuple[Path, Any, dict[str, torch.Tensor]]:
    """A folder whose modules are what ``quantise`` makes of them (None: as they are), transformers'
    model of their values, and those values by module."""
    model = random_model(**SIZES)
    save(model, folder)
    file = folder / "model.safetensors"
    stored: dict[str, torch.Tensor] = {}
    values: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(file).items():
        module = name.removesuffix(".weight")
        made = quantise(module, tensor.float()) if is_linear(module) else None
        if made is None:
            stored[name] = tensor
            continue
        parts, values[module] = made
        stored |= {f"{module}.{part}": value.contiguous() for part, value in parts.items()}
    save_file(stored, file, {"format": "pt"})
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | {"quantization_config": dict(config)}))
    state = {f"{module}.weight": value for module, value in values.items()}
    model.load_state_dict(
        {k: v for k, v in state.items() if not k.startswith("mtp.")}, strict=False
    )
    assert text_config(**SIZES).hidden_size == model.config.hidden_size
    return folder, model, values
