"""The engine's MTP module, over its paged cache, against float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from float64 import hybrid, mtp
from float64_models import float64_of, save_tiny_hybrid
from reference_models import HearthLogits

from hearth.engine.weights.model_files import open_model

if TYPE_CHECKING:
    from pathlib import Path

DEPTH = 4


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("length", [1, 2, 130])
def test_a_chain_of_steps(tmp_path: Path, tied: bool, length: int) -> None:
    folder = save_tiny_hybrid(tmp_path, tied=tied)
    tensors, config = float64_of(folder)
    ids = np.random.default_rng(2).integers(0, config.vocab_size, length + 1).tolist()
    hearth = HearthLogits(open_model(folder), max_tokens=length + 1 + DEPTH)
    hearth.feed(ids[:length])
    hidden = hybrid.forward(tensors, config, ids[:length])["hidden"]
    tokens, expected = mtp.mtp_draft(tensors, config, hidden, ids[1:], DEPTH)
    ours = hearth.draft(ids[length], tokens[:-1])
    error = np.abs(ours - expected).max() / np.abs(expected).max()
    assert error < 1e-4
    assert ours.argmax(1).tolist() == tokens
