"""One quantised linear layer as a file, opened without a model around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safetensors.torch import save_file

from hearth.engine.weights.folder_tensors import group_tensors
from hearth.engine.weights.schemes import Quantisation, open_module

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from hearth.engine.weights.schemes.entry import SchemeEntry

MODULE = "model.layers.0.mlp.up_proj"


def open_parts(
    folder: Path, parts: Mapping[str, torch.Tensor], how: Quantisation | None
) -> SchemeEntry:
    """The entry of a module with these parts."""
    file = folder / "model.safetensors"
    save_file({f"{MODULE}.{part}": value.contiguous() for part, value in parts.items()}, file)
    modules = group_tensors([file], lambda name: name, lambda _shard, _name: None)
    (module,) = modules.values()
    return open_module(module, how)
