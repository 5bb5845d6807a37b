"""The float64 MTP module against transformers' own."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from float64 import hybrid, mtp
from float64_models import float64_of, save_tiny_hybrid

if TYPE_CHECKING:
    from pathlib import Path

LENGTH = 50
# Older releases have an MTP module of other names.
pytestmark = pytest.mark.skipif(
    version("transformers") < "5.24", reason="this transformers has no module for the family"
)


def relative_error(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


class TheirModule:
    """transformers' target and MTP module from one folder."""

    def __init__(self, folder: Path) -> None:
        from transformers import Qwen3_5ForCausalLM
        from transformers.modeling_layers import MtpModel

        self.target = Qwen3_5ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._module = MtpModel.from_pretrained(self.target).eval()

    def hidden(self, ids: np.ndarray) -> torch.Tensor:
        with torch.no_grad():
            return self.target.model(torch.from_numpy(ids)[None]).last_hidden_state

    def run(self, hidden: torch.Tensor, ids: list[int]) -> tuple[torch.Tensor, np.ndarray]:
        positions = torch.arange(len(ids))[None]
        with torch.no_grad():
            m = self._module.forward_layer(
                0, hidden, positions, None, input_ids=torch.tensor([ids])
            )
            return m, self.target.lm_head(m)[0].numpy()


@pytest.fixture(params=[False, True], ids=["head", "tied"])
def both(request: Any, tmp_path: Path) -> tuple[TheirModule, dict[str, np.ndarray], Any]:
    folder = save_tiny_hybrid(tmp_path, tied=request.param)
    tensors, config = float64_of(folder)
    return TheirModule(folder), tensors, config


def test_pairs_against_transformers(both: Any) -> None:
    """Rows t: the target's hidden state at t and the token at t + 1."""
    theirs, tensors, config = both
    ids = np.random.default_rng(2).integers(0, 300, LENGTH + 1)
    m, logits = theirs.run(theirs.hidden(ids[:-1]), ids[1:].tolist())
    hidden = hybrid.forward(tensors, config, ids[:-1])["hidden"]
    ours = mtp.mtp_forward(tensors, config, hidden, ids[1:])
    assert relative_error(ours["hidden"], m[0].numpy()) < 1e-5
    assert relative_error(ours["logits"], logits) < 1e-5


def test_drafted_chain_against_transformers(both: Any) -> None:
    """A step's output is the next step's hidden state, beside the drafted token."""
    theirs, tensors, config = both
    ids = np.random.default_rng(3).integers(0, 300, LENGTH + 1)
    states, pairs, drafted = theirs.hidden(ids[:-1]), ids[1:].tolist(), []
    for _ in range(4):
        m, logits = theirs.run(states, pairs)
        drafted.append(int(logits[-1].argmax()))
        states, pairs = torch.cat([states, m[:, -1:]], dim=1), [*pairs, drafted[-1]]
    hidden = hybrid.forward(tensors, config, ids[:-1])["hidden"]
    tokens, ours = mtp.mtp_draft(tensors, config, hidden, ids[1:], 4)
    assert tokens == drafted
    assert relative_error(ours[-1], logits[-1]) < 1e-5


def test_positions_may_be_shifted(both: Any) -> None:
    """Rotary positions are relative: a shift of all by one changes nothing."""
    _, tensors, config = both
    rng = np.random.default_rng(4)
    hidden, ids = rng.normal(size=(20, config.hidden_size)), rng.integers(0, 300, 20)
    plain = mtp.mtp_forward(tensors, config, hidden, ids)["logits"]
    shifted = mtp.mtp_forward(tensors, config, hidden, ids, np.arange(1, 21))["logits"]
    assert relative_error(shifted, plain) < 1e-10
