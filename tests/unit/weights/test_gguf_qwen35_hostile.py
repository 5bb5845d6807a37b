"""GGUF files of the hybrid family that cannot be, or hold something else, are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tiny_hybrid as hybrid
import tiny_models as tiny

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Refusal = Callable[[Path], str]

MTP = f"blk.{hybrid.LAYERS}."
ABSURD = 2**31 - 1
CHANGED_KEYS: list[tuple[str, dict[str, Any]]] = [
    ("1 layers, 1 of them for MTP", {"block_count": 1}),
    ("0 layers, 1 of them for MTP", {"block_count": 0}),
    ("5 layers, 9 of them for MTP", {"nextn_predict_layers": 9}),
    (f"{ABSURD} layers", {"block_count": ABSURD}),
    ("1025 layers", {"block_count": 1025}),
    ("at most one MTP layer", {"block_count": 6, "nextn_predict_layers": 2}),
    ("blk.4.nextn", {"block_count": 5, "nextn_predict_layers": 0}),
    ("blk.4.nextn", {"block_count": 6}),
    ("no sensible number", {"block_count": [5, 4]}),
    ("4 values for 5 layers", {"attention.recurrent_layers": [True, True, True, False]}),
    ("MTP layer", {"attention.recurrent_layers": [True] * 5}),
    ("true and false", {"attention.recurrent_layers": [2, 1, 1, 0, 0]}),
    ("no list of numbers", {"attention.recurrent_layers": ["yes"] * 5}),
    ("no list of numbers", {"attention.recurrent_layers": 1}),
    ("lacks the tensor layers.2.q", {"attention.recurrent_layers": [True, True] + [False] * 3}),
    ("full_attention_interval is 0", {"full_attention_interval": 0}),
    ("lacks the tensor layers.0.q", {"full_attention_interval": 1}),
    ("lacks the tensor layers.3.in_qkv", {"full_attention_interval": ABSURD}),
    ("3 values for 5 layers", {"attention.head_count": [4, 4, 4]}),
    ("different numbers of heads", {"attention.head_count": [4, 4, 4, 4, 8]}),
    ("no sensible numbers", {"attention.head_count": [-4] * 5}),
    ("no sensible numbers", {"attention.head_count_kv": [True] * 5}),
    ("impossible", {"attention.head_count": [4, 4, 4, 0, 0]}),
    ("impossible", {"attention.head_count_kv": 3}),
    ("impossible", {"rope.dimension_count": 0, "rope.dimension_sections": [0, 0, 0, 0]}),
    ("impossible", {"rope.dimension_count": 32}),
    ("impossible", {"rope.dimension_count": 7}),
    ("mrope", {"rope.dimension_sections": [2, 1, 2, 0]}),
    ("mrope", {"rope.dimension_sections": [5, -1, 0, 0]}),
    ("mrope", {"rope.dimension_sections": [ABSURD, ABSURD, ABSURD, 0]}),
    ("three numbers", {"rope.dimension_sections": [1, 1, 1, 1]}),
    ("three numbers", {"rope.dimension_sections": [4]}),
    ("no list of numbers", {"rope.dimension_sections": 4}),
    ("no list of numbers", {"rope.dimension_sections": [1.5, 1.5, 1.0]}),
    ("impossible", {"ssm.group_count": 0}),
    ("impossible", {"ssm.group_count": 4}),
    ("impossible", {"ssm.time_step_rank": 0}),
    ("ssm.inner_size 96 is not 5 heads", {"ssm.time_step_rank": 5}),
    ("impossible", {"ssm.inner_size": 0}),
    ("impossible", {"ssm.state_size": 17}),
    ("impossible", {"ssm.state_size": ABSURD}),
    ("impossible", {"ssm.group_count": 6, "ssm.state_size": 1 << 20}),
    ("impossible", {"ssm.conv_kernel": 1}),
    ("impossible", {"ssm.conv_kernel": ABSURD}),
    ("needs (160, 2)", {"ssm.conv_kernel": 2}),
    ("needs (224, 64)", {"ssm.state_size": 32}),
    ("another size", {"attention.value_length": 32}),
    ("experts", {"expert_count": 8}),
    ("rope scaling longrope", {"rope.scaling.type": "longrope"}),
]  # fmt: skip
NEEDED_KEYS = [
    "block_count", "embedding_length", "feed_forward_length", "context_length",
    "attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon",
    "ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank",
    "ssm.inner_size",
]  # fmt: skip


@pytest.mark.parametrize(("reason", "changes"), CHANGED_KEYS)
def test_keys_that_cannot_be(
    tmp_path: Path, refusal: Refusal, reason: str, changes: dict[str, Any]
) -> None:
    parts = hybrid.parts()
    parts.metadata |= {f"qwen35.{key}": value for key, value in changes.items()}
    assert reason in refusal(tiny.write_gguf(tmp_path / "m.gguf", parts))


@pytest.mark.parametrize("key", NEEDED_KEYS)
def test_a_missing_key_is_named(tmp_path: Path, refusal: Refusal, key: str) -> None:
    parts = hybrid.parts()
    del parts.metadata["qwen35." + key]
    assert f"qwen35.{key} is missing" in refusal(tiny.write_gguf(tmp_path / "m.gguf", parts))


def test_the_mtp_module_alone_is_no_model(tmp_path: Path, refusal: Refusal) -> None:
    parts = hybrid.parts()
    kept = ("token_embd", "output_norm", MTP)
    parts.tensors = {n: a for n, a in parts.tensors.items() if n.startswith(kept)}
    sentence = refusal(tiny.write_gguf(tmp_path / "mtp-tiny.gguf", parts))
    assert "holds only the MTP layer" in sentence


@pytest.mark.parametrize(
    "name",
    [
        MTP + "nextn.embed_tokens.weight",
        MTP + "nextn.shared_head_head.weight",
        MTP + "ssm_q.weight",
        "blk.5.attn_norm.weight",
        "blk.3.attn_qkv.weight",
        "blk.0.attn_q.weight",
        "blk.0.ffn_norm.weight",
        "blk.0.nextn.enorm.weight",
        "blk.0.ssm_a.weight",
        "blk.0.ssm_in.scale",
        "rope_freqs.weight",
        "v.blk.0.ln1.weight",
    ],
)
def test_a_tensor_that_would_be_left_out_is_refused(
    tmp_path: Path, refusal: Refusal, name: str
) -> None:
    parts = hybrid.parts()
    parts.tensors[name] = np.zeros(64, dtype=np.float32)
    assert "does not know" in refusal(tiny.write_gguf(tmp_path / "m.gguf", parts))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("blk.2.ssm_a", "layers.2.decay"),
        ("blk.1.ssm_dt.bias", "layers.1.dt_bias"),
        ("blk.3.attn_q_norm.weight", "layers.3.q_norm"),
        (MTP + "nextn.eh_proj.weight", "mtp.fc"),
        (MTP + "nextn.shared_head_norm.weight", "mtp.norm"),
        (MTP + "ffn_up.weight", "mtp.layers.0.up"),
    ],
)
def test_missing_tensors_are_named(
    tmp_path: Path, refusal: Refusal, name: str, expected: str
) -> None:
    parts = hybrid.parts()
    del parts.tensors[name]
    sentence = refusal(tiny.write_gguf(tmp_path / "m.gguf", parts))
    assert f"lacks the tensor {expected}." in sentence


@pytest.mark.parametrize(
    ("reason", "scale"),
    [
        ("is 0.0", [0.0]),
        ("is -1.0", [-1.0]),
        ("is nan", [np.nan]),
        ("is inf", [np.inf]),
        ("no single number", [1.0, 2.0]),
    ],
)
def test_impossible_scales(
    tmp_path: Path, refusal: Refusal, reason: str, scale: list[float]
) -> None:
    parts = hybrid.parts()
    parts.kinds["blk.0.ffn_up.weight"] = tiny.GGMLQuantizationType.Q8_0
    parts.tensors["blk.0.ffn_up.scale"] = np.array(scale, dtype=np.float32)
    assert reason in refusal(tiny.write_gguf(tmp_path / "m.gguf", parts))


def test_a_scale_of_floats(tmp_path: Path, refusal: Refusal) -> None:
    parts = hybrid.parts()
    parts.tensors["blk.0.ffn_up.scale"] = np.ones(1, dtype=np.float32)
    assert "not quantised" in refusal(tiny.write_gguf(tmp_path / "m.gguf", parts))


def test_a_missing_part_is_named(tmp_path: Path, refusal: Refusal) -> None:
    parts = hybrid.parts()
    parts.metadata |= {"split.no": 0, "split.count": 2}
    first = tiny.write_gguf(tmp_path / "big-00001-of-00002.gguf", parts)
    assert "big-00002-of-00002.gguf is missing" in refusal(first)
