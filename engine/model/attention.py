"""The full-attention mixer: one set of activations for all layers of this kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hearth.kernels.act import sigmoid_gate
from hearth.kernels.attention import paged_attention
from hearth.kernels.kv import HeadShape, RopeTables, RowPlaces, rope_write
from hearth.kernels.linear import linear
from hearth.kernels.norm import rms_norm, rms_norm_heads

if TYPE_CHECKING:
    from hearth.engine.model.config import ModelConfig
    from hearth.engine.model.weights import Attention


def head_shape(config: ModelConfig) -> HeadShape:
    """With output gates a head's gate lies behind its query."""
    stride = 2 * config.head_dim if config.attn_output_gate else config.head_dim
    return HeadShape(
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
        config.rope_dim,
        stride,
    )


class AttentionMixer:
    """Launches attention layers over the rows of a pass."""

    def __init__(
        self, config: ModelConfig, max_rows: int, rope: RopeTables, pages: torch.Tensor
    ) -> None:
        self._config = config
        self._shape = head_shape(config)
        self._rope = rope
        self._pages = pages
        self._q_columns = config.num_attention_heads * self._shape.query_step
        self._normed = torch.empty(max_rows, config.hidden_size)
        self._qkv = torch.empty(max_rows, self._q_columns + 2 * config.kv_size)
        self._attended = torch.empty(max_rows, config.q_size)

    def launch(
        self,
        layer: Attention,
        page_layer: int,
        x: torch.Tensor,
        places: RowPlaces,
        *,
        first: int = 0,
    ) -> None:
        """x [M, H] += o(attention(norm(x))); keys and values go to ``page_layer`` of the pages.
        ``first``: position of the first key (kernels/attention.py)."""
        config, shape = self._config, self._shape
        attended = self._attended[: x.shape[0]]
        q = self.launch_keys(layer, page_layer, x, places)
        scale = config.head_dim**-0.5
        paged_attention(q, places, self._pages, page_layer, scale, attended, shape, first=first)
        if config.attn_output_gate:
            gates = q[:, config.head_dim :]
            sigmoid_gate(attended, gates, head_dim=config.head_dim, gate_stride=shape.query_step)
        linear(attended, layer.o, x, accumulate=True)

    def launch_keys(
        self, layer: Attention, page_layer: int, x: torch.Tensor, places: RowPlaces
    ) -> torch.Tensor:
        """Only keys and values of norm(x), to the pages; returns the queries."""
        rows, config = x.shape[0], self._config
        normed, qkv = self._normed[:rows], self._qkv[:rows]
        rms_norm(x, layer.norm, config.rms_norm_eps, normed)
        layer.qkv.launch(normed, qkv)
        first_v = self._q_columns + config.kv_size
        q, k, v = qkv[:, : self._q_columns], qkv[:, self._q_columns : first_v], qkv[:, first_v:]
        self._norm_heads(layer, q, k)
        rope_write(q, k, v, places, self._rope, self._pages, page_layer, self._shape)
        return q

    def _norm_heads(self, layer: Attention, q: torch.Tensor, k: torch.Tensor) -> None:
        if layer.q_norm is None or layer.k_norm is None:
            return
        shape, eps = self._shape, self._config.rms_norm_eps
        step = shape.query_step
        rms_norm_heads(q, layer.q_norm, eps, q, num_heads=shape.num_heads, head_stride=step)
        rms_norm_heads(k, layer.k_norm, eps, k, num_heads=shape.num_kv_heads)
