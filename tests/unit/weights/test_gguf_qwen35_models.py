"""Variants of GGUF files of the hybrid family: what exports leave out or say in another way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import tiny_hybrid as hybrid
import tiny_models as tiny
import torch
from gguf import GGMLQuantizationType, quants

from hearth.engine.model.config import FULL, LINEAR
from hearth.engine.weights.checks import expected_shapes
from hearth.engine.weights.model_files import open_model
from hearth.kernels import packing

if TYPE_CHECKING:
    from pathlib import Path

    from hearth.engine.weights.model_files import ModelFiles

KEY = "qwen35."


def opened(folder: Path, parts: tiny.GgufParts) -> ModelFiles:
    return open_model(tiny.write_gguf(folder / "m.gguf", parts))


def without_mtp() -> tiny.GgufParts:
    parts = hybrid.parts()
    parts.tensors = {
        name: array
        for name, array in parts.tensors.items()
        if not name.startswith(f"blk.{hybrid.LAYERS}.")
    }
    return parts


def test_keys_and_tensors(tmp_path: Path) -> None:
    files = opened(tmp_path, hybrid.parts())
    config, linear = files.config, files.config.linear
    assert (config.architecture, config.num_hidden_layers) == ("qwen3_5", hybrid.LAYERS)
    assert config.kinds == (LINEAR, LINEAR, LINEAR, FULL)
    assert (config.rope_dim, config.mrope_section) == (8, (2, 1, 1))
    assert (config.num_mtp_layers, config.tie_word_embeddings) == (1, True)
    assert linear is not None
    assert (linear.num_key_heads, linear.num_value_heads) == (hybrid.KEY_HEADS, hybrid.VALUE_HEADS)
    assert (linear.key_head_dim, linear.value_head_dim) == (hybrid.LINEAR_DIM, hybrid.LINEAR_DIM)
    assert (linear.conv_kernel_dim, linear.is_tiled) == (4, True)
    assert set(files.tensors) == set(expected_shapes(config))


def test_as_many_value_heads_as_key_heads_have_one_order(tmp_path: Path) -> None:
    linear = opened(tmp_path, hybrid.parts(value_heads=hybrid.KEY_HEADS)).config.linear
    assert linear is not None
    assert not linear.is_tiled


@pytest.mark.parametrize("nextn", [None, 0, 1])
def test_exports_without_mtp(tmp_path: Path, nextn: int | None) -> None:
    """With 1, the keys count a module that the export left out."""
    parts = without_mtp()
    del parts.metadata[KEY + "nextn_predict_layers"]
    if nextn is not None:
        parts.metadata[KEY + "nextn_predict_layers"] = nextn
    parts.metadata[KEY + "block_count"] = hybrid.LAYERS + (nextn or 0)
    files = opened(tmp_path, parts)
    assert (files.config.num_hidden_layers, files.config.num_mtp_layers) == (hybrid.LAYERS, 0)
    assert not any(name.startswith("mtp.") for name in files.tensors)


@pytest.mark.parametrize("truth", [(True, False), (1, 0)])
def test_listed_layers_go_before_the_interval(tmp_path: Path, truth: tuple[int, int]) -> None:
    parts = hybrid.parts()
    listed = [truth[0]] * 3 + [truth[1]] * 2
    parts.metadata[KEY + "attention.recurrent_layers"] = listed
    parts.metadata[KEY + "full_attention_interval"] = 2
    assert opened(tmp_path, parts).config.kinds == (LINEAR, LINEAR, LINEAR, FULL)


def test_the_interval_is_four_unless_said(tmp_path: Path) -> None:
    parts = hybrid.parts()
    del parts.metadata[KEY + "full_attention_interval"]
    assert opened(tmp_path, parts).config.kinds == (LINEAR, LINEAR, LINEAR, FULL)


def test_heads_a_layer_count_where_there_is_attention(tmp_path: Path) -> None:
    parts = hybrid.parts()
    parts.metadata[KEY + "attention.head_count"] = [0, 0, 0, tiny.HEADS, tiny.HEADS]
    parts.metadata[KEY + "attention.head_count_kv"] = [0, 0, 0, tiny.KV_HEADS, tiny.KV_HEADS]
    config = opened(tmp_path, parts).config
    assert (config.num_attention_heads, config.num_key_value_heads) == (tiny.HEADS, tiny.KV_HEADS)


@pytest.mark.parametrize("sections", [None, [2, 1, 1]])
def test_sections_of_three_or_none(tmp_path: Path, sections: list[int] | None) -> None:
    parts = hybrid.parts()
    del parts.metadata[KEY + "rope.dimension_sections"]
    if sections is not None:
        parts.metadata[KEY + "rope.dimension_sections"] = sections
    found = opened(tmp_path, parts).config.mrope_section
    assert found == (None if sections is None else tuple(sections))


def test_nothing_is_added_to_norms_and_decay(tmp_path: Path) -> None:
    parts = hybrid.parts()
    files = opened(tmp_path, parts)
    pairs = {
        "output_norm": "output_norm.weight",
        "layers.0.attn_norm": "blk.0.attn_norm.weight",
        "layers.0.ffn_norm": "blk.0.post_attention_norm.weight",
        "layers.0.decay": "blk.0.ssm_a",
        "layers.0.conv": "blk.0.ssm_conv1d.weight",
        "layers.3.q_norm": "blk.3.attn_q_norm.weight",
        "mtp.embedding_norm": "blk.4.nextn.enorm.weight",
        "mtp.hidden_norm": "blk.4.nextn.hnorm.weight",
        "mtp.norm": "blk.4.nextn.shared_head_norm.weight",
    }
    for name, published in pairs.items():
        np.testing.assert_array_equal(files.tensors[name].values(), parts.tensors[published])


def scaled_parts(scale: float) -> tiny.GgufParts:
    parts = hybrid.parts()
    parts.kinds["blk.0.ffn_up.weight"] = GGMLQuantizationType.Q8_0
    parts.tensors["blk.0.ffn_up.scale"] = np.array([scale], dtype=np.float32)
    return parts


@pytest.mark.parametrize("scale", [1.0, 0.25, 0.0123])
def test_a_scale_multiplies_its_tensor(tmp_path: Path, scale: float) -> None:
    """Any quantised type will do; the oracle's test has NVFP4."""
    parts = scaled_parts(scale)
    parts.tensors["blk.0.ffn_up.input_scale"] = np.array([7.0], dtype=np.float32)
    entry = opened(tmp_path, parts).tensors["layers.0.up"]
    kind = GGMLQuantizationType.Q8_0
    blocks = quants.quantize(parts.tensors["blk.0.ffn_up.weight"], kind)
    expected = torch.from_numpy(quants.dequantize(blocks, kind)) * np.float32(scale)
    torch.testing.assert_close(entry.values(), expected, rtol=2e-7, atol=0)
    assert torch.equal(packing.dequantise(entry.packed()), entry.values())
    assert (entry.format, entry.shape) == ("Q8_0", tuple(expected.shape))
    assert entry.num_bytes == blocks.nbytes + 4


def test_split_files(tmp_path: Path) -> None:
    parts = hybrid.parts()
    names = list(parts.tensors)
    for number in range(3):
        chosen = {name: parts.tensors[name] for name in names[number::3]}
        metadata = dict(parts.metadata) if number == 0 else {}
        metadata |= {"split.no": number, "split.count": 3, "split.tensors.count": len(names)}
        tokens = parts.tokens if number == 0 else None
        part = tiny.GgufParts("qwen35", chosen, {}, metadata, tokens)
        tiny.write_gguf(tmp_path / f"m-{number + 1:05d}-of-00003.gguf", part)
    files = open_model(tmp_path / "m-00002-of-00003.gguf")
    assert set(files.tensors) == set(expected_shapes(files.config))
