"""Folders with config.json and safetensors open with the right values and settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import tiny_models as tiny
import torch
from safetensors.torch import load_file, save_file

from hearth.engine.model.config import RopeScaling
from hearth.engine.text.data import FolderText
from hearth.engine.weights.model_files import open_model
from hearth.kernels import packing

if TYPE_CHECKING:
    from pathlib import Path


def text_of(folder: Path) -> FolderText:
    text = open_model(folder).text
    assert isinstance(text, FolderText)
    return text


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_values_are_the_library_s(tmp_path: Path, architecture: str, dtype: torch.dtype) -> None:
    config = tiny.hf_config(architecture, tie_word_embeddings=False)
    folder = tiny.write_folder(tmp_path / "m", config, dtype=dtype)
    files = open_model(folder)
    stored = load_file(folder / "model.safetensors")
    assert len(files.tensors) == len(stored)
    for name, other in (("q", "self_attn.q_proj"), ("down", "mlp.down_proj")):
        expected = stored[f"model.layers.1.{other}.weight"].float()
        entry = files.tensors[f"layers.1.{name}"]
        assert torch.equal(entry.values(), expected)
        assert torch.equal(packing.dequantise(entry.packed()), expected)
    assert torch.equal(files.tensors["output"].values(), stored["lm_head.weight"].float())
    assert files.config.attention_bias == (architecture == "qwen2")
    assert files.config.qk_norm == (architecture == "qwen3")
    assert files.name == "m"


def test_the_same_weights_as_gguf_and_as_folder(tmp_path: Path) -> None:
    gguf = open_model(tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_parts()))
    folder = open_model(tiny.write_folder(tmp_path / "m"))
    assert set(gguf.tensors) == set(folder.tensors)
    for name, entry in gguf.tensors.items():
        assert torch.equal(entry.values(), folder.tensors[name].values()), name


def test_a_tied_head_that_is_stored_too_is_left_out(tmp_path: Path) -> None:
    tensors = tiny.weights("llama", tied=False)
    files = open_model(tiny.write_folder(tmp_path / "m", tensors=tensors))
    assert "output" not in files.tensors


@pytest.mark.parametrize("prefix", ["", "language_model.model.", "model.language_model."])
def test_prefixes_of_other_exports(tmp_path: Path, prefix: str) -> None:
    tensors = {
        name.replace("model.", prefix, 1): weight for name, weight in tiny.weights("qwen3").items()
    }
    folder = tiny.write_folder(tmp_path / "m", tiny.hf_config("qwen3"), tensors)
    assert len(open_model(folder).tensors) == len(tensors)


def test_shards_by_index_leave_other_files_alone(tmp_path: Path) -> None:
    folder = tiny.write_folder(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    tensors = tiny.weights("llama")
    names = list(tensors)
    weight_map = {}
    for part in (0, 1):
        file = f"model-{part + 1:05d}-of-00002.safetensors"
        save_file({name: tensors[name] for name in names[part::2]}, folder / file)
        weight_map |= dict.fromkeys(names[part::2], file)
    save_file(tensors, folder / "consolidated.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    files = open_model(folder)
    assert files.num_parameters == sum(weight.numel() for weight in tensors.values())


def test_shards_without_an_index(tmp_path: Path) -> None:
    folder = tiny.write_folder(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    tensors = tiny.weights("llama")
    names = list(tensors)
    for part in (0, 1):
        save_file({n: tensors[n] for n in names[part::2]}, folder / f"part{part}.safetensors")
    assert len(open_model(folder).tensors) == len(tensors)


def test_padded_embeddings(tmp_path: Path) -> None:
    tensors = tiny.weights("llama")
    tensors["model.embed_tokens.weight"] = torch.randn(tiny.ROWS + 16, tiny.HIDDEN)
    files = open_model(tiny.write_folder(tmp_path / "m", tensors=tensors))
    assert files.config.vocab_size == tiny.ROWS + 16


def test_old_buffers_are_left_out(tmp_path: Path) -> None:
    tensors = tiny.weights("llama")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    files = open_model(tiny.write_folder(tmp_path / "m", tensors=tensors))
    assert len(files.tensors) == len(tensors) - 1


def test_unaligned_data(tmp_path: Path) -> None:
    """The format's library pads its header to 8 bytes; others need not."""
    folder = tiny.write_folder(tmp_path / "m")
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    for extra in (1, 2, 3):
        header = whole[8 : 8 + length] + b" " * extra
        file.write_bytes(len(header).to_bytes(8, "little") + header + whole[8 + length :])
        files = open_model(folder)
        expected = tiny.weights("llama")["model.layers.0.self_attn.k_proj.weight"]
        assert torch.equal(files.tensors["layers.0.k"].values(), expected)
        assert torch.equal(packing.dequantise(files.tensors["layers.0.k"].packed()), expected)


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}


@pytest.mark.parametrize(
    ("changes", "theta", "scaling"),
    [
        ({}, 10000.0, None),
        ({"rope_theta": 5e5, "rope_scaling": None}, 5e5, None),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 1e4, RopeScaling("linear", 2.0)),
        ({"rope_scaling": LLAMA3}, 1e4, RopeScaling("llama3", 8.0, 128)),
        (
            {"rope_theta": None, "rope_parameters": LLAMA3 | {"rope_theta": 5e5}},
            5e5,
            RopeScaling("llama3", 8.0, 128),
        ),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 1e6, None),
        (
            {
                "rope_scaling": {
                    "rope_type": "yarn",
                    "factor": 4,
                    "original_max_position_embeddings": 128,
                }
            },
            1e4,
            RopeScaling("yarn", 4.0, 128),
        ),
    ],
)
def test_both_generations_of_rope_keys(
    tmp_path: Path, changes: dict[str, Any], theta: float, scaling: RopeScaling | None
) -> None:
    config = open_model(tiny.write_folder(tmp_path / "m", tiny.hf_config(**changes))).config
    assert config.rope_theta == theta
    assert config.rope_scaling == scaling


def test_text_settings(tmp_path: Path) -> None:
    folder = tiny.write_folder(tmp_path / "m", tiny.hf_config(bos_token_id=30))
    assert text_of(folder) == FolderText(folder / "tokenizer.json", (), None, (31,), None)
    (folder / "generation_config.json").write_text('{"eos_token_id": [29, 31]}')
    tokenizer_config = {
        "add_bos_token": True,
        "chat_template": [{"name": "tool", "template": "no"}, {"name": "default", "template": "t"}],
        "added_tokens_decoder": {"31": {"content": "<|im_end|>"}, "x": {}, "²": {"content": "b"}},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    expected = FolderText(folder / "tokenizer.json", ((31, "<|im_end|>"),), 30, (29, 31), "t")
    assert text_of(folder) == expected
    (folder / "chat_template.jinja").write_text("own file")
    assert text_of(folder).chat_template == "own file"


def test_fingerprint_follows_config_and_weights(tmp_path: Path) -> None:
    first = open_model(tiny.write_folder(tmp_path / "a")).fingerprint
    assert open_model(tiny.write_folder(tmp_path / "b")).fingerprint == first
    changed = tiny.hf_config(rope_theta=20000.0)
    assert open_model(tiny.write_folder(tmp_path / "c", changed)).fingerprint != first
    tensors = tiny.weights("llama")
    tensors["model.norm.weight"][3] += 1.0
    assert open_model(tiny.write_folder(tmp_path / "d", tensors=tensors)).fingerprint != first
