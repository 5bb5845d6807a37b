"""The same weights in transformers and in Hearth's decoder, for comparing their logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hearth.engine.cache.pages import PageArena
from hearth.engine.model.decoder import Decoder, Limits, load_weights
from hearth.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearth.engine.weights.model_files import ModelFiles

HF_NAMES = {
    "token_embd": "model.embed_tokens.weight",
    "output_norm": "model.norm.weight",
    "output": "lm_head.weight",
}
HF_LAYER_NAMES = {
    "attn_norm": "input_layernorm.weight",
    "ffn_norm": "post_attention_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}


def hf_name(name: str) -> str:
    if name in HF_NAMES:
        return HF_NAMES[name]
    _, layer, part = name.split(".")
    return f"model.layers.{layer}.{HF_LAYER_NAMES[part]}"


def llama_of(files: ModelFiles) -> Any:
    """A float32 LlamaForCausalLM with the dequantised weights of ``files``."""
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
    return model.eval()


class HearthLogits:
    """Hearth's decoder for one text: logits of every position, in passes of any size."""

    def __init__(self, files: ModelFiles, *, max_tokens: int) -> None:
        weights = load_weights(files, lambda done, total: None)
        config = files.config
        num_pages = -(-max_tokens // PAGE_TOKENS)
        arena = PageArena(num_pages, config.num_hidden_layers, Decoder.page_floats(config))
        self._decoder = Decoder(weights, Limits(max_tokens, max_tokens, 1, max_tokens), arena.pages)
        inputs = self._decoder.inputs
        inputs.page_table[0] = torch.arange(num_pages, dtype=torch.int32)
        inputs.row_request[:] = 0
        inputs.logit_rows[:] = torch.arange(max_tokens, dtype=torch.int32)
        self._num_done = 0

    def restart(self) -> None:
        self._num_done = 0

    def feed(self, ids: Sequence[int]) -> torch.Tensor:
        """Logits [len(ids), V] behind each of ``ids``, which continue what was fed before."""
        inputs, count = self._decoder.inputs, len(ids)
        inputs.ids[:count] = torch.tensor(ids, dtype=torch.int32)
        start = self._num_done
        inputs.positions[:count] = torch.arange(start, start + count, dtype=torch.int32)
        self._num_done += count
        return self._decoder.forward(count, count).clone()
