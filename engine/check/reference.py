"""The same weights in transformers, in float32: the oracle of the check and of the tests.

transformers is a development dependency; without it the check says so.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hearth.engine.errors import UserError
from hearth.engine.weights import folder

if TYPE_CHECKING:
    import torch

    from hearth.engine.model.config import ModelConfig
    from hearth.engine.weights.entries import WeightEntry
    from hearth.engine.weights.model_files import ModelFiles

HF_NAMES = {ours: theirs for theirs, ours in folder.TOP_NAMES.items()}
CLASSES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
    "qwen3_5": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM"),
}
HF_LAYER_NAMES = {ours: theirs for theirs, ours in folder.LAYER_NAMES.items()}


def hf_name(name: str) -> str:
    """transformers' name of a canonical tensor name."""
    if name in HF_NAMES:
        return HF_NAMES[name] if name == "output" else f"model.{HF_NAMES[name]}"
    _, layer, part = name.split(".")
    return f"model.layers.{layer}.{HF_LAYER_NAMES[part]}"


def reference_of(files: ModelFiles) -> Any:
    """A float32 model of transformers with the dequantised weights of ``files``. Raises UserError
    without transformers, or for a model that it has no counterpart for."""
    if find_spec("transformers") is None:
        raise UserError("The oracle needs transformers.", action="Run 'make dev' first.")
    import transformers

    architecture = files.config.architecture
    is_tiled = files.config.linear is not None and files.config.linear.is_tiled
    if architecture not in CLASSES or is_tiled:
        raise UserError(f"The oracle command has no reference for this model ({architecture}).")
    config_name, model_name = CLASSES[architecture]
    config = getattr(transformers, config_name)(**_settings(files.config))
    model = getattr(transformers, model_name)(config)
    entries = {n: e for n, e in files.tensors.items() if not n.startswith("mtp.")}
    state = {hf_name(name): _published(name, e, files.config) for name, e in entries.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight"}, missing
    model.tie_weights()
    model.train(False)
    return model


def _settings(config: ModelConfig) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rope_theta}
    settings: dict[str, Any] = {
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "rms_norm_eps": config.rms_norm_eps,
        "max_position_embeddings": config.max_position_embeddings,
        "tie_word_embeddings": config.tie_word_embeddings,
        "rope_parameters": rope,
    }
    if config.linear is not None:
        rope |= {
            "partial_rotary_factor": config.rope_dim / config.head_dim,
            "mrope_section": list(config.mrope_section or (config.rope_dim // 2, 0, 0)),
            "mrope_interleaved": True,
        }
        settings["layer_types"] = list(config.layer_types)
        sizes = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
        for name in (*sizes, "conv_kernel_dim"):
            settings[f"linear_{name}"] = getattr(config.linear, name)
    return settings


def _published(name: str, entry: WeightEntry, config: ModelConfig) -> torch.Tensor:
    """The values as checkpoints hold them: norms around zero, A_log, one channel a filter."""
    values, inner = entry.values(), name.rsplit(".", 1)[-1]
    if inner == "decay":
        return (-values).log()
    if inner == "conv":
        return values.unsqueeze(1)
    is_centred = config.zero_centred_norms and inner in folder.ZERO_CENTRED
    return values - 1.0 if is_centred else values
