"""The Gated DeltaNet mixer: one set of activations for all layers of this kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hearth.engine.cache.state_arena import delta_shape
from hearth.kernels.conv import causal_conv
from hearth.kernels.deltanet import prepare, recurrent
from hearth.kernels.linear import linear
from hearth.kernels.norm import gated_rms_norm, rms_norm

if TYPE_CHECKING:
    from hearth.engine.cache.state_arena import StateArena
    from hearth.engine.model.config import LinearAttention, ModelConfig
    from hearth.engine.model.weights import DeltaNet
    from hearth.kernels.segments import Segments


class DeltaNetMixer:
    """Launches Gated DeltaNet layers over the rows of a pass."""

    def __init__(
        self, config: ModelConfig, sizes: LinearAttention, max_rows: int, states: StateArena
    ) -> None:
        self._config, self._sizes = config, sizes
        self._states = states
        self._shape = delta_shape(sizes)
        self._normed = torch.empty(max_rows, config.hidden_size)
        columns = sizes.conv_dim + sizes.value_size + 2 * sizes.num_value_heads
        self._inputs = torch.empty(max_rows, columns)
        self._mixed = torch.empty(max_rows, sizes.conv_dim)
        self._gates = torch.empty(max_rows, 2 * sizes.num_value_heads)
        self._out = torch.empty(max_rows, sizes.value_size)

    def launch(self, layer: DeltaNet, index: int, x: torch.Tensor, segments: Segments) -> None:
        """x [M, H] += out(delta rule(norm(x))); moves the states of linear layer ``index`` on."""
        rows, eps = x.shape[0], self._config.rms_norm_eps
        normed, inputs = self._normed[:rows], self._inputs[:rows]
        rms_norm(x, layer.norm, eps, normed)
        layer.inputs.launch(normed, inputs)
        sizes = self._sizes
        u, z, b, a = inputs.split(
            (sizes.conv_dim, sizes.value_size, sizes.num_value_heads, sizes.num_value_heads), dim=1
        )
        out = self.move(layer, index, segments, u, b, a)
        gated_rms_norm(out, z, layer.out_norm, eps, num_heads=sizes.num_value_heads)
        linear(out, layer.out, x, accumulate=True)

    def settle(self, layer: DeltaNet, index: int, segments: Segments) -> None:
        """Replay only: afterwards the state holds all kept rows."""
        none = self._inputs[:0]
        self.move(layer, index, segments, none, none, none)

    def move(
        self,
        layer: DeltaNet,
        index: int,
        segments: Segments,
        u: torch.Tensor,
        b: torch.Tensor,
        a: torch.Tensor,
    ) -> torch.Tensor:
        """Convolution and recurrence of rows u [M, C], b and a [M, Hv]; outputs [M, Hv * Dv]."""
        rows, state = u.shape[0], self._states.view(index)
        mixed, gates, out = self._mixed[:rows], self._gates[:rows], self._out[:rows]
        causal_conv(u, layer.conv, segments, state, mixed)
        prepare(mixed, b, a, layer.gates, segments, state, gates, self._shape)
        recurrent(mixed, gates, segments, state, out, self._shape)
        return out
