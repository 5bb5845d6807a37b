"""A folder with config.json, safetensors and tokenizer.json as ``ModelFiles``."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hearth.engine.errors import UserError
from hearth.engine.text.data import FolderText
from hearth.engine.weights.checks import mtp_names, unknown_tensor
from hearth.engine.weights.entries import TensorEntry, Transform, WeightEntry
from hearth.engine.weights.files import damaged, shown, unreadable
from hearth.engine.weights.folder_config import read_config
from hearth.engine.weights.folder_tensors import WHOLE, group_tensors
from hearth.engine.weights.json_files import read_json, read_text
from hearth.engine.weights.model_files import ModelFiles, fingerprint_of
from hearth.engine.weights.schemes import Module, Quantisation, open_module, read_quantisation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearth.engine.model.config import ModelConfig

MAX_SHARDS = 1000
MAX_TOKEN_DIGITS = 9
INDEX = "model.safetensors.index.json"
LAYER_NAMES = {
    "input_layernorm.weight": "attn_norm",
    "self_attn.q_proj.weight": "q",
    "self_attn.k_proj.weight": "k",
    "self_attn.v_proj.weight": "v",
    "self_attn.o_proj.weight": "o",
    "self_attn.q_proj.bias": "q_bias",
    "self_attn.k_proj.bias": "k_bias",
    "self_attn.v_proj.bias": "v_bias",
    "self_attn.q_norm.weight": "q_norm",
    "self_attn.k_norm.weight": "k_norm",
    "post_attention_layernorm.weight": "ffn_norm",
    "mlp.gate_proj.weight": "gate",
    "mlp.up_proj.weight": "up",
    "mlp.down_proj.weight": "down",
    "linear_attn.in_proj_qkv.weight": "in_qkv",
    "linear_attn.in_proj_z.weight": "in_z",
    "linear_attn.in_proj_b.weight": "in_b",
    "linear_attn.in_proj_a.weight": "in_a",
    "linear_attn.conv1d.weight": "conv",
    "linear_attn.A_log": "decay",
    "linear_attn.dt_bias": "dt_bias",
    "linear_attn.norm.weight": "gdn_norm",
    "linear_attn.out_proj.weight": "out",
}
MTP_NAMES = {
    "fc.weight": "fc",
    "pre_fc_norm_embedding.weight": "embedding_norm",
    "pre_fc_norm_hidden.weight": "hidden_norm",
    "norm.weight": "norm",
}
ZERO_CENTRED = (
    "attn_norm", "ffn_norm", "q_norm", "k_norm", "output_norm", "embedding_norm", "hidden_norm",
    "norm",
)  # fmt: skip
TOP_NAMES = {
    "embed_tokens.weight": "token_embd",
    "norm.weight": "output_norm",
    "lm_head.weight": "output",
}
PREFIX = re.compile(r"^(?:language_model\.)?(?:model\.)?(?:language_model\.)?")
LAYER = re.compile(r"^(mtp\.)?layers\.(0|[1-9]\d{0,5})\.(.+)$")
# Buffers that old exports stored; the vision tower, which is not run yet.
UNUSED_NAMES = ("rotary_emb.inv_freq", "attn.masked_bias", "visual.")


def open_folder(path: Path) -> ModelFiles:
    """Raises UserError when a file is missing, damaged, of an unknown kind or quantised."""
    _refuse_other_folders(path)
    raw_config = read_json(path / "config.json")
    config = read_config(path, raw_config)
    tensors = _tensors(path, config)
    config = _with_padding(_with_mtp(config, tensors), tensors)
    header = json.dumps(raw_config, sort_keys=True).encode()
    return ModelFiles(
        name=path.resolve().name,
        path=path,
        config=config,
        tensors=tensors,
        text=_text(path, raw_config),
        fingerprint=fingerprint_of(header, tensors),
    )


def _refuse_other_folders(path: Path) -> None:
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        raise unreadable(path, error) from error
    if "config.json" in names:
        return
    inside = next((name for name in names if name.lower().endswith(".gguf")), None)
    if inside is not None:
        raise UserError(
            f"{shown(path.name)} is a folder of GGUF files.",
            action=f"Choose one of the files in it, for example {shown(inside)}.",
        )
    if "adapter_config.json" in names:
        raise UserError(
            f"{shown(path.name)} is an adapter (LoRA), not a whole model.",
            action="Choose the model that it was merged into.",
        )


# ----------------------------------------------------------------------------------------- tensors


def _tensors(path: Path, config: ModelConfig) -> dict[str, WeightEntry]:
    how = read_quantisation(path, read_json(path / "config.json"))
    modules = _modules(path, config)
    if config.tie_word_embeddings:
        modules.pop("output", None)
    return {name: _entry(module, config, how) for name, module in modules.items()}


def _modules(path: Path, config: ModelConfig) -> dict[str, Module]:
    """Of all shards, and what lacks of an MTP module out of files beside them: exporters write it
    last, often without a word in the index."""

    def unknown(shard: Path, name: str) -> UserError | None:
        if any(unused in name for unused in UNUSED_NAMES):
            return None
        return unknown_tensor(shard, name, config.architecture)

    def unknown_of_mtp(shard: Path, name: str) -> UserError | None:
        return unknown(shard, name) if PREFIX.sub("", name).startswith("mtp.") else None

    shards = shards_of(path)
    modules = group_tensors(shards, _canonical, unknown)
    others = [file for file in sorted(path.glob("*.safetensors")) if file not in shards]
    if others and not mtp_names(config) <= modules.keys():
        return group_tensors(others, _canonical_mtp, unknown_of_mtp, modules)
    return modules


def _canonical_mtp(name: str) -> str | None:
    found = _canonical(name)
    return found if found is not None and found.startswith("mtp.") else None


def _with_mtp(config: ModelConfig, tensors: dict[str, WeightEntry]) -> ModelConfig:
    """Exports may leave the MTP module out whatever their configuration says."""
    return replace(config, num_mtp_layers=1 if "mtp.fc" in tensors else 0)


def _with_padding(config: ModelConfig, tensors: dict[str, WeightEntry]) -> ModelConfig:
    """Exports may pad the embeddings to a round number of rows: those are the vocabulary."""
    embedding = tensors.get("token_embd")
    if embedding is None or embedding.shape[0] <= config.vocab_size:
        return config
    return replace(config, vocab_size=embedding.shape[0])


def _entry(module: Module, config: ModelConfig, how: Quantisation | None) -> WeightEntry:
    tensor = module.parts.get(WHOLE)
    if len(module.parts) > 1 or tensor is None:
        return _quantised(module, how)
    if tensor.ggml_type is None:
        raise module.refused(f"as {shown(tensor.dtype)}")
    inner = module.name.rsplit(".", 1)[-1]
    shape = tensor.shape
    if inner == "conv" and len(shape) == 3:  # [channels, 1, taps]
        shape = (shape[0], math.prod(shape[1:]))
    transform = None
    if config.zero_centred_norms and inner in ZERO_CENTRED:
        transform = Transform.PLUS_ONE
    elif inner == "decay":
        transform = Transform.MINUS_EXP
    return TensorEntry(module.name, shape, tensor.ggml_type, tensor.raw(), transform=transform)


def _quantised(module: Module, how: Quantisation | None) -> WeightEntry:
    entry = open_module(module, how)
    if module.name == "token_embd" and entry.input_order is not None:
        raise module.refused("with its columns out of order")
    return entry


def shards_of(path: Path) -> list[Path]:
    """The index's files when there is one: other exports may lie beside them."""
    single = path / "model.safetensors"
    if (path / INDEX).exists():
        shards = list(_indexed(path))
    elif single.exists():
        shards = [single]
    else:
        shards = sorted(path.glob("*.safetensors"))
    if not shards:
        raise UserError(
            f"{shown(path.name)} holds no safetensors files.",
            action="Hearth does not open pickle files (.bin, .pt): get the safetensors version.",
        )
    if len(shards) > MAX_SHARDS:
        raise damaged(shards[0], f"it is one of {len(shards)} parts")
    return shards


def _indexed(path: Path) -> Iterator[Path]:
    index = read_json(path / INDEX)
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict):
        raise damaged(path / INDEX, "it maps no weights to files")
    for name in sorted({str(value) for value in weight_map.values()}):
        # A name from a downloaded file must not lead out of the folder.
        if name != Path(name).name or "\\" in name or not name.endswith(".safetensors"):
            raise damaged(path / INDEX, f"it names {shown(name)}, which is no safetensors file")
        yield path / name


def _canonical(name: str) -> str | None:
    """The engine's name; exports differ in the prefix before ``layers``."""
    inner_name = PREFIX.sub("", name)
    match = LAYER.match(inner_name)
    if match is not None:
        inner = LAYER_NAMES.get(match[3])
        return f"{match[1] or ''}layers.{int(match[2])}.{inner}" if inner else None
    if inner_name.startswith("mtp."):
        inner = MTP_NAMES.get(inner_name.removeprefix("mtp."))
        return f"mtp.{inner}" if inner else None
    return TOP_NAMES.get(inner_name)


# -------------------------------------------------------------------------------------------- text


def _text(path: Path, raw_config: dict[str, Any]) -> FolderText:
    tokenizer_json = path / "tokenizer.json"
    if not tokenizer_json.is_file():
        raise UserError(
            f"{shown(path.name)} has no tokenizer.json.",
            action="Download the model's tokenizer files into the same folder.",
        )
    tokenizer_config = _optional_json(path / "tokenizer_config.json")
    generation = _optional_json(path / "generation_config.json")
    ends = _ids(generation.get("eos_token_id")) + _ids(raw_config.get("eos_token_id"))
    bos = _ids(raw_config.get("bos_token_id"))
    return FolderText(
        tokenizer_json=tokenizer_json,
        extra_tokens=_extra_tokens(tokenizer_config),
        bos_id=bos[0] if bos and tokenizer_config.get("add_bos_token") is True else None,
        end_ids=tuple(dict.fromkeys(ends)),
        chat_template=_chat_template(path, tokenizer_config),
    )


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _ids(value: object) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [item for item in values if type(item) is int and item >= 0]


def _extra_tokens(tokenizer_config: dict[str, Any]) -> tuple[tuple[int, str], ...]:
    decoder = tokenizer_config.get("added_tokens_decoder")
    if not isinstance(decoder, dict):
        return ()
    pairs = [
        (int(key), value["content"])
        for key, value in decoder.items()
        if key.isascii() and key.isdigit() and len(key) <= MAX_TOKEN_DIGITS
        if isinstance(value, dict) and isinstance(value.get("content"), str)
    ]
    return tuple(sorted(pairs))


def _chat_template(path: Path, tokenizer_config: dict[str, Any]) -> str | None:
    """Its own file in newer exports; a text or a list of named texts in older ones."""
    file = path / "chat_template.jinja"
    if file.exists():
        return read_text(file)
    template = tokenizer_config.get("chat_template")
    if isinstance(template, list):
        named = [item for item in template if isinstance(item, dict)]
        template = next((t.get("template") for t in named if t.get("name") == "default"), None)
    return template if isinstance(template, str) else None
