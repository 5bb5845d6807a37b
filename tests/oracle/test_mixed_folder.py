"""A folder as repacked for speed: body int4, head and embeddings int8, and an int4 MTP module, with
a head for fewer words, in a file that the index does not list."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from float64 import hybrid, mtp
from float64_models import float64_of
from hybrid_models import mtp_tensors, random_model, write_tokenizer
from reference_models import HearthLogits
from safetensors.torch import save_file

from hearth.engine.errors import UserError
from hearth.engine.weights.folder import _canonical
from hearth.engine.weights.model_files import open_model
from hearth.kernels import packing

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")

from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

GROUP = 32
IDS = torch.randint(0, 256, (40,), generator=torch.Generator().manual_seed(1)).tolist()
EXTRA = "model_extra_tensors.safetensors"
GROUPS = {  # what a module's name has in it, the last for all others: bits and type of scales
    "lm_head": (8, torch.float16),
    "embed_tokens": (8, torch.bfloat16),
    "mtp.": (4, torch.float16),
    "": (4, torch.float16),
}
PLAIN = ("in_proj_a", "in_proj_b", "conv1d", "norm", "A_log", "dt_bias")


def weights_of(bits: int) -> dict[str, Any]:
    return {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "group",
            "group_size": GROUP, "actorder": None, "dynamic": False}  # fmt: skip


def stated() -> dict[str, Any]:
    groups = {
        f"group_{index}": {
            "targets": [f"re:.*{name}.*" if name else "Linear"],
            "weights": weights_of(bits),
        }
        for index, (name, (bits, _)) in enumerate(GROUPS.items())
    }
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "version": "0.17.0",
            "quantization_status": "compressed", "kv_cache_scheme": None,
            "ignore": ["re:.*visual.*"], "config_groups": groups}  # fmt: skip


def target_of(module: str) -> tuple[int, torch.dtype]:
    return next(found for name, found in GROUPS.items() if name in module)


def stored(module: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The library's parts of a module, scales of both signs, and their values."""
    bits, dtype = target_of(module)
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights_of(bits)))
    library = BaseCompressor.get_value_from_registry("pack-quantized")
    largest = weight.view(weight.shape[0], -1, GROUP).abs().amax(2)
    signs = torch.arange(largest.numel()).view_as(largest) % 2 * 2 - 1
    scale = (largest / (2 ** (bits - 1) - 1) * signs).to(dtype)
    parts = library.compress({"weight": weight, "weight_scale": scale}, scheme)
    values = library.decompress({**parts, "weight_scale": scale.float()}, scheme)["weight"]
    return {f"{module}.{part}": value for part, value in parts.items()}, values


def published(name: str) -> str:
    """Under the longest of the prefixes."""
    return name.replace("model.", "model.language_model.", 1)


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Any, dict[str, torch.Tensor]]:
    """The folder, transformers' model of its values, and those values by published module."""
    model = random_model()
    state = model.state_dict() | mtp_tensors(model.config)
    files: dict[str, dict[str, torch.Tensor]] = {"a": {}, "b": {}, EXTRA: {}}
    values: dict[str, torch.Tensor] = {}
    for name, tensor in state.items():
        shard = EXTRA if name.startswith("mtp.") else "b" if ".3." in name else "a"
        module = published(name).removesuffix(".weight")
        if tensor.dim() != 2 or module.endswith(PLAIN):
            files[shard][published(name)] = tensor.contiguous()
            continue
        parts, values[module] = stored(module, tensor.float())
        files[shard] |= parts
        state[name] = values[module]
    files[EXTRA] |= stored("mtp.draft_lm_head", torch.randn(64, 64))[0]
    files["b"][published("model.layers.3.self_attn.k_scale")] = torch.ones(1)
    model.load_state_dict({n: v for n, v in state.items() if not n.startswith("mtp.")})
    model.config.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": stated()}))
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    for key, tensors in files.items():
        whole = {name: value.contiguous().clone() for name, value in tensors.items()}
        save_file(whole, tmp_path / shards.get(key, key), {"format": "pt"})
    weight_map = {name: shard for key, shard in shards.items() for name in files[key]}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return tmp_path, model, values


def test_values_logits_and_drafts(made: tuple[Path, Any, dict[str, torch.Tensor]]) -> None:
    folder, model, values = made
    files = open_model(folder)
    assert files.config.num_mtp_layers == 1
    formats = {name: entry.format for name, entry in files.tensors.items()}
    assert formats["token_embd"] == formats["output"] == "int8 g32"
    assert formats["layers.0.gate"] == formats["mtp.layers.0.q"] == formats["mtp.fc"] == "int4 g32"
    for module, expected in values.items():
        entry = files.tensors[str(_canonical(f"{module}.weight"))]
        assert torch.equal(entry.values(), expected), module
        assert torch.equal(packing.dequantise(entry.packed()), expected), module
    with torch.no_grad():
        theirs = model(torch.tensor([IDS])).logits[0]
    hearth = HearthLogits(files, max_tokens=len(IDS) + 4)
    ours = hearth.feed(IDS[:-1])
    assert (ours - theirs[:-1]).norm() < 1e-4 * theirs.norm()
    tensors, config = float64_of(folder)
    hidden = hybrid.forward(tensors, config, IDS[:-1])["hidden"]
    tokens, expected_drafts = mtp.mtp_draft(tensors, config, hidden, IDS[1:], 3)
    drafts = hearth.draft(IDS[-1], tokens[:-1])
    assert np.abs(drafts - expected_drafts).max() < 1e-4 * np.abs(expected_drafts).max()
    assert drafts.argmax(1).tolist() == tokens


def test_a_module_in_both_places_is_damage(
    made: tuple[Path, Any, dict[str, torch.Tensor]],
) -> None:
    """Part of the module in an indexed file: what lacks is looked for beside, and found twice."""
    folder, _, _ = made
    more = folder / "model-00003-of-00003.safetensors"
    save_file({"mtp.norm.weight": torch.zeros(64)}, more)
    index = folder / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    index.write_text(json.dumps({"weight_map": weight_map | {"mtp.norm.weight": more.name}}))
    with pytest.raises(UserError) as caught:
        open_model(folder)
    assert "mtp.norm.weight occurs twice" in caught.value.sentence
    assert EXTRA in caught.value.sentence
