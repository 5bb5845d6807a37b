"""The starter model's file, as published."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from hearth.engine.model.config import ModelConfig
from hearth.engine.text.data import GgufText
from hearth.engine.weights.model_files import open_model
from hearth.kernels import ggml_blocks

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.model


def test_starter_model(starter_model: Path) -> None:
    files = open_model(starter_model)
    assert len(files.tensors) == 272
    assert files.num_parameters == 134_515_008
    assert files.config == ModelConfig(
        architecture="llama",
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=64,
        vocab_size=49152,
        max_position_embeddings=8192,
        rms_norm_eps=files.config.rms_norm_eps,
        rope_theta=100_000.0,
        tie_word_embeddings=True,
    )
    assert files.config.rms_norm_eps == pytest.approx(1e-5)
    kinds = Counter(entry.ggml_type for entry in files.tensors.values())
    assert kinds == {ggml_blocks.Q4_1: 210, ggml_blocks.Q8_0: 1, ggml_blocks.F32: 61}


def test_starter_model_s_text(starter_model: Path) -> None:
    text = open_model(starter_model).text
    assert isinstance(text, GgufText)
    assert (text.model, text.pre, len(text.tokens)) == ("gpt2", "smollm", 49152)
    assert (text.bos_id, text.add_bos) == (1, False)
    assert [text.tokens[end] for end in text.end_ids] == ["<|im_end|>", "<|endoftext|>"]
    assert text.chat_template is not None
