"""ModelConfig from a folder's config.json, and refusals of what it says that Hearth cannot run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hearth.engine.errors import UserError
from hearth.engine.model.config import (
    ARCHITECTURES,
    FULL,
    LINEAR,
    ROPE_SCALINGS,
    LinearAttention,
    ModelConfig,
    RopeScaling,
)
from hearth.engine.weights.checks import unknown_architecture, unknown_rope
from hearth.engine.weights.files import damaged, shown

if TYPE_CHECKING:
    from pathlib import Path

MAX_INTEGER = 1 << 31
MAX_LISTED_LAYERS = 4096
MODEL_TYPES = {"qwen3_5_text": "qwen3_5"}  # text-only exports name the text part
HYBRID = ("qwen3_5",)
FACTOR_TOLERANCE = 1e-4


class Values:
    """Typed access to one JSON object of ``path``; a wrong type is a damaged file. null is
    missing, as it is to the libraries that write these files."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path = path
        self._values = values

    def get(self, key: str) -> Any:
        return self._values.get(key)

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < MAX_INTEGER:
            raise damaged(self.path, f"{key} is missing or no sensible number")
        return value

    def optional_integer(self, key: str) -> int | None:
        return None if self.get(key) is None else self.integer(key)

    def real(self, key: str, default: float | None = None) -> float:
        value = self.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise damaged(self.path, f"{key} is missing or no number")
        if abs(value) > 1e30 or not math.isfinite(value):
            raise damaged(self.path, f"{key} is no sensible number")
        return float(value)

    def flag(self, key: str) -> bool:
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise damaged(self.path, f"{key} is neither true nor false")
        return bool(value)

    def part(self, key: str) -> Values:
        """A nested object; empty when missing."""
        value = self.get(key)
        if value is not None and not isinstance(value, dict):
            raise damaged(self.path, f"{key} is no JSON object")
        return Values(self.path, value or {})


def read_config(folder: Path, raw: dict[str, Any]) -> ModelConfig:
    """Both generations of rope keys are read. Raises UserError for what cannot be run."""
    values = Values(folder / "config.json", raw)
    model_type = values.get("model_type")
    tied = values.flag("tie_word_embeddings")
    if values.get("text_config") is not None:  # the text part of a model that also sees
        values = values.part("text_config")
        tied = tied or values.flag("tie_word_embeddings")
    architecture = MODEL_TYPES.get(str(model_type), model_type)
    if architecture not in ARCHITECTURES:
        raise unknown_architecture(folder, architecture)
    _refuse_variants(folder, values, architecture)
    heads, hidden = values.integer("num_attention_heads"), values.integer("hidden_size")
    rope = values.part("rope_parameters" if values.get("rope_parameters") else "rope_scaling")
    theta = rope if rope.get("rope_theta") is not None else values
    context = values.integer("max_position_embeddings")
    is_hybrid = architecture in HYBRID
    try:
        return ModelConfig(
            architecture=architecture,
            hidden_size=hidden,
            intermediate_size=values.integer("intermediate_size"),
            num_hidden_layers=values.integer("num_hidden_layers"),
            num_attention_heads=heads,
            num_key_value_heads=values.integer("num_key_value_heads", heads),
            head_dim=values.integer("head_dim", hidden // heads),
            vocab_size=values.integer("vocab_size"),
            max_position_embeddings=context,
            rms_norm_eps=values.real("rms_norm_eps", 1e-6),
            rope_theta=theta.real("rope_theta", 10000.0),
            rope_scaling=_rope_scaling(folder, rope),
            tie_word_embeddings=tied,
            layer_types=_layer_types(values) if is_hybrid else (),
            linear=_linear(values) if is_hybrid else None,
            rotary_dim=_rotary_dim(values, rope) if is_hybrid else None,
            mrope_section=_mrope_section(values, rope) if is_hybrid else None,
        )
    except ValueError as error:
        raise damaged(values.path, f"its values are impossible ({error})") from error


def _refuse_variants(folder: Path, values: Values, architecture: str) -> None:
    """What these keys may say, but the decoder does not do: refused, never computed wrongly."""
    rope = values.part("rope_parameters")
    layer_types = values.get("layer_types")
    kinds = {str(kind) for kind in layer_types} if isinstance(layer_types, list) else set()
    is_hybrid = architecture in HYBRID
    known_kinds = {FULL, LINEAR} if is_hybrid else {FULL}
    turned = (values.real("partial_rotary_factor", 1.0), rope.real("partial_rotary_factor", 1.0))
    variants = {
        "sliding-window attention": values.flag("use_sliding_window") or not kinds <= known_kinds,
        "attention biases": values.flag("attention_bias") and architecture != "qwen2",
        "MLP biases": values.flag("mlp_bias"),
        "partly rotated heads": not is_hybrid and turned != (1.0, 1.0),
        "attention without an output gate": is_hybrid and values.get("attn_output_gate") is False,
        "rotary settings by kind of layer": isinstance(rope.get("full_attention"), dict),
        "another activation than SiLU": values.get("hidden_act") not in (None, "silu", "swish"),
    }
    for variant, found in variants.items():
        if found:
            raise UserError(
                f"{shown(folder.name)} has {variant}, which Hearth cannot run yet.",
                action="Choose another model.",
            )


def _layer_types(values: Values) -> tuple[str, ...]:
    """As listed, or every ``full_attention_interval``-th layer is full attention."""
    listed = values.get("layer_types")
    if isinstance(listed, list) and len(listed) <= MAX_LISTED_LAYERS:
        return tuple(str(kind) for kind in listed)
    interval, count = (
        values.integer("full_attention_interval", 4),
        values.integer("num_hidden_layers"),
    )
    if count > MAX_LISTED_LAYERS:
        raise damaged(values.path, f"it has {count} layers")
    return tuple(FULL if (index + 1) % interval == 0 else LINEAR for index in range(count))


def _linear(values: Values) -> LinearAttention | None:
    if LINEAR not in _layer_types(values):
        return None
    return LinearAttention(
        num_key_heads=values.integer("linear_num_key_heads"),
        num_value_heads=values.integer("linear_num_value_heads"),
        key_head_dim=values.integer("linear_key_head_dim"),
        value_head_dim=values.integer("linear_value_head_dim"),
        conv_kernel_dim=values.integer("linear_conv_kernel_dim", 4),
    )


def _rotary_dim(values: Values, rope: Values) -> int:
    """The factor stands at text level or inside the rope keys."""
    holder = rope if rope.get("partial_rotary_factor") is not None else values
    hidden, heads = values.integer("hidden_size"), values.integer("num_attention_heads")
    head_dim = values.integer("head_dim", hidden // heads)
    return int(head_dim * holder.real("partial_rotary_factor", 0.25))


def _mrope_section(values: Values, rope: Values) -> tuple[int, int, int] | None:
    section = rope.get("mrope_section")
    if section is None:
        return None
    is_triple = isinstance(section, list) and len(section) == 3
    if not is_triple or not all(type(part) is int and 0 <= part < MAX_INTEGER for part in section):
        raise damaged(values.path, "mrope_section is no list of three numbers")
    return (section[0], section[1], section[2])


def _rope_scaling(folder: Path, rope: Values) -> RopeScaling | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind not in ROPE_SCALINGS:
        raise unknown_rope(folder, kind)
    factor = rope.real("factor")
    # Beyond 1 the published yarn temperature is 0.1 ln(factor) + 1; others are not computed.
    temperature = 0.1 * math.log(max(factor, 1.0)) + 1.0
    given = rope.real("attention_factor", temperature)
    if kind == "yarn" and abs(given - temperature) > FACTOR_TOLERANCE:
        raise unknown_rope(folder, f"yarn with attention_factor {given:g}")
    if rope.get("mscale_all_dim") is not None or rope.get("truncate") is False:
        raise unknown_rope(folder, "yarn without its usual rounding or temperature")
    return RopeScaling(
        kind=kind,
        factor=factor,
        original_max_position_embeddings=rope.optional_integer("original_max_position_embeddings"),
        low_freq_factor=rope.real("low_freq_factor", 1.0),
        high_freq_factor=rope.real("high_freq_factor", 4.0),
        beta_fast=rope.real("beta_fast", 32.0),
        beta_slow=rope.real("beta_slow", 1.0),
    )
