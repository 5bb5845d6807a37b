"""DflashConfig from a drafter's config.json, and refusals of what cannot be run or does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearth.engine.draft.dflash_config import (
    FULL,
    SLIDING,
    DflashConfig,
    DynamicConv,
    Selector,
    UndeclaredCausality,
)
from hearth.engine.errors import UserError
from hearth.engine.model.config import MAX_LAYERS
from hearth.engine.weights.files import damaged, shown
from hearth.engine.weights.folder_config import Values

if TYPE_CHECKING:
    from pathlib import Path

    from hearth.engine.model.config import ModelConfig


def read_dflash_config(
    folder: Path, raw: dict[str, Any], target: ModelConfig, undeclared: UndeclaredCausality
) -> DflashConfig:
    """Keys of drafting may stand at top level or inside ``dflash_config``. Raises UserError for
    what is no DFlash drafter, cannot be run, or does not fit ``target``."""
    _refuse_others(folder, raw)
    values = Values(folder / "config.json", raw)
    inner = values.part("dflash_config")
    _refuse_variants(folder, values, inner)
    kinds = _kinds(values)
    try:
        config = DflashConfig(
            hidden_size=values.integer("hidden_size"),
            intermediate_size=values.integer("intermediate_size"),
            num_hidden_layers=values.integer("num_hidden_layers"),
            num_attention_heads=values.integer("num_attention_heads"),
            num_key_value_heads=values.integer("num_key_value_heads"),
            head_dim=values.integer("head_dim"),
            vocab_size=values.integer("vocab_size"),
            rms_norm_eps=values.real("rms_norm_eps", 1e-6),
            rope_theta=_rope_theta(values),
            block_size=_holder(values, inner, "block_size").integer("block_size"),
            mask_token_id=_holder(values, inner, "mask_token_id").integer("mask_token_id"),
            target_layer_ids=_target_layer_ids(values, inner, target),
            windows=_windows(values, kinds),
            is_causal=_causality(values, inner, kinds, undeclared),
            num_target_layers=values.optional_integer("num_target_layers"),
            conv=_conv(values, inner),
            selector=_selector(values, inner),
            input_embedding_scale=_real(values, inner, "input_embedding_scale", 1.0),
            output_multiplier=_real(values, inner, "output_multiplier", 1.0),
            final_logit_softcapping=_softcap(values, inner),
        )
    except ValueError as error:
        raise damaged(values.path, f"its values are impossible ({error})") from error
    check_fit(folder, config, target)
    return config


def _refuse_others(folder: Path, raw: dict[str, Any]) -> None:
    named = raw.get("architectures")
    names = [str(name) for name in named] if isinstance(named, list) else []
    if "dflash_config" not in raw and not any(name.startswith("DFlash") for name in names):
        raise UserError(
            f"{shown(folder.name)} is not a DFlash drafter.",
            action="Choose the folder of a drafter that was made for this model.",
        )


def _refuse_variants(folder: Path, values: Values, inner: Values) -> None:
    """What these keys may say, but the drafter does not do: refused, never computed wrongly."""
    rope = values.part("rope_parameters" if values.get("rope_parameters") else "rope_scaling")
    turned = (values.real("partial_rotary_factor", 1.0), rope.real("partial_rotary_factor", 1.0))
    draft_rows = _holder(values, inner, "draft_vocab_size").get("draft_vocab_size")
    variants = {
        "attention biases": values.flag("attention_bias"),
        "partly rotated heads": turned != (1.0, 1.0),
        "stretched positions": (rope.get("rope_type") or rope.get("type") or "default")
        != "default",
        "attention sinks": _flag(values, inner, "attention_sink_bias"),
        "a scale of values": _real(values, inner, "attention_value_scale", 1.0) != 1.0,
        "an anchor that predicts": _flag(values, inner, "sample_from_anchor"),
        "a window of its own kind (use_swa)": _flag(values, inner, "use_swa"),
        "a vocabulary of its own": draft_rows not in (None, values.get("vocab_size")),
        "another activation than SiLU": values.get("hidden_act") not in (None, "silu", "swish"),
    }
    for variant, found in variants.items():
        if found:
            raise UserError(
                f"The drafter {shown(folder.name)} has {variant}, which Hearth cannot run yet.",
                action="Choose another drafter.",
            )


def check_fit(folder: Path, config: DflashConfig, target: ModelConfig) -> None:
    """Raises UserError when the drafter was made for another model."""
    layers = target.num_hidden_layers
    pairs = (
        ("hidden size", config.hidden_size, target.hidden_size),
        ("number of vocabulary rows", config.vocab_size, target.vocab_size),
        ("number of layers", config.num_target_layers or layers, layers),
    )
    for what, theirs, ours in pairs:
        if theirs != ours:
            raise _misfit(folder, f"it expects a {what} of {theirs}, and the model has {ours}")
    highest = max(config.target_layer_ids)
    if highest >= layers:
        raise _misfit(folder, f"it reads layer {highest}, and the model has {layers} layers")


def _misfit(folder: Path, why: str) -> UserError:
    return UserError(
        f"The drafter {shown(folder.name)} does not fit this model: {why}.",
        action="Choose a drafter that was made for this model.",
    )


def _holder(values: Values, inner: Values, key: str) -> Values:
    return inner if inner.get(key) is not None else values


def _real(values: Values, inner: Values, key: str, default: float) -> float:
    return _holder(values, inner, key).real(key, default)


def _flag(values: Values, inner: Values, key: str) -> bool:
    return _holder(values, inner, key).flag(key)


def _rope_theta(values: Values) -> float:
    rope = values.part("rope_parameters")
    return (rope if rope.get("rope_theta") is not None else values).real("rope_theta")


def _kinds(values: Values) -> tuple[str, ...]:
    """Kinds of the layers; without a list they are all full attention, and a window beside that
    would be a guess."""
    listed, count = values.get("layer_types"), values.integer("num_hidden_layers")
    if listed is None and not values.flag("use_sliding_window") and count <= MAX_LAYERS:
        return (FULL,) * count
    kinds = tuple(listed) if isinstance(listed, list) else ()
    if len(kinds) != count or not all(kind in (SLIDING, FULL) for kind in kinds):
        raise damaged(values.path, "layer_types does not name the kind of every layer")
    return kinds


def _windows(values: Values, kinds: tuple[str, ...]) -> tuple[int | None, ...]:
    return tuple(values.integer("sliding_window") if kind == SLIDING else None for kind in kinds)


def _causality(
    values: Values, inner: Values, kinds: tuple[str, ...], undeclared: UndeclaredCausality
) -> tuple[bool, ...]:
    """The top level key decides, then the inner one, then ``undeclared``."""
    for holder, key in ((values, "is_causal"), (inner, "causal")):
        if holder.get(key) is not None:
            return (holder.flag(key),) * len(kinds)
    by_kind = undeclared is UndeclaredCausality.BY_KIND
    return tuple(by_kind and kind == SLIDING for kind in kinds)


def _target_layer_ids(values: Values, inner: Values, target: ModelConfig) -> tuple[int, ...]:
    """As listed, or spread evenly over the target as the first drafters' were: one a layer of the
    drafter."""
    listed = _holder(values, inner, "target_layer_ids").get("target_layer_ids")
    if listed is None:
        count, layers = values.integer("num_hidden_layers"), target.num_hidden_layers
        if not 2 <= count <= MAX_LAYERS or layers < 4:
            raise damaged(values.path, "target_layer_ids is missing")
        return tuple(round(1 + i * (layers - 4) / (count - 1)) for i in range(count))
    if not isinstance(listed, list) or not all(type(tap) is int for tap in listed):
        raise damaged(values.path, "target_layer_ids is no list of numbers")
    return tuple(listed)


def _conv(values: Values, inner: Values) -> DynamicConv | None:
    size = _holder(values, inner, "conv_kernel_size")
    if size.get("conv_kernel_size") is None:
        return None
    group = _holder(values, inner, "conv_group_size")
    return DynamicConv(size.integer("conv_kernel_size"), group.integer("conv_group_size"))


def _selector(values: Values, inner: Values) -> Selector | None:
    rank = _holder(values, inner, "selector_rank")
    if rank.get("selector_rank") is None:
        return None
    top_k = _holder(values, inner, "selector_top_k")
    return Selector(rank.integer("selector_rank"), top_k.integer("selector_top_k"))


def _softcap(values: Values, inner: Values) -> float | None:
    holder = _holder(values, inner, "final_logit_softcapping")
    if holder.get("final_logit_softcapping") in (None, False):
        return None
    return holder.real("final_logit_softcapping")
