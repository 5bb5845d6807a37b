"""A folder with config.json, safetensors and tokenizer.json as ``ModelFiles``."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from hearth.engine.errors import MachineError, UserError
from hearth.engine.model.config import ARCHITECTURES, ModelConfig, RopeScaling
from hearth.engine.text.data import FolderText
from hearth.engine.weights.files import damaged
from hearth.engine.weights.model_files import ModelFiles, TensorEntry, fingerprint_of
from hearth.engine.weights.safetensors_file import open_safetensors

if TYPE_CHECKING:
    from pathlib import Path

MAX_JSON_BYTES = 64 << 20  # a tokenizer.json of 250,000 tokens has 20 MB
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
}
TOP_NAMES = {
    "model.embed_tokens.weight": "token_embd",
    "model.norm.weight": "output_norm",
    "lm_head.weight": "output",
}
LAYER = re.compile(r"^model\.layers\.(\d+)\.(.+)$")


def open_folder(path: Path) -> ModelFiles:
    """Raises UserError when a file is missing, damaged, of an unknown kind or quantised."""
    raw_config = read_json(path / "config.json")
    if "quantization_config" in raw_config:
        scheme = raw_config["quantization_config"]
        method = scheme.get("quant_method") if isinstance(scheme, dict) else scheme
        raise UserError(
            f"{path.name} is quantised as {method}, which Hearth cannot read yet.",
            action="Choose a bf16 or a GGUF version of the model.",
        )
    config = read_config(path, raw_config)
    tensors = _tensors(path)
    if config.tie_word_embeddings:
        tensors.pop("output", None)
    header = json.dumps(raw_config, sort_keys=True).encode()
    return ModelFiles(
        path.name, path, config, tensors, _text(path, raw_config), fingerprint_of(header, tensors)
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of bounded size; a missing or broken file is a UserError naming it."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise damaged(path, "it is too large for a configuration file")
        value = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise UserError(
            f"{path.parent.name} has no {path.name}.",
            action="Choose a folder with config.json, tokenizer.json and safetensors files.",
        ) from error
    except OSError as error:
        raise MachineError(f"{path} could not be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise damaged(path, "it is not JSON") from error
    if not isinstance(value, dict):
        raise damaged(path, "it is not a JSON object")
    return value


# ------------------------------------------------------------------------------------------ config


def read_config(path: Path, raw: dict[str, Any]) -> ModelConfig:
    """ModelConfig from config.json; both generations of rope keys."""
    architecture = raw.get("model_type")
    if architecture not in ARCHITECTURES:
        raise UserError(
            f"{path.name} has the architecture {architecture}, which Hearth cannot run yet.",
            action=f"Choose a model of one of these: {', '.join(ARCHITECTURES)}.",
        )
    heads = _integer(path, raw, "num_attention_heads")
    hidden = _integer(path, raw, "hidden_size")
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    theta = rope.get("rope_theta") if isinstance(rope, dict) else None
    try:
        return ModelConfig(
            architecture=str(architecture),
            hidden_size=hidden,
            intermediate_size=_integer(path, raw, "intermediate_size"),
            num_hidden_layers=_integer(path, raw, "num_hidden_layers"),
            num_attention_heads=heads,
            num_key_value_heads=_integer(path, raw, "num_key_value_heads", heads),
            head_dim=_integer(path, raw, "head_dim", hidden // max(heads, 1)),
            vocab_size=_integer(path, raw, "vocab_size"),
            max_position_embeddings=_integer(path, raw, "max_position_embeddings"),
            rms_norm_eps=_real(path, raw, "rms_norm_eps", 1e-6),
            rope_theta=_real(path, raw, "rope_theta", 10000.0) if theta is None else float(theta),
            rope_scaling=_rope_scaling(path, rope),
            tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        )
    except (AssertionError, TypeError, ValueError) as error:
        raise damaged(path / "config.json", f"its values are impossible ({error})") from error


def _integer(path: Path, raw: dict[str, Any], key: str, default: int | None = None) -> int:
    value = raw.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 31:
        raise damaged(path / "config.json", f"{key} is missing or no sensible number")
    return value


def _real(path: Path, raw: dict[str, Any], key: str, default: float) -> float:
    value = raw.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise damaged(path / "config.json", f"{key} is no number")
    return float(value)


def _rope_scaling(path: Path, rope: object) -> RopeScaling | None:
    if not isinstance(rope, dict):
        return None
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind not in ("linear", "llama3", "yarn"):
        raise UserError(f"{path.name} uses rope scaling {kind}, which Hearth cannot run.")
    known = ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor",
             "beta_fast", "beta_slow")  # fmt: skip
    given = {key: rope[key] for key in known if rope.get(key) is not None}
    return RopeScaling(kind=kind, factor=float(rope.get("factor", 1.0)), **given)


# ----------------------------------------------------------------------------------------- tensors


def _tensors(path: Path) -> dict[str, TensorEntry]:
    shards = sorted(path.glob("*.safetensors"))
    if not shards:
        raise UserError(
            f"{path.name} holds no safetensors files.",
            action="Hearth does not open pickle files (.bin, .pt): get the safetensors version.",
        )
    entries: dict[str, TensorEntry] = {}
    for shard in shards:
        for tensor in open_safetensors(shard).values():
            name = _canonical(tensor.name)
            if name is None:
                continue
            if name in entries:
                raise damaged(shard, f"tensor {tensor.name} occurs twice")
            entries[name] = TensorEntry(name, tensor.shape, tensor.ggml_type, tensor.raw())
    return entries


def _canonical(name: str) -> str | None:
    match = LAYER.match(name)
    if match is None:
        return TOP_NAMES.get(name)
    inner = LAYER_NAMES.get(match[2])
    return f"layers.{int(match[1])}.{inner}" if inner else None


# -------------------------------------------------------------------------------------------- text


def _text(path: Path, raw_config: dict[str, Any]) -> FolderText:
    tokenizer_json = path / "tokenizer.json"
    if not tokenizer_json.exists():
        raise UserError(
            f"{path.name} has no tokenizer.json.",
            action="Download the model's tokenizer files into the same folder.",
        )
    config_file = path / "tokenizer_config.json"
    tokenizer_config = read_json(config_file) if config_file.exists() else {}
    generation_file = path / "generation_config.json"
    generation = read_json(generation_file) if generation_file.exists() else {}
    ends = _ids(generation.get("eos_token_id")) + _ids(raw_config.get("eos_token_id"))
    bos = _ids(raw_config.get("bos_token_id"))
    return FolderText(
        tokenizer_json=tokenizer_json,
        extra_tokens=_extra_tokens(tokenizer_config),
        bos_id=bos[0] if bos and tokenizer_config.get("add_bos_token") else None,
        end_ids=tuple(dict.fromkeys(ends)),
        chat_template=_chat_template(path, tokenizer_config),
    )


def _ids(value: object) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, int) and not isinstance(item, bool)]


def _extra_tokens(tokenizer_config: dict[str, Any]) -> tuple[tuple[int, str], ...]:
    decoder = tokenizer_config.get("added_tokens_decoder")
    if not isinstance(decoder, dict):
        return ()
    pairs = [
        (int(key), value["content"])
        for key, value in decoder.items()
        if key.isdigit() and isinstance(value, dict) and isinstance(value.get("content"), str)
    ]
    return tuple(sorted(pairs))


def _chat_template(path: Path, tokenizer_config: dict[str, Any]) -> str | None:
    file = path / "chat_template.jinja"
    if file.exists():
        return file.read_text("utf-8")
    template = tokenizer_config.get("chat_template")
    return template if isinstance(template, str) else None
