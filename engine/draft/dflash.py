"""The DFlash and DFlash2 drafters: a block of tokens from one forward pass over masked rows.

The target's residuals behind a few of its layers (taps) become keys and values that the drafter
attends to; the block is the anchor's embedding and masks. Whoever schedules calls, per request:
``new_context`` once, ``append`` with the taps of every token that was committed, ``propose`` with
the anchor, any number of requests at a time. Rejected tokens were never appended, so there is
nothing to take back.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import torch

from hearth.engine.draft.dflash_context import DflashContext
from hearth.engine.draft.dflash_walk import INDEPENDENT_CANDIDATES, Draw, Lattice, Proposal
from hearth.kernels.act import silu_mul
from hearth.kernels.block_attention import block_attention
from hearth.kernels.dynamic_conv import dynamic_conv
from hearth.kernels.embed import embed
from hearth.kernels.kv import HeadShape
from hearth.kernels.linear import linear
from hearth.kernels.norm import rms_norm, rms_norm_heads
from hearth.kernels.rotary import angle_tables, rotate_heads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearth.engine.draft.dflash_weights import ConvWeights, DflashLayer, DflashWeights
    from hearth.kernels.packing import PackedLinear


@dataclass(frozen=True, slots=True)
class Target:
    """What the drafter shares with its target: embedding and head [V, H] as they are, without the
    target's final norm. Ids from ``num_valid_ids`` on are padding and never drafted."""

    embedding: PackedLinear
    head: PackedLinear
    num_valid_ids: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A request's wish for ``depth`` tokens behind its anchor, which stands at ``position`` and is
    not part of ``context`` yet. Greedy without a ``draw``."""

    context: DflashContext
    anchor_id: int
    position: int
    depth: int
    draw: Draw | None = None

    def __post_init__(self) -> None:
        assert self.depth > 0, "at least one token is asked for"
        follows = self.context.is_empty or self.position == self.context.end
        assert follows, "the context ends right before the anchor"


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows ``start`` to ``stop`` - 1 of a pass: one request's anchor and masks."""

    ask: Ask
    start: int
    stop: int


class DflashDrafter:
    """Runs one drafter's weights for any number of requests; engine thread only."""

    def __init__(self, weights: DflashWeights, target: Target) -> None:
        config = weights.config
        assert target.embedding.shape[1] == config.hidden_size, "the drafter fits its target"
        assert target.num_valid_ids <= config.vocab_size, "valid ids have codebook rows"
        self.config = config
        self._weights = weights
        self._target = target
        self._shape = HeadShape(
            config.num_attention_heads, config.num_key_value_heads, config.head_dim
        )

    def new_context(self) -> DflashContext:
        """Nothing committed yet."""
        return DflashContext(self.config)

    # ------------------------------------------------------------------------------- context

    def append(self, context: DflashContext, taps: torch.Tensor, position: int) -> None:
        """Committed tokens from ``position`` on, which follow the context's end.

        taps float32 [N, n * H]: the target's residuals behind ``target_layer_ids``, in that order,
        side by side. Of a long prompt only the rows within the longest window are computed.
        """
        config, weights = self.config, self._weights
        assert len(taps) > 0, "some tokens were committed"
        assert context.is_empty or position == context.end, "positions follow each other"
        needed = context.rows_needed(len(taps))
        if needed < len(taps):  # they push everything else out
            context.clear()
        start, taps = position + len(taps) - needed, taps[len(taps) - needed :].contiguous()
        features = _product(taps, weights.fc)
        rms_norm(features, weights.hidden_norm, config.rms_norm_eps, features)
        turns = self._turns(torch.arange(start, start + needed))
        for layer, ring in zip(weights.layers, context.layers, strict=True):
            ring.write(start, *self._keys_values(layer, features, turns))

    def _turns(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """All dimensions of a head turn, whatever part of the target's does."""
        return angle_tables(positions, self.config.head_dim, self.config.rope_theta)

    def _keys_values(
        self, layer: DflashLayer, rows: torch.Tensor, turns: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys, normalised and turned, and values; [N, Hkv * D]."""
        k, v = _product(rows, layer.k), _product(rows, layer.v)
        num_heads = self.config.num_key_value_heads
        rms_norm_heads(k, layer.k_norm, self.config.rms_norm_eps, k, num_heads=num_heads)
        rotate_heads(k, *turns)
        return k, v

    # -------------------------------------------------------------------------------- drafting

    def propose(self, asks: Sequence[Ask]) -> list[Proposal]:
        """Drafted tokens for each of ``asks``, which do not change a bit of each other."""
        assert all(ask.depth <= self.config.max_depth for ask in asks), "a block is that long"
        if not asks:
            return []
        stops = list(accumulate(ask.depth + 1 for ask in asks))
        starts = [0, *stops[:-1]]
        blocks = [_Block(*parts) for parts in zip(asks, starts, stops, strict=True)]
        hidden = self._drafting_rows(self._forward(blocks), blocks)
        logits = self._logits(hidden)[:, : self._target.num_valid_ids]
        proposals, start = [], 0
        for ask in asks:
            rows = slice(start, start + ask.depth)
            proposals.append(self._walk(ask, hidden[rows], logits[rows]))
            start += ask.depth
        return proposals

    def _walk(self, ask: Ask, hidden: torch.Tensor, logits: torch.Tensor) -> Proposal:
        selector = self.config.selector
        count = INDEPENDENT_CANDIDATES if selector is None else selector.top_k
        lattice = Lattice(hidden, logits, self._weights.selector, count)
        return lattice.walk(ask.anchor_id, ask.position, ask.draw)

    def _drafting_rows(self, x: torch.Tensor, blocks: Sequence[_Block]) -> torch.Tensor:
        """The masks' rows, normalised: each predicts the token at its own place, the anchor's
        predicts nothing."""
        masks = torch.cat([x[block.start + 1 : block.stop] for block in blocks])
        rms_norm(masks, self._weights.norm, self.config.rms_norm_eps, masks)
        return masks

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        config = self.config
        logits = _product(hidden, self._target.head)
        if config.output_multiplier != 1.0:
            logits *= config.output_multiplier
        cap = config.final_logit_softcapping
        return logits if cap is None else cap * (logits / cap).tanh()

    def _forward(self, blocks: Sequence[_Block]) -> torch.Tensor:
        """The residual [M, H] behind the last layer."""
        x = self._embedded(blocks)
        places = [torch.arange(block.stop - block.start) for block in blocks]
        positions = [
            place + block.ask.position for place, block in zip(places, blocks, strict=True)
        ]
        turns, row_in_block = self._turns(torch.cat(positions)), torch.cat(places).int()
        for index, layer in enumerate(self._weights.layers):
            h = self._normed(x, layer.attn_norm)
            h, coefficients = _conv_prepare(h, layer.attention_conv, row_in_block)
            h = self._attention(index, layer, h, blocks, turns)
            x += _conv_finish(h, layer.attention_conv, coefficients, row_in_block)
            h = self._normed(x, layer.ffn_norm)
            h, coefficients = _conv_prepare(h, layer.mlp_conv, row_in_block)
            x += _conv_finish(_mlp(layer, h), layer.mlp_conv, coefficients, row_in_block)
        return x

    def _embedded(self, blocks: Sequence[_Block]) -> torch.Tensor:
        mask = self.config.mask_token_id
        rows = [[block.ask.anchor_id, *[mask] * block.ask.depth] for block in blocks]
        ids = torch.tensor([token for row in rows for token in row], dtype=torch.int32)
        x = torch.empty(len(ids), self.config.hidden_size)
        embed(ids, self._target.embedding, x)
        if self.config.input_embedding_scale != 1.0:
            x *= self.config.input_embedding_scale
        return x

    def _normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        rms_norm(x, weight, self.config.rms_norm_eps, out)
        return out

    def _attention(
        self,
        index: int,
        layer: DflashLayer,
        h: torch.Tensor,
        blocks: Sequence[_Block],
        turns: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        config = self.config
        q = _product(h, layer.q)
        rms_norm_heads(
            q, layer.q_norm, config.rms_norm_eps, q, num_heads=config.num_attention_heads
        )
        rotate_heads(q, *turns)
        k, v = self._keys_values(layer, h, turns)
        attended = torch.empty_like(q)
        for block in blocks:
            rows = slice(block.start, block.stop)
            block_attention(
                q[rows],
                k[rows],
                v[rows],
                block.ask.context.layers[index].view(),
                config.head_dim**-0.5,
                attended[rows],
                self._shape,
                window=config.windows[index],
                is_causal=config.is_causal[index],
            )
        return _product(attended, layer.o)


def _mlp(layer: DflashLayer, h: torch.Tensor) -> torch.Tensor:
    size = layer.gate.shape[0]
    gate_up, ffn = torch.empty(len(h), 2 * size), torch.empty(len(h), size)
    linear(h, layer.gate, gate_up[:, :size])
    linear(h, layer.up, gate_up[:, size:])
    silu_mul(gate_up, ffn)
    return _product(ffn, layer.down)


def _conv_prepare(
    h: torch.Tensor, conv: ConvWeights | None, row_in_block: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The convolved rows and the coefficients of the other side: both come from ``h``."""
    if conv is None:
        return h, h
    coefficients = _product(h, conv.projection)
    half = coefficients.shape[1] // 2
    out = torch.empty_like(h)
    dynamic_conv(h, conv.base[0], coefficients[:, :half], row_in_block, out)
    return out, coefficients[:, half:]


def _conv_finish(
    a: torch.Tensor,
    conv: ConvWeights | None,
    coefficients: torch.Tensor,
    row_in_block: torch.Tensor,
) -> torch.Tensor:
    if conv is None:
        return a
    out = torch.empty_like(a)
    dynamic_conv(a, conv.base[1], coefficients, row_in_block, out)
    return out


def _product(x: torch.Tensor, weight: PackedLinear) -> torch.Tensor:
    """x [M, K] times ``weight`` [N, K] transposed."""
    out = torch.empty(len(x), weight.shape[0])
    linear(x, weight, out)
    return out
