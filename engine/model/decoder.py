"""A dense decoder (llama, qwen2, qwen3) as a list of kernel launches over fixed buffers.

A forward pass takes any mix of rows: decoded and drafted tokens of several requests and a piece of
a prompt. It is captured once per (rows, logit rows) and replayed; what the rows are stands in the
input buffers.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hearth.engine.errors import CancelledError
from hearth.engine.model.rope import rope_tables
from hearth.kernels import graph
from hearth.kernels.act import silu_mul
from hearth.kernels.attention import paged_attention
from hearth.kernels.embed import embed
from hearth.kernels.kv import PAGE_TOKENS, HeadShape, RowPlaces, rope_write
from hearth.kernels.linear import concatenate, linear
from hearth.kernels.norm import rms_norm, rms_norm_heads
from hearth.kernels.rows import gather_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearth.engine.model.config import ModelConfig
    from hearth.engine.weights.model_files import ModelFiles
    from hearth.kernels.packing import PackedLinear

KEPT_GRAPHS = 64
NUMERIC_VERSION = "cpu-2"  # part of the cache key: changes when any kernel changes a bit


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes of the fixed buffers."""

    max_rows: int
    max_logit_rows: int
    max_requests: int
    context_length: int

    @property
    def pages_per_request(self) -> int:
        return -(-self.context_length // PAGE_TOKENS)


class Joined:
    """Matrices that share their input, as one when their formats allow it."""

    def __init__(self, parts: list[PackedLinear], biases: list[torch.Tensor] | None = None) -> None:
        whole = concatenate(parts)
        self._parts = [whole] if whole is not None else parts
        sizes = [part.shape[0] for part in self._parts]
        self._biases: list[torch.Tensor | None] = [None] * len(sizes)
        if biases is not None:
            self._biases = [torch.cat(biases)] if whole is not None else list(biases)

    def launch(self, x: torch.Tensor, out: torch.Tensor) -> None:
        column = 0
        for part, bias in zip(self._parts, self._biases, strict=True):
            size = part.shape[0]
            linear(x, part, out[:, column : column + size], bias=bias)
            column += size


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer's weights."""

    attn_norm: torch.Tensor
    qkv: Joined
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o: PackedLinear
    ffn_norm: torch.Tensor
    gate_up: Joined
    down: PackedLinear


@dataclass(frozen=True, slots=True)
class Weights:
    """A whole model, packed for the kernels."""

    config: ModelConfig
    token_embd: PackedLinear
    layers: tuple[Layer, ...]
    output_norm: torch.Tensor
    output: PackedLinear
    rope_divisors: torch.Tensor | None


def load_weights(
    files: ModelFiles,
    on_progress: Callable[[int, int], None],
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Weights:
    """Pack every tensor; at most one is held in two forms at a time. Raises CancelledError."""
    loader = _Loader(files, on_progress, is_cancelled)
    config = files.config
    token_embd = loader.packed("token_embd")
    layers = tuple(loader.layer(index) for index in range(config.num_hidden_layers))
    divisors = loader.vector("rope_freqs") if "rope_freqs" in files.tensors else None
    output = token_embd if config.tie_word_embeddings else loader.packed("output")
    return Weights(config, token_embd, layers, loader.vector("output_norm"), output, divisors)


class _Loader:
    def __init__(
        self,
        files: ModelFiles,
        on_progress: Callable[[int, int], None],
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._files = files
        self._on_progress = on_progress
        self._is_cancelled = is_cancelled
        self._done = 0

    def _account(self, num_bytes: int) -> None:
        if self._is_cancelled():
            raise CancelledError("Opening the model was stopped.")
        self._done += num_bytes
        self._on_progress(self._done, self._files.weight_bytes)

    def packed(self, name: str) -> PackedLinear:
        entry = self._files.tensors[name]
        result = entry.packed()
        self._account(entry.num_bytes)
        return result

    def vector(self, name: str) -> torch.Tensor:
        entry = self._files.tensors[name]
        result = entry.values().clone()
        self._account(entry.num_bytes)
        return result

    def layer(self, index: int) -> Layer:
        config, prefix = self._files.config, f"layers.{index}."
        names = ("q", "k", "v")
        biases = None
        if config.attention_bias:
            biases = [self.vector(f"{prefix}{name}_bias") for name in names]
        return Layer(
            attn_norm=self.vector(prefix + "attn_norm"),
            qkv=Joined([self.packed(prefix + name) for name in names], biases),
            q_norm=self.vector(prefix + "q_norm") if config.qk_norm else None,
            k_norm=self.vector(prefix + "k_norm") if config.qk_norm else None,
            o=self.packed(prefix + "o"),
            ffn_norm=self.vector(prefix + "ffn_norm"),
            gate_up=Joined([self.packed(prefix + "gate"), self.packed(prefix + "up")]),
            down=self.packed(prefix + "down"),
        )


class Inputs:
    """The static buffers that say what the rows of the next forward pass are."""

    def __init__(self, limits: Limits) -> None:
        rows = limits.max_rows
        self.ids = torch.zeros(rows, dtype=torch.int32)
        self.positions = torch.zeros(rows, dtype=torch.int32)
        self.row_request = torch.full((rows,), -1, dtype=torch.int32)
        self.page_table = torch.zeros(
            (limits.max_requests, limits.pages_per_request), dtype=torch.int32
        )
        self.logit_rows = torch.zeros(limits.max_logit_rows, dtype=torch.int32)

    def places(self, num_rows: int) -> RowPlaces:
        return RowPlaces(self.positions[:num_rows], self.row_request[:num_rows], self.page_table)


class Decoder:
    """Runs forward passes; engine thread only. Owns the activations and the captured graphs."""

    def __init__(self, weights: Weights, limits: Limits, pages: torch.Tensor) -> None:
        self._weights = weights
        self._pages = pages
        self.limits = limits
        self.inputs = Inputs(limits)
        config = weights.config
        self._shape = HeadShape(
            config.num_attention_heads, config.num_key_value_heads, config.head_dim
        )
        self._cos, self._sin = rope_tables(config, limits.context_length, weights.rope_divisors)
        rows, hidden = limits.max_rows, config.hidden_size
        self._x = torch.empty(rows, hidden)
        self._normed = torch.empty(rows, hidden)
        self._qkv = torch.empty(rows, config.q_size + 2 * config.kv_size)
        self._attended = torch.empty(rows, config.q_size)
        self._gate_up = torch.empty(rows, 2 * config.intermediate_size)
        self._ffn = torch.empty(rows, config.intermediate_size)
        self._last = torch.empty(limits.max_logit_rows, hidden)
        self.logits = torch.empty(limits.max_logit_rows, config.vocab_size)
        self._graphs: OrderedDict[tuple[int, int], graph.Graph] = OrderedDict()

    @staticmethod
    def page_floats(config: ModelConfig) -> int:
        shape = HeadShape(config.num_attention_heads, config.num_key_value_heads, config.head_dim)
        return shape.page_floats

    def forward(self, num_rows: int, num_logit_rows: int) -> torch.Tensor:
        """Run the rows described by ``inputs``; float32 logits [num_logit_rows, vocab], a view that
        the next call overwrites."""
        assert 0 < num_rows <= self.limits.max_rows, f"{num_rows} rows do not fit the buffers"
        assert num_logit_rows <= self.limits.max_logit_rows, "too many logit rows"
        self._graph(num_rows, num_logit_rows).replay()
        return self.logits[:num_logit_rows]

    def _graph(self, num_rows: int, num_logit_rows: int) -> graph.Graph:
        key = (num_rows, num_logit_rows)
        known = self._graphs.get(key)
        if known is None:
            with graph.capture() as known:
                self._launch(num_rows, num_logit_rows)
            self._graphs[key] = known
            if len(self._graphs) > KEPT_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        return known

    def _launch(self, num_rows: int, num_logit_rows: int) -> None:
        weights, eps = self._weights, self._weights.config.rms_norm_eps
        x = self._x[:num_rows]
        embed(self.inputs.ids[:num_rows], weights.token_embd, x)
        places = self.inputs.places(num_rows)
        for index, layer in enumerate(weights.layers):
            self._attention(index, layer, x, places)
            self._mlp(layer, x)
        if num_logit_rows:
            last = self._last[:num_logit_rows]
            gather_rows(x, self.inputs.logit_rows[:num_logit_rows], last)
            rms_norm(last, weights.output_norm, eps, last)
            linear(last, weights.output, self.logits[:num_logit_rows])

    def _attention(self, index: int, layer: Layer, x: torch.Tensor, places: RowPlaces) -> None:
        config, shape, rows = self._weights.config, self._shape, x.shape[0]
        normed, qkv = self._normed[:rows], self._qkv[:rows]
        rms_norm(x, layer.attn_norm, config.rms_norm_eps, normed)
        layer.qkv.launch(normed, qkv)
        first_k, first_v = config.q_size, config.q_size + config.kv_size
        q, k, v = qkv[:, :first_k], qkv[:, first_k:first_v], qkv[:, first_v:]
        if layer.q_norm is not None and layer.k_norm is not None:
            eps = config.rms_norm_eps
            rms_norm_heads(q, layer.q_norm, eps, q, num_heads=shape.num_heads)
            rms_norm_heads(k, layer.k_norm, eps, k, num_heads=shape.num_kv_heads)
        rope_write(q, k, v, places, self._cos, self._sin, self._pages, index, shape)
        attended = self._attended[:rows]
        scale = config.head_dim**-0.5
        paged_attention(q, places, self._pages, index, scale, attended, shape)
        linear(attended, layer.o, x, accumulate=True)

    def _mlp(self, layer: Layer, x: torch.Tensor) -> None:
        rows = x.shape[0]
        normed = self._normed[:rows]
        rms_norm(x, layer.ffn_norm, self._weights.config.rms_norm_eps, normed)
        layer.gate_up.launch(normed, self._gate_up[:rows])
        silu_mul(self._gate_up[:rows], self._ffn[:rows])
        linear(self._ffn[:rows], layer.down, x, accumulate=True)
