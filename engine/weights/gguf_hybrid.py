"""GGUF keys of the hybrid family: kinds of layers, linear attention, rotary sections, MTP."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hearth.engine.errors import UserError
from hearth.engine.model.config import FULL, LINEAR, MAX_LAYERS, LinearAttention
from hearth.engine.weights.files import damaged, shown

if TYPE_CHECKING:
    from hearth.engine.model.config import ModelConfig
    from hearth.engine.weights.gguf import GgufFile
    from hearth.engine.weights.metadata import Metadata

DEFAULT_INTERVAL = 4


@dataclass(frozen=True, slots=True)
class HybridLayers:
    """Kinds of the model's layers. GGUF counts the MTP layers behind them among its blocks."""

    kinds: tuple[str, ...]
    num_mtp: int

    def __post_init__(self) -> None:
        assert self.kinds, "there is a layer"
        assert self.num_mtp >= 0, "MTP layers can be counted"

    @property
    def num_blocks(self) -> int:
        return len(self.kinds) + self.num_mtp


def read_layers(metadata: Metadata, key: str) -> HybridLayers:
    num_blocks = metadata.integer(key + "block_count")
    num_mtp = metadata.integer(key + "nextn_predict_layers", 0)
    if num_mtp >= num_blocks:
        raise damaged(metadata.path, f"it has {num_blocks} layers, {num_mtp} of them for MTP")
    if num_blocks > MAX_LAYERS:
        raise damaged(metadata.path, f"it has {num_blocks} layers")
    return HybridLayers(_kinds(metadata, key, num_blocks, num_blocks - num_mtp), num_mtp)


def _kinds(metadata: Metadata, key: str, num_blocks: int, num_layers: int) -> tuple[str, ...]:
    """As listed, or every ``full_attention_interval``-th layer is full attention."""
    listed = metadata.flags(key + "attention.recurrent_layers")
    if listed is not None:
        if len(listed) != num_blocks:
            what = f"attention.recurrent_layers has {len(listed)} values for {num_blocks} layers"
            raise damaged(metadata.path, what)
        if any(listed[num_layers:]):
            raise damaged(metadata.path, "its MTP layer is said to be recurrent")
        return tuple(LINEAR if is_linear else FULL for is_linear in listed[:num_layers])
    interval = metadata.integer(key + "full_attention_interval", DEFAULT_INTERVAL)
    if interval == 0:
        raise damaged(metadata.path, "full_attention_interval is 0")
    return tuple(FULL if (index + 1) % interval == 0 else LINEAR for index in range(num_layers))


def num_heads(metadata: Metadata, key: str, layers: HybridLayers) -> int:
    """One number, or one a layer: what those of linear layers say means nothing."""
    values = metadata.per_layer(key, layers.num_blocks)
    kinds = layers.kinds + (FULL,) * layers.num_mtp
    found = {value for value, kind in zip(values, kinds, strict=True) if kind == FULL}
    if len(found) > 1:
        raise UserError(
            f"{shown(metadata.path.name)} has layers with different numbers of heads, which "
            "Hearth cannot run yet.",
            action="Choose another model.",
        )
    return found.pop() if found else values[0]


def hybrid_config(
    metadata: Metadata, key: str, gguf: GgufFile, base: ModelConfig, layers: HybridLayers
) -> ModelConfig:
    """``base`` with the family's own keys. Raises ValueError when values are impossible."""
    return replace(
        base,
        num_hidden_layers=len(layers.kinds),
        layer_types=layers.kinds,
        linear=_linear(metadata, key + "ssm.") if LINEAR in layers.kinds else None,
        rotary_dim=metadata.integer(key + "rope.dimension_count", base.head_dim),
        mrope_section=_mrope_section(metadata, key + "rope.dimension_sections"),
        num_mtp_layers=_num_mtp_layers(gguf, layers),
    )


def _num_mtp_layers(gguf: GgufFile, layers: HybridLayers) -> int:
    """As many as are counted, if they are there: exports may leave the MTP module out whatever
    their keys say. The opposite, an MTP module without its model, is a file for other programs."""
    first = f"blk.{len(layers.kinds)}."
    if not layers.num_mtp or not any(name.startswith(first) for name in gguf.tensors):
        return 0
    if not any(name.startswith("blk.0.") for name in gguf.tensors):
        raise UserError(
            f"{shown(gguf.path.name)} holds only the MTP layer of a model, not the model itself.",
            action="Choose the file of the whole model.",
        )
    return layers.num_mtp


def _linear(metadata: Metadata, key: str) -> LinearAttention:
    """Converters store value heads as many times over all key heads as each has, not beside each
    other; with as many value heads as key heads the two orders are one."""
    key_heads = metadata.integer(key + "group_count")
    value_heads = metadata.integer(key + "time_step_rank")
    value_size = metadata.integer(key + "inner_size")
    if value_size % max(value_heads, 1):
        raise damaged(metadata.path, f"ssm.inner_size {value_size} is not {value_heads} heads")
    return LinearAttention(
        num_key_heads=key_heads,
        num_value_heads=value_heads,
        key_head_dim=metadata.integer(key + "state_size"),
        value_head_dim=value_size // max(value_heads, 1),
        conv_kernel_dim=metadata.integer(key + "conv_kernel"),
        is_tiled=value_heads != key_heads,
    )


def _mrope_section(metadata: Metadata, key: str) -> tuple[int, int, int] | None:
    """Time, height and width; the fourth number belongs to other families and is 0."""
    if not metadata.has(key):
        return None
    section = metadata.integers(key)
    if len(section) not in (3, 4) or any(section[3:]):
        raise damaged(metadata.path, "rope.dimension_sections is no list of three numbers")
    return (section[0], section[1], section[2])
