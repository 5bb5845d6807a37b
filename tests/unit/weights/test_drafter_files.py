"""Folders of drafters: what is read, and what is refused in a sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tiny_drafters import (
    FULL,
    SLIDING,
    TARGET,
    dflash2_config,
    dflash_config,
    drafter_tensors,
    write_drafter,
)

from hearth.engine.draft.dflash_config import DynamicConv, Selector
from hearth.engine.draft.dflash_files import open_drafter
from hearth.engine.errors import HearthError

if TYPE_CHECKING:
    from pathlib import Path


def refused(folder: Path, target: Any = TARGET) -> str:
    with pytest.raises(HearthError) as caught:
        open_drafter(folder, target)
    message = str(caught.value)
    assert message.endswith("."), message
    assert message.isprintable(), message
    assert len(message) < 400, message
    assert caught.value.action, message
    return message


def inner(**changes: Any) -> dict[str, Any]:
    return {"dflash_config": dflash2_config()["dflash_config"] | changes}


def test_the_second_version_is_read(tmp_path: Path) -> None:
    files = open_drafter(write_drafter(tmp_path, dflash2_config()), TARGET)
    config = files.config
    assert config.windows == (12, 12, 12)
    assert config.is_causal == (False, False, False)
    assert (config.block_size, config.max_depth, config.mask_token_id) == (8, 7, 287)
    assert config.target_layer_ids == (0, 2, 3)
    assert config.conv == DynamicConv(kernel_size=2, group_size=16)
    assert config.selector == Selector(rank=8, top_k=6)
    tensors = drafter_tensors(dflash2_config())
    stored = tensors["candidate_selector.predecessor_codebook"].float()
    entry = files.tensors["candidate_selector.predecessor_codebook"]
    assert torch.equal(entry.values(), stored)
    assert entry.format == "BF16"


def test_the_first_version_is_read(tmp_path: Path) -> None:
    config = open_drafter(write_drafter(tmp_path, dflash_config()), TARGET).config
    assert config.windows == (12, 12, None)
    assert (config.block_size, config.conv, config.selector) == (16, None, None)


def test_older_keys_are_read(tmp_path: Path) -> None:
    """Rope keys at top level, drafting keys at top level, names with a prefix."""
    config = dflash_config(rope_theta=1e6, mask_token_id=288, target_layer_ids=[1, 2, 3])
    tensors = {f"model.{name}": value for name, value in drafter_tensors(config).items()}
    del config["rope_parameters"]
    config["dflash_config"] = {}
    read = open_drafter(write_drafter(tmp_path, config, tensors), TARGET).config
    assert (read.rope_theta, read.mask_token_id, read.target_layer_ids) == (1e6, 288, (1, 2, 3))


@pytest.mark.parametrize(
    ("layers", "expected"), [(32, (1, 8, 15, 22, 29)), (64, (1, 16, 31, 46, 61))]
)
def test_unlisted_taps_are_spread(tmp_path: Path, layers: int, expected: tuple[int, ...]) -> None:
    config = dflash_config(num_hidden_layers=5, layer_types=[FULL] * 5, num_target_layers=layers)
    config["dflash_config"]["target_layer_ids"] = list(expected)
    tensors = drafter_tensors(config)
    del config["dflash_config"]["target_layer_ids"]
    target = replace(TARGET, num_hidden_layers=layers)
    read = open_drafter(write_drafter(tmp_path, config, tensors), target).config
    assert read.target_layer_ids == expected


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": 128}, "hidden size of 64, and the model has 128"),
        ({"vocab_size": 301}, "vocabulary rows of 300, and the model has 301"),
        ({"num_hidden_layers": 6}, "layers of 5, and the model has 6"),
    ],
)
def test_a_drafter_of_another_model_is_refused(
    tmp_path: Path, change: dict[str, int], said: str
) -> None:
    folder = write_drafter(tmp_path, dflash2_config())
    assert said in refused(folder, replace(TARGET, **change))


def test_taps_beyond_the_model_are_refused(tmp_path: Path) -> None:
    config = dflash2_config(**inner(target_layer_ids=[0, 2, 5]))
    assert "it reads layer 5, and the model has 5 layers" in refused(
        write_drafter(tmp_path, config)
    )


VARIANTS = {
    "attention biases": {"attention_bias": True},
    "partly rotated heads": {"rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25}},
    "stretched positions": {"rope_parameters": {"rope_theta": 1e7, "rope_type": "yarn"}},
    "attention sinks": inner(attention_sink_bias=True),
    "a scale of values": inner(attention_value_scale=0.5),
    "an anchor that predicts": inner(sample_from_anchor=True),
    "a window of its own kind": {"use_swa": True},
    "a vocabulary of its own": {"draft_vocab_size": 200},
    "another activation": {"hidden_act": "gelu"},
    "quantised as int8": {"quantization_config": {"quant_method": "int8"}},
}


@pytest.mark.parametrize("said", VARIANTS)
def test_what_cannot_be_run_is_refused(tmp_path: Path, said: str) -> None:
    folder = write_drafter(tmp_path, dflash2_config(**VARIANTS[said]))
    assert said in refused(folder)


DAMAGED = [
    {"dflash_config": []},
    {"hidden_size": 0},
    {"hidden_size": 1 << 40},
    {"num_hidden_layers": 1 << 29, "layer_types": None, "use_sliding_window": False},
    {"num_hidden_layers": "3"},
    {"layer_types": [SLIDING] * 2},
    {"layer_types": [SLIDING, FULL, "chunked_attention"]},
    {"layer_types": [SLIDING, FULL, ["x"]]},
    {"layer_types": None},
    {"sliding_window": 1},
    {"sliding_window": None},
    {"is_causal": "no"},
    {"num_key_value_heads": 3},
    {"head_dim": 31},
    {"head_dim": 1 << 20, "num_attention_heads": 1 << 20},
    {"rms_norm_eps": -1.0},
    {"rope_parameters": {}},
    inner(block_size=1),
    inner(block_size=1 << 30),
    inner(mask_token_id=300),
    inner(mask_token_id=-1),
    inner(target_layer_ids=[]),
    inner(target_layer_ids=[0, -2, 3]),
    inner(target_layer_ids=[0, "2", 3]),
    inner(target_layer_ids=7),
    inner(conv_group_size=None),
    inner(conv_group_size=7),
    inner(conv_kernel_size=1 << 20),
    inner(selector_top_k=1 << 20),
    inner(final_logit_softcapping=-3.0),
]


@pytest.mark.parametrize("change", DAMAGED)
def test_impossible_values_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    folder = write_drafter(tmp_path, dflash2_config(**change), drafter_tensors(dflash2_config()))
    assert "config.json is damaged" in refused(folder)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    config = dflash2_config(architectures=["Qwen3ForCausalLM"])
    tensors = drafter_tensors(config)
    del config["dflash_config"]
    assert "is not a DFlash drafter" in refused(write_drafter(tmp_path / "a", config, tensors))
    (tmp_path / "b").mkdir()
    assert "has no file config.json" in refused(tmp_path / "b")
    (tmp_path / "b" / "config.json").write_text(json.dumps(dflash2_config()))
    assert "holds no safetensors files" in refused(tmp_path / "b")


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda t: t.pop("layers.1.mlp_conv.base_kernel"), "lacks the tensor layers.1.mlp_conv"),
        (lambda t: t.update({"d2t": torch.zeros(9)}), "holds d2t, which Hearth does not know"),
        (lambda t: t.update({"fc.weight": torch.zeros(64, 64)}), "has fc with shape (64, 64)"),
        (lambda t: t.update({"norm.weight": torch.zeros(64).long()}), "stores norm as I64"),
        (lambda t: t.update({"model.norm.weight": torch.zeros(64)}), "occurs twice"),
    ],
)
def test_wrong_tensors_are_refused(tmp_path: Path, edit: Any, said: str) -> None:
    tensors = drafter_tensors(dflash2_config())
    edit(tensors)
    assert said in refused(write_drafter(tmp_path, dflash2_config(), tensors))


def test_the_second_version_s_parts_are_not_dropped_silently(tmp_path: Path) -> None:
    """A configuration that forgets the selector beside tensors that have it."""
    config = dflash2_config()
    tensors = drafter_tensors(config)
    del config["dflash_config"]["selector_rank"]
    assert "holds candidate_selector" in refused(write_drafter(tmp_path, config, tensors))
