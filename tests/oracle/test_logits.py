"""Logits against transformers in float32 and against llama.cpp."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from reference_models import HearthLogits, reference_of

from hearth.engine.model.rope import rope_tables
from hearth.engine.text.prompt import load_text
from hearth.engine.weights.model_files import open_model

if TYPE_CHECKING:
    from pathlib import Path

TEXT = (
    "The lighthouse stood at the end of the pier. Every evening the keeper climbed its 112 steps, "
    "lit the lamp, and wrote one line in the log: wind, sea, ships. `def f(x): return x**2` \n\n"
    "Straße, naïve, 東京, ½, 🙂 — and then the storm came, on the 3rd of November 1911."
)


def relative_error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max())


@pytest.mark.model
@pytest.mark.slow
def test_starter_model_against_transformers(starter_model: Path) -> None:
    """Same float32 weights; only the order of sums differs (measured: 2.1e-6)."""
    files = open_model(starter_model)
    ids = load_text(files.text).vocabulary.encode(TEXT)
    with torch.no_grad():
        theirs = reference_of(files)(torch.tensor([ids])).logits[0]
    hearth = HearthLogits(files, max_tokens=len(ids))
    ours = hearth.feed(ids)
    assert relative_error(ours, theirs) < 1e-4
    assert torch.equal(ours.argmax(1), theirs.argmax(1))
    hearth.restart()
    pieces = torch.cat([hearth.feed(ids[start : start + 7]) for start in range(0, len(ids), 7)])
    assert torch.equal(pieces, ours), "passes of another size change no bit"


@pytest.mark.model
@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama_cpp is not installed")
def test_starter_model_against_llama_cpp(starter_model: Path) -> None:
    """llama.cpp rounds activations to 8 bits, which is most of the difference (measured over these
    90 tokens: mean divergence 0.0046 nats, same first choice at 96 %)."""
    from llama_cpp import Llama

    files = open_model(starter_model)
    ids = load_text(files.text).vocabulary.encode(TEXT)
    peer = Llama(
        str(starter_model), n_ctx=512, logits_all=True, n_gpu_layers=0, verbose=False, n_threads=2
    )
    assert peer.tokenize(TEXT.encode(), add_bos=False) == ids
    peer.eval(ids)
    theirs = torch.from_numpy(np.array(peer.scores[: len(ids)], dtype=np.float32))
    ours = HearthLogits(files, max_tokens=len(ids)).feed(ids)
    log_p, log_q = ours.log_softmax(1), theirs.log_softmax(1)
    divergence = (log_p.exp() * (log_p - log_q)).sum(1)
    assert float(divergence.mean()) < 0.01
    assert float((ours.argmax(1) == theirs.argmax(1)).float().mean()) > 0.9


# ------------------------------------------------------------------------ tiny models, each family

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "factor": 2.5}
SCALINGS = {"default": {"rope_type": "default"}, "yarn": YARN, "llama3": LLAMA3, "linear": LINEAR}


def save_tiny(folder: Path, family: str, scaling: str, *, tied: bool) -> Any:
    """A random checkpoint written by transformers itself; returns its model."""
    import transformers

    config_class = getattr(transformers, f"{family}Config")
    config = config_class(
        **SIZES,
        head_dim=16,
        tie_word_embeddings=tied,
        rope_parameters=SCALINGS[scaling] | {"rope_theta": 5000.0},
    )
    torch.manual_seed(4)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("norm.weight"):
                value.uniform_(0.5, 1.5)
            if name.endswith("bias"):
                value.normal_(0.0, 0.5)
    model.save_pretrained(folder)
    vocabulary = {"model": {"type": "BPE", "vocab": {}, "merges": []}, "added_tokens": []}
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary))
    return model


@pytest.mark.parametrize(
    ("family", "scaling", "tied"),
    [
        ("Llama", "default", False),
        ("Llama", "llama3", True),
        ("Llama", "linear", True),
        ("Qwen2", "default", True),
        ("Qwen2", "yarn", False),
        ("Qwen3", "default", False),
        ("Qwen3", "yarn", True),
    ],
)
def test_tiny_checkpoints_of_each_family(
    tmp_path: Path, family: str, scaling: str, tied: bool
) -> None:
    model = save_tiny(tmp_path, family, scaling, tied=tied)
    files = open_model(tmp_path)
    ids = torch.randint(0, SIZES["vocab_size"], (300,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        theirs = model(ids.unsqueeze(0)).logits[0]
    ours = HearthLogits(files, max_tokens=300).feed(ids.tolist())
    assert relative_error(ours, theirs) < 1e-4


@pytest.mark.parametrize("scaling", SCALINGS)
def test_rope_tables_equal_those_of_transformers(tmp_path: Path, scaling: str) -> None:
    """Angles up to 512 turns of float32: a unit in the last place at most."""
    model = save_tiny(tmp_path, "Llama", scaling, tied=True)
    config = open_model(tmp_path).config
    rope = rope_tables(config, 512)
    cos, sin = rope.cos, rope.sin
    positions = torch.arange(512).unsqueeze(0)
    their_cos, their_sin = model.model.rotary_emb(torch.zeros(1, 1, 1), positions)
    assert relative_error(cos, their_cos[0, :, : cos.shape[1]]) < 1e-6
    assert relative_error(sin, their_sin[0, :, : sin.shape[1]]) < 1e-6
