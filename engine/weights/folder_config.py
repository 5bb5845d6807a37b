"""ModelConfig from a folder's config.json, and refusals of what it says that Hearth cannot run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hearth.engine.errors import UserError
from hearth.engine.model.config import ARCHITECTURES, ROPE_SCALINGS, ModelConfig, RopeScaling
from hearth.engine.weights.checks import unknown_architecture, unknown_rope
from hearth.engine.weights.files import damaged, shown

if TYPE_CHECKING:
    from pathlib import Path

MAX_INTEGER = 1 << 31
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


def refuse_quantised(folder: Path, config: dict[str, Any]) -> None:
    scheme = config.get("quantization_config") or config.get("compression_config")
    if scheme is None and (folder / "hf_quant_config.json").exists():
        scheme = "modelopt"
    if not scheme:
        return
    method = scheme.get("quant_method", "something unknown") if isinstance(scheme, dict) else scheme
    raise UserError(
        f"{shown(folder.name)} is quantised as {shown(method)}, which Hearth cannot read yet.",
        action="Choose a bf16 or a GGUF version of the model.",
    )


def read_config(folder: Path, raw: dict[str, Any]) -> ModelConfig:
    """Both generations of rope keys are read. Raises UserError for what cannot be run."""
    values = Values(folder / "config.json", raw)
    architecture = values.get("model_type")
    if architecture not in ARCHITECTURES:
        raise unknown_architecture(folder, architecture)
    _refuse_variants(folder, values, architecture)
    heads, hidden = values.integer("num_attention_heads"), values.integer("hidden_size")
    rope = values.part("rope_parameters" if values.get("rope_parameters") else "rope_scaling")
    theta = rope if rope.get("rope_theta") is not None else values
    context = values.integer("max_position_embeddings")
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
            tie_word_embeddings=values.flag("tie_word_embeddings"),
        )
    except ValueError as error:
        raise damaged(values.path, f"its values are impossible ({error})") from error


def _refuse_variants(folder: Path, values: Values, architecture: str) -> None:
    """What these keys may say, but the decoder does not do: refused, never computed wrongly."""
    rope = values.part("rope_parameters")
    layer_types = values.get("layer_types")
    kinds = {str(kind) for kind in layer_types} if isinstance(layer_types, list) else set()
    variants = {
        "sliding-window attention": values.flag("use_sliding_window")
        or not kinds <= {"full_attention"},
        "attention biases": values.flag("attention_bias") and architecture != "qwen2",
        "MLP biases": values.flag("mlp_bias"),
        "partly rotated heads": values.real("partial_rotary_factor", 1.0) != 1.0
        or rope.real("partial_rotary_factor", 1.0) != 1.0,
        "rotary settings by kind of layer": isinstance(rope.get("full_attention"), dict),
        "another activation than SiLU": values.get("hidden_act") not in (None, "silu", "swish"),
    }
    for variant, found in variants.items():
        if found:
            raise UserError(
                f"{shown(folder.name)} has {variant}, which Hearth cannot run yet.",
                action="Choose another model.",
            )


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
