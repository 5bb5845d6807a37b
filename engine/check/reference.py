"""The same weights in transformers, in float32: the oracle of the check and of the tests.

transformers is a development dependency; without it the check says so.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hearth.engine.errors import UserError
from hearth.engine.weights import folder

if TYPE_CHECKING:
    from hearth.engine.weights.model_files import ModelFiles

HF_NAMES = {ours: theirs for theirs, ours in folder.TOP_NAMES.items()}
HF_LAYER_NAMES = {ours: theirs for theirs, ours in folder.LAYER_NAMES.items()}


def hf_name(name: str) -> str:
    """transformers' name of a canonical tensor name."""
    if name in HF_NAMES:
        return HF_NAMES[name] if name == "output" else f"model.{HF_NAMES[name]}"
    _, layer, part = name.split(".")
    return f"model.layers.{layer}.{HF_LAYER_NAMES[part]}"


def llama_of(files: ModelFiles) -> Any:
    """A float32 LlamaForCausalLM with the dequantised weights of ``files``. Raises UserError
    without transformers, or for a model of another architecture."""
    if find_spec("transformers") is None:
        raise UserError("The oracle needs transformers.", action="Run 'make dev' first.")
    if files.config.architecture != "llama":
        raise UserError(
            f"The oracle command compares llama models, not {files.config.architecture}."
        )
    from transformers import LlamaConfig, LlamaForCausalLM

    config = files.config
    model = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            vocab_size=config.vocab_size,
            rms_norm_eps=config.rms_norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            max_position_embeddings=config.max_position_embeddings,
            tie_word_embeddings=config.tie_word_embeddings,
        )
    )
    state = {hf_name(name): entry.values() for name, entry in files.tensors.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight"}, missing
    model.tie_weights()
    model.train(False)
    return model
