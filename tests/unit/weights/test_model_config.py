"""ModelConfig and RopeScaling refuse impossible values and derive the rest."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hearth.engine.model.config import ModelConfig, RopeScaling

GOOD = ModelConfig(
    architecture="qwen3",
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    vocab_size=100,
    max_position_embeddings=512,
    rms_norm_eps=1e-6,
    rope_theta=1e6,
)


@pytest.mark.parametrize(
    "change",
    [
        {"architecture": "gpt2"},
        {"hidden_size": 0},
        {"hidden_size": 1 << 21},
        {"intermediate_size": -1},
        {"num_hidden_layers": 0},
        {"num_hidden_layers": 1 << 20},
        {"num_attention_heads": 3},
        {"num_key_value_heads": 0},
        {"head_dim": 31},
        {"head_dim": 1 << 20},
        {"vocab_size": 0},
        {"max_position_embeddings": 1 << 30},
        {"rms_norm_eps": 0.0},
        {"rms_norm_eps": float("nan")},
        {"rope_theta": 1.0},
        {"rope_theta": float("inf")},
    ],
)
def test_impossible_values(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not so"):
        dataclasses.replace(GOOD, **change)


@pytest.mark.parametrize(
    "values",
    [
        {"kind": "longrope", "factor": 2.0},
        {"kind": "linear", "factor": 0.5},
        {"kind": "linear", "factor": float("nan")},
        {"kind": "llama3", "factor": 8.0},
        {"kind": "yarn", "factor": 2.0, "original_max_position_embeddings": 0},
        {"kind": "yarn", "factor": 2.0, "beta_slow": 33.0},
        {"kind": "linear", "factor": 2.0, "low_freq_factor": 5.0},
    ],
)
def test_impossible_rope_scaling(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not so"):
        RopeScaling(**values)


def test_derived_values() -> None:
    assert (GOOD.q_size, GOOD.kv_size) == (128, 64)
    assert (GOOD.qk_norm, GOOD.attention_bias) == (True, False)
    qwen2 = dataclasses.replace(GOOD, architecture="qwen2")
    assert (qwen2.qk_norm, qwen2.attention_bias) == (False, True)
