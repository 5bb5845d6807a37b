"""llama.cpp on a tiny random hybrid in float32: the same logits to 1e-3. Runs where llama_cpp is
installed (it takes half an hour to build).

It runs in a process of its own: its C++ library and torch's do not get along in one everywhere.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
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

# ggml's type 0 is float32: for keys and values too.
PEER = """
import json, sys
import llama_cpp, numpy
file, ids, out = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
peer = llama_cpp.Llama(
    file, n_ctx=512, logits_all=True, verbose=False, type_k=0, type_v=0, n_gpu_layers=0
)
peer.eval(ids)
numpy.save(out, numpy.array(peer.scores[: len(ids)]))
"""


def byte_tokens() -> list[str]:
    """llama.cpp wants every byte in a vocabulary."""
    names = sorted(pre_tokenizers.ByteLevel.alphabet())
    return [*names, "th", *hybrid.TOKENS[len(names) + 1 :]]


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama_cpp is not installed")
def test_logits_equal_llama_cpp(tmp_path: Path) -> None:
    _, weights = hybrid.published()
    stored = hybrid.stored_tensors(weights, {})
    file = hybrid.write_gguf(tmp_path / "m.gguf", stored, byte_tokens(), "t h")
    ids = torch.randint(0, 300, (200,), generator=torch.Generator().manual_seed(1)).tolist()
    out = tmp_path / "logits.npy"
    command = [sys.executable, "-c", PEER, str(file), json.dumps(ids), str(out)]
    subprocess.run(command, check=True, timeout=200)
    theirs = np.load(out)
    ours = HearthLogits(open_model(file), max_tokens=len(ids)).feed(ids).numpy()
    error = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
    print(f"relative error {error:.2e}")  # noqa: T201 - shown by pytest -s
    assert error < 1e-3
    assert (ours.argmax(1) == theirs.argmax(1)).mean() > 0.99
