"""The MTP module: one layer of full attention that predicts one token further than the model.

From the model's final hidden state h at position p - 1 and the token at position p it predicts the
token at p + 1. What it keeps of such a pair, keys and values, stands at position p of the attention
pages, in a layer of its own: a page then depends on its own tokens alone, like every other layer's.
Position 0 has no pair and stays out of its attention. (Source: the Qwen3.5 model card's MTP module;
transformers' MtpModel.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hearth.kernels.embed import embed
from hearth.kernels.linear import linear
from hearth.kernels.norm import rms_norm

if TYPE_CHECKING:
    from hearth.engine.model.attention import AttentionMixer
    from hearth.engine.model.mlp import MlpBlock
    from hearth.engine.model.weights import MtpWeights, Weights
    from hearth.kernels.kv import RowPlaces

FIRST_POSITION = 1


class MtpModule:
    """Launches the module over rows; shares the activations of the model's own layers."""

    def __init__(
        self,
        weights: Weights,
        module: MtpWeights,
        max_rows: int,
        attention: AttentionMixer,
        mlp: MlpBlock,
    ) -> None:
        self._weights, self._module = weights, module
        self._attention, self._mlp = attention, mlp
        self._page_layer = weights.config.num_attention_layers - 1
        hidden_size = weights.config.hidden_size
        self._pair = torch.empty(max_rows, 2 * hidden_size)
        self._x = torch.empty(max_rows, hidden_size)

    def launch_keys(self, hidden: torch.Tensor, ids: torch.Tensor, places: RowPlaces) -> None:
        """Keep the pairs (hidden [M, H] one position before each row, ids int32 [M])."""
        x = self._joined(hidden, ids)
        self._attention.launch_keys(self._module.attention, self._page_layer, x, places)

    def launch(
        self, hidden: torch.Tensor, ids: torch.Tensor, places: RowPlaces, out: torch.Tensor
    ) -> None:
        """Keep the pairs, and out [M, H]: what the head reads, and the next step's hidden."""
        module = self._module
        x = self._joined(hidden, ids)
        self._attention.launch(module.attention, self._page_layer, x, places, first=FIRST_POSITION)
        self._mlp.launch(module.mlp, x)
        rms_norm(x, module.norm, self._weights.config.rms_norm_eps, out)

    def _joined(self, hidden: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """fc of [embedding; hidden], each with its norm."""
        module, eps = self._module, self._weights.config.rms_norm_eps
        rows, size = hidden.shape
        pair, x = self._pair[:rows], self._x[:rows]
        embed(ids, self._weights.token_embd, x)
        rms_norm(x, module.embedding_norm, eps, pair[:, :size])
        rms_norm(hidden, module.hidden_norm, eps, pair[:, size:])
        linear(pair, module.fc, x)
        return x
