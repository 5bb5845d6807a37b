"""GGUF files of each family, written by the gguf package, open with the right values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import tiny_models as tiny
import torch
from gguf import GGMLQuantizationType, quants

from hearth.engine.model.config import RopeScaling
from hearth.engine.weights import gguf_model
from hearth.engine.weights.checks import expected_shapes
from hearth.engine.weights.folder import _canonical as folder_name
from hearth.engine.weights.model_files import open_model
from hearth.kernels import packing

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_every_tensor_has_the_published_values(
    tmp_path: Path, architecture: str, tied: bool
) -> None:
    files = open_model(
        tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_parts(architecture, tied=tied))
    )
    published = tiny.weights(architecture, tied=tied)
    assert len(files.tensors) == len(published)
    for name, weight in published.items():
        canonical = folder_name(name)
        assert canonical is not None
        assert torch.equal(files.tensors[canonical].values(), weight), name
    assert files.config.tie_word_embeddings == tied
    assert set(files.tensors) == set(expected_shapes(files.config))


def test_config_and_text_come_from_the_metadata(tmp_path: Path) -> None:
    files = open_model(tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_parts()))
    config = files.config
    assert (config.hidden_size, config.intermediate_size) == (tiny.HIDDEN, tiny.FFN)
    assert (config.num_attention_heads, config.num_key_value_heads) == (tiny.HEADS, tiny.KV_HEADS)
    assert (config.head_dim, config.vocab_size) == (tiny.HEAD_DIM, tiny.ROWS)
    assert (config.max_position_embeddings, config.rope_theta) == (512, 10000.0)
    assert config.rms_norm_eps == pytest.approx(1e-5)
    text = files.text
    assert isinstance(text, gguf_model.GgufText)
    assert text.tokens == tuple(tiny.TOKENS)
    assert text.token_types == tuple(tiny.TOKEN_TYPES)
    assert (text.bos_id, text.end_ids, text.merges) == (30, (31,), ("t 0",))
    assert text.chat_template == "{{ messages }}"
    assert files.name == "Tiny"


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16", "F16", "MXFP4"])
def test_quantised_rows_of_llama_are_put_in_order(tmp_path: Path, kind: str) -> None:
    parts = tiny.gguf_parts()
    ggml_type = GGMLQuantizationType[kind]
    parts.kinds = dict.fromkeys(
        (name for name, array in parts.tensors.items() if array.ndim == 2 and "down" not in name),
        ggml_type,
    )
    files = open_model(tiny.write_gguf(tmp_path / "m.gguf", parts))
    for name, hf_name in (("q", "q_proj"), ("k", "k_proj"), ("gate", "gate_proj")):
        entry = files.tensors[f"layers.1.{name}"]
        group = "mlp" if name == "gate" else "self_attn"
        published = tiny.weights("llama")[f"model.layers.1.{group}.{hf_name}.weight"].numpy()
        expected = quants.dequantize(quants.quantize(published, ggml_type), ggml_type)
        np.testing.assert_array_equal(entry.values().numpy(), expected)
        np.testing.assert_array_equal(packing.dequantise(entry.packed()).numpy(), expected)
        assert entry.num_bytes == quants.quantize(published, ggml_type).nbytes


def test_row_order_is_the_formula_of_the_format(tmp_path: Path) -> None:
    files = open_model(tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_parts()))
    order = files.tensors["layers.0.k"].row_order
    assert order is not None
    half = tiny.HEAD_DIM // 2
    for head in range(tiny.KV_HEADS):
        for s in (0, 1):
            for i in range(half):
                assert order[head * tiny.HEAD_DIM + s * half + i] == (
                    head * tiny.HEAD_DIM + 2 * i + s
                )
    assert files.tensors["layers.0.v"].row_order is None


def test_split_files_open_from_any_part(tmp_path: Path) -> None:
    paths = tiny.write_split(tmp_path, 3)
    opened = [open_model(path) for path in paths]
    assert {files.fingerprint for files in opened} == {opened[0].fingerprint}
    published = tiny.weights("llama")
    assert opened[2].num_parameters == sum(weight.numel() for weight in published.values())
    embedding = opened[1].tensors["token_embd"].values()
    assert torch.equal(embedding, published["model.embed_tokens.weight"])


def test_fingerprint_follows_the_content_and_not_the_name(tmp_path: Path) -> None:
    first = open_model(tiny.write_gguf(tmp_path / "a.gguf", tiny.gguf_parts()))
    again = open_model(tiny.write_gguf(tmp_path / "b.gguf", tiny.gguf_parts()))
    assert first.fingerprint == again.fingerprint
    changed_weight, changed_key = tiny.gguf_parts(), tiny.gguf_parts()
    changed_weight.tensors["blk.1.ffn_up.weight"][0, 0] += 1.0
    changed_key.metadata["llama.rope.freq_base"] = 20000.0
    for number, parts in enumerate((changed_weight, changed_key)):
        path = tiny.write_gguf(tmp_path / f"c{number}.gguf", parts)
        assert open_model(path).fingerprint != first.fingerprint


def test_known_ends_of_turn_count_even_when_the_file_names_one(tmp_path: Path) -> None:
    parts = tiny.gguf_parts()
    parts.metadata["tokenizer.ggml.eos_token_id"] = 30
    parts.metadata["tokenizer.ggml.bos_token_id"] = 2**31 - 1  # "none" of some converters
    text = open_model(tiny.write_gguf(tmp_path / "m.gguf", parts)).text
    assert text.end_ids == (30, 31)
    assert text.bos_id is None


def test_vocabulary_may_be_padded(tmp_path: Path) -> None:
    parts = tiny.gguf_parts()
    parts.tokens = tiny.TOKENS[:-2]
    files = open_model(tiny.write_gguf(tmp_path / "m.gguf", parts))
    assert files.config.vocab_size == tiny.ROWS


def test_values_given_per_layer_count_as_one_when_equal(tmp_path: Path) -> None:
    parts = tiny.gguf_parts()
    parts.metadata["llama.attention.head_count_kv"] = [tiny.KV_HEADS] * tiny.LAYERS
    files = open_model(tiny.write_gguf(tmp_path / "m.gguf", parts))
    assert files.config.num_key_value_heads == tiny.KV_HEADS


def test_rope_scaling_keys(tmp_path: Path) -> None:
    parts = tiny.gguf_parts()
    key = "llama.rope.scaling."
    parts.metadata |= {key + "type": "yarn", key + "factor": 4.0}
    parts.metadata |= {key + "original_context_length": 128, key + "yarn_beta_fast": 24.0}
    files = open_model(tiny.write_gguf(tmp_path / "m.gguf", parts))
    assert files.config.rope_scaling == RopeScaling("yarn", 4.0, 128, beta_fast=24.0)


def test_rotary_factors_are_kept(tmp_path: Path) -> None:
    parts = tiny.gguf_parts()
    factors = np.linspace(1, 8, tiny.HEAD_DIM // 2, dtype=np.float32)
    parts.tensors["rope_freqs.weight"] = factors
    files = open_model(tiny.write_gguf(tmp_path / "m.gguf", parts))
    assert torch.equal(files.tensors["rope_freqs"].values(), torch.from_numpy(factors))


def test_large_alignment(tmp_path: Path) -> None:
    parts = tiny.gguf_parts()
    parts.alignment = 4096
    files = open_model(tiny.write_gguf(tmp_path / "m.gguf", parts))
    norm = tiny.weights("llama")["model.norm.weight"]
    assert torch.equal(files.tensors["output_norm"].values(), norm)


def test_weights_are_views_of_the_file(tmp_path: Path) -> None:
    files = open_model(tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_parts()))
    storages = {entry.raw.untyped_storage().data_ptr() for entry in files.tensors.values()}
    assert len(storages) == 1
