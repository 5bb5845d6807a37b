"""The SwiGLU part of every layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hearth.kernels.act import silu_mul
from hearth.kernels.linear import linear
from hearth.kernels.norm import rms_norm

if TYPE_CHECKING:
    from hearth.engine.model.config import ModelConfig
    from hearth.engine.model.weights import Mlp


class MlpBlock:
    """Launches the MLPs of all layers over one set of activations."""

    def __init__(self, config: ModelConfig, max_rows: int) -> None:
        self._eps = config.rms_norm_eps
        self._normed = torch.empty(max_rows, config.hidden_size)
        self._gate_up = torch.empty(max_rows, 2 * config.intermediate_size)
        self._activated = torch.empty(max_rows, config.intermediate_size)

    def launch(self, layer: Mlp, x: torch.Tensor) -> None:
        """x [M, H] += down(silu(gate) * up) of norm(x)."""
        rows = x.shape[0]
        normed, activated = self._normed[:rows], self._activated[:rows]
        rms_norm(x, layer.norm, self._eps, normed)
        layer.gate_up.launch(normed, self._gate_up[:rows])
        silu_mul(self._gate_up[:rows], activated)
        linear(activated, layer.down, x, accumulate=True)
