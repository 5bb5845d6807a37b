"""llama.cpp on a tiny random hybrid in float32: the same logits to 1e-3. Runs where llama_cpp is
installed (it takes half an hour to build)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hybrid_files as hybrid
import numpy as np
import pytest
import torch
from reference_models import HearthLogits
from tokenizers import pre_tokenizers

from hearth.engine.weights.model_files import open_model

if TYPE_CHECKING:
    from pathlib import Path

FLOAT32 = 0  # ggml's type id


def byte_tokens() -> list[str]:
    """llama.cpp wants every byte in a vocabulary."""
    names = sorted(pre_tokenizers.ByteLevel.alphabet())
    return [*names, "th", *hybrid.TOKENS[len(names) + 1 :]]


def test_logits_equal_llama_cpp(tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    _, weights = hybrid.published()
    stored = hybrid.stored_tensors(weights, {})
    file = hybrid.write_gguf(tmp_path / "m.gguf", stored, byte_tokens(), "t h")
    ids = torch.randint(0, 300, (200,), generator=torch.Generator().manual_seed(1)).tolist()
    peer = llama_cpp.Llama(
        str(file), n_ctx=512, logits_all=True, verbose=False, type_k=FLOAT32, type_v=FLOAT32,
        n_gpu_layers=0,
    )  # fmt: skip
    peer.eval(ids)
    theirs = np.array(peer.scores[: len(ids)])
    ours = HearthLogits(open_model(file), max_tokens=len(ids)).feed(ids).numpy()
    error = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
    print(f"relative error {error:.2e}")  # noqa: T201 - shown by pytest -s
    assert error < 1e-3
    assert (ours.argmax(1) == theirs.argmax(1)).mean() > 0.99
