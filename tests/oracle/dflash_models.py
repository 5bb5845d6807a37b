"""One tiny drafter in the engine and in float64."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import torch
from float64 import dflash as oracle
from safetensors.torch import load_file
from tiny_drafters import HIDDEN, TAPS, TARGET, VALID, VOCAB

from hearth.engine.draft.dflash import DflashDrafter, Target
from hearth.engine.draft.dflash_config import UndeclaredCausality
from hearth.engine.draft.dflash_files import open_drafter
from hearth.engine.draft.dflash_weights import load_drafter_weights
from hearth.kernels.packing import pack_float

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Pair:
    """The engine's drafter and the oracle's, from one folder; ``published``: where the engine's
    is another one of the same values."""

    def __init__(
        self,
        folder: Path,
        *,
        published: Path | None = None,
        undeclared: UndeclaredCausality | None = None,
    ) -> None:
        rule = undeclared or UndeclaredCausality.BY_KIND
        generator = torch.Generator().manual_seed(6)
        embedding = torch.randn(VOCAB, HIDDEN, generator=generator)
        head = torch.randn(VOCAB, HIDDEN, generator=generator)
        files = open_drafter(published or folder, TARGET, undeclared=rule)
        target = Target(pack_float(embedding), pack_float(head), VALID)
        self.engine = DflashDrafter(load_drafter_weights(files), target)
        stored = load_file(folder / "model.safetensors")
        self.oracle = oracle.Drafter(
            json.loads((folder / "config.json").read_text()),
            {name: value.double().numpy() for name, value in stored.items()},
            embedding.double().numpy(),
            head.double().numpy(),
            VALID,
            sliding_is_causal=rule is UndeclaredCausality.BY_KIND,
        )


def random_taps(length: int, seed: int = 0) -> torch.Tensor:
    """float32 [length, taps H], of the size of residuals."""
    generator = torch.Generator().manual_seed(100 + seed)
    return torch.randn(length, len(TAPS) * HIDDEN, generator=generator) * 3.0


def uniform_noise(positions: Iterable[int], seed: int = 0) -> dict[int, float]:
    rng = np.random.default_rng(seed)
    return {position: float(rng.random()) for position in positions}
