"""The hybrid family as GGUF and as a folder: the same tensors, value for value, and one config."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import hybrid_files as hybrid
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFReader
from reference_models import HearthLogits

from hearth.engine.weights.checks import expected_shapes
from hearth.engine.weights.folder import _canonical as folder_name
from hearth.engine.weights.model_files import open_model
from hearth.kernels import packing

if TYPE_CHECKING:
    from pathlib import Path

    from hearth.engine.weights.model_files import ModelFiles

MIXED = {
    "token_embd": Kind.Q8_0,
    "output": Kind.Q6_K,
    "attn_q": Kind.Q4_K,
    "attn_k": Kind.Q5_K,
    "attn_v": Kind.Q4_0,
    "attn_output": Kind.IQ4_XS,
    "attn_qkv": Kind.Q5_K,
    "attn_gate": Kind.Q4_K,
    "ssm_beta": Kind.F16,
    "ssm_alpha": Kind.BF16,
    "ssm_out": Kind.Q6_K,
    "ffn_gate": Kind.NVFP4,
    "ffn_up": Kind.BF16,
    "ffn_down": Kind.IQ4_XS,
    "nextn.eh_proj": Kind.Q8_0,
}
HALVES = {"attn_qkv": Kind.BF16, "ssm_out": Kind.F16, "ffn_down": Kind.Q4_0, "attn_gate": Kind.Q8_0}


@pytest.fixture(scope="module")
def reference() -> tuple[dict[str, Any], hybrid.Tensors]:
    return hybrid.published()


def both(
    folder: Path, reference: tuple[dict[str, Any], hybrid.Tensors], kinds: dict[str, Kind]
) -> tuple[ModelFiles, ModelFiles, dict[str, hybrid.Stored]]:
    """The GGUF file, and a folder with the values that its blocks stand for."""
    config, weights = reference
    stored = hybrid.stored_tensors(weights, kinds)
    rounded = {
        name: hybrid.published_again(
            name, torch.from_numpy(stored[hybrid.gguf_name(name)].values())
        )
        if tensor.dim() == 2
        else tensor
        for name, tensor in weights.items()
    }
    gguf = open_model(hybrid.write_gguf(folder / "m.gguf", stored))
    return gguf, open_model(hybrid.write_folder(folder / "m", config, rounded)), stored


@pytest.mark.parametrize("kinds", [{}, HALVES, MIXED], ids=["float32", "halves", "mixed"])
def test_every_tensor_is_the_folder_s_and_the_dequantiser_s(
    tmp_path: Path, reference: tuple[dict[str, Any], hybrid.Tensors], kinds: dict[str, Kind]
) -> None:
    gguf, folder, stored = both(tmp_path, reference, kinds)
    assert set(gguf.tensors) == set(folder.tensors) == set(expected_shapes(gguf.config))
    for name in reference[1]:
        canonical = folder_name(name)
        assert canonical is not None
        entry = gguf.tensors[canonical]
        values = entry.values()
        np.testing.assert_array_equal(values.numpy(), stored[hybrid.gguf_name(name)].values())
        of_folder = folder.tensors[canonical].values()
        assert torch.equal(values, hybrid.reorder_heads(name, of_folder)), name
        if values.dim() == 2 and canonical.rpartition(".")[2] != "conv":
            assert torch.equal(packing.dequantise(entry.packed()), values), name


def test_the_config_is_the_folder_s(
    tmp_path: Path, reference: tuple[dict[str, Any], hybrid.Tensors]
) -> None:
    gguf, folder, _ = both(tmp_path, reference, {})
    linear = folder.config.linear
    assert linear is not None
    expected = replace(
        folder.config,
        linear=replace(linear, is_tiled=True),
        rms_norm_eps=float(np.float32(1e-6)),
    )
    assert gguf.config == expected
    assert gguf.config.num_mtp_layers == 1


def test_a_scale_changes_the_fingerprint(
    tmp_path: Path, reference: tuple[dict[str, Any], hybrid.Tensors]
) -> None:
    stored = hybrid.stored_tensors(reference[1], {"ffn_gate": Kind.NVFP4})
    first = open_model(hybrid.write_gguf(tmp_path / "a.gguf", stored)).fingerprint
    name = "blk.1.ffn_gate.weight"
    stored[name] = replace(stored[name], scale=2.0**-8)
    assert open_model(hybrid.write_gguf(tmp_path / "b.gguf", stored)).fingerprint != first


def logits(files: ModelFiles) -> torch.Tensor:
    ids = torch.randint(0, 300, (70,), generator=torch.Generator().manual_seed(1)).tolist()
    return HearthLogits(files, max_tokens=len(ids)).feed(ids)


@pytest.mark.parametrize("kinds", [{}, HALVES, MIXED], ids=["float32", "halves", "mixed"])
def test_the_engine_computes_the_same_from_both(
    tmp_path: Path, reference: tuple[dict[str, Any], hybrid.Tensors], kinds: dict[str, Kind]
) -> None:
    """Heads in another order add up in another order, so bits differ (seen: 2.8e-6)."""
    gguf, folder, _ = both(tmp_path, reference, kinds)
    expected = logits(folder)
    assert (logits(gguf) - expected).abs().max() < 1e-5 * expected.abs().max()


def test_the_order_of_heads_is_seen(
    tmp_path: Path, reference: tuple[dict[str, Any], hybrid.Tensors]
) -> None:
    gguf, folder, _ = both(tmp_path, reference, {})
    assert gguf.config.linear is not None
    config = replace(gguf.config, linear=replace(gguf.config.linear, is_tiled=False))
    expected = logits(folder)
    wrong = logits(replace(gguf, config=config))
    assert (wrong - expected).abs().max() > 0.05 * expected.abs().max()


# The tokenizer is no part of what is compared, so the converter gets none.
CONVERT = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
from pathlib import Path
import gguf
from conversion import get_model_class
Model = get_model_class("Qwen3_5ForCausalLM")
Model.set_vocab = lambda self: None
Model(Path(sys.argv[2]), gguf.LlamaFileType.ALL_F32, Path(sys.argv[3])).write()
"""


def test_the_conversion_is_llama_cpp_s(
    tmp_path: Path, reference: tuple[dict[str, Any], hybrid.Tensors]
) -> None:
    """Tensor by tensor and key by key, against the real converter.

    HEARTH_LLAMA_CPP names the source folder that holds convert_hf_to_gguf.py.
    """
    sources = os.environ.get("HEARTH_LLAMA_CPP")
    if not sources:
        pytest.skip("HEARTH_LLAMA_CPP does not name llama.cpp's sources")
    config, weights = reference
    hybrid.write_folder(tmp_path / "m", config, weights)
    arguments = [sources, str(tmp_path / "m"), str(tmp_path / "m.gguf")]
    subprocess.run([sys.executable, "-c", CONVERT, *arguments], check=True, capture_output=True)
    theirs = GGUFReader(tmp_path / "m.gguf")
    stored = hybrid.stored_tensors(weights, {})
    assert {tensor.name for tensor in theirs.tensors} == set(stored)
    for tensor in theirs.tensors:
        ours = stored[tensor.name]
        assert tensor.tensor_type == ours.kind, tensor.name
        np.testing.assert_array_equal(tensor.data, ours.data, err_msg=tensor.name)
    for key, value in hybrid.metadata().items():
        if not key.startswith(("tokenizer.", "general.")):
            assert json.dumps(theirs.fields[key].contents()) == json.dumps(_as_read(value)), key


def _as_read(value: object) -> object:
    return float(np.float32(value)) if isinstance(value, float) else value
