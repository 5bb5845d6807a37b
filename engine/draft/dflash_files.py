"""Opens the folder of a DFlash drafter: its configuration and exactly the tensors it asks for.

Tensors keep their published names, without ``model.`` before and ``.weight`` behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.engine.draft.dflash_config import UndeclaredCausality
from hearth.engine.draft.dflash_config_file import read_dflash_config
from hearth.engine.errors import UserError
from hearth.engine.weights.entries import TensorEntry
from hearth.engine.weights.files import shown
from hearth.engine.weights.folder import shards_of
from hearth.engine.weights.folder_tensors import WHOLE, group_tensors
from hearth.engine.weights.json_files import read_json
from hearth.engine.weights.schemes import Module, Quantisation, open_module, read_quantisation

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hearth.engine.draft.dflash_config import DflashConfig
    from hearth.engine.model.config import ModelConfig
    from hearth.engine.weights.entries import WeightEntry

SIDES = 2  # a convolution before a sublayer and one behind it


@dataclass(frozen=True, slots=True)
class DflashFiles:
    """An opened drafter that fits its target."""

    path: Path
    config: DflashConfig
    tensors: Mapping[str, WeightEntry]


def open_drafter(
    path: Path,
    target: ModelConfig,
    *,
    undeclared: UndeclaredCausality = UndeclaredCausality.BY_KIND,
) -> DflashFiles:
    """Raises UserError or MachineError with a sentence: what is missing, damaged, unknown, or made
    for another model than ``target``."""
    raw = read_json(path / "config.json")
    config = read_dflash_config(path, raw, target, undeclared)
    tensors = _tensors(path, read_quantisation(path, raw))
    _check_tensors(path, config, tensors)
    return DflashFiles(path, config, tensors)


def _tensors(path: Path, how: Quantisation | None) -> dict[str, WeightEntry]:
    modules = group_tensors(shards_of(path), _bare_name, lambda _shard, _name: None)
    return {name: _entry(module, how) for name, module in modules.items()}


def _bare_name(published: str) -> str:
    return published.removeprefix("model.").removesuffix(".weight")


def _entry(module: Module, how: Quantisation | None) -> WeightEntry:
    tensor = module.parts.get(WHOLE)
    if len(module.parts) > 1 or tensor is None:
        return open_module(module, how)
    if tensor.ggml_type is None:
        raise module.refused(f"as {shown(tensor.dtype)}")
    return TensorEntry(module.name, tensor.shape, tensor.ggml_type, tensor.raw())


def _check_tensors(path: Path, config: DflashConfig, tensors: Mapping[str, WeightEntry]) -> None:
    """Exactly what the configuration asks for: a part left out silently drafts nonsense."""
    expected = expected_shapes(config)
    for name, shape in expected.items():
        entry = tensors.get(name)
        if entry is None:
            raise _wrong(path, f"lacks the tensor {name}")
        if entry.shape != shape:
            why = f"has {name} with shape {entry.shape}, but its configuration needs {shape}"
            raise _wrong(path, why)
    for name in tensors:
        if name not in expected:
            raise _wrong(path, f"holds {shown(name)}, which Hearth does not know in a drafter")


def _wrong(path: Path, what: str) -> UserError:
    return UserError(
        f"The drafter {shown(path.name)} {what}.",
        action="Download it again, or choose another version of the drafter.",
    )


def expected_shapes(config: DflashConfig) -> dict[str, tuple[int, ...]]:
    """Name to shape of every tensor that the configuration needs."""
    hidden = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "fc": (hidden, len(config.target_layer_ids) * hidden),
        "hidden_norm": (hidden,),
        "norm": (hidden,),
    }
    for layer in range(config.num_hidden_layers):
        of_layer = _layer_shapes(config) | _conv_shapes(config)
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in of_layer.items()}
    if config.selector is not None:
        rank, prefix = config.selector.rank, "candidate_selector."
        shapes[prefix + "hidden_projection"] = (rank, hidden)
        shapes[prefix + "predecessor_codebook"] = (config.vocab_size, rank)
        shapes[prefix + "successor_codebook"] = (config.vocab_size, rank)
    return shapes


def _layer_shapes(config: DflashConfig) -> dict[str, tuple[int, ...]]:
    hidden, ffn = config.hidden_size, config.intermediate_size
    return {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (config.q_size, hidden),
        "self_attn.k_proj": (config.kv_size, hidden),
        "self_attn.v_proj": (config.kv_size, hidden),
        "self_attn.o_proj": (hidden, config.q_size),
        "self_attn.q_norm": (config.head_dim,),
        "self_attn.k_norm": (config.head_dim,),
        "mlp.gate_proj": (ffn, hidden),
        "mlp.up_proj": (ffn, hidden),
        "mlp.down_proj": (hidden, ffn),
    }


def _conv_shapes(config: DflashConfig) -> dict[str, tuple[int, ...]]:
    if config.conv is None:
        return {}
    hidden, taps = config.hidden_size, config.conv.kernel_size
    rows = SIDES * taps * (hidden // config.conv.group_size)
    return {
        f"{name}.{part}": shape
        for name in ("attention_conv", "mlp_conv")
        for part, shape in (
            ("base_kernel", (SIDES, taps, hidden)),
            ("kernel_projection", (rows, hidden)),
        )
    }
