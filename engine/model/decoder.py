"""A decoder (llama, qwen2, qwen3, qwen3_5) as a list of kernel launches over fixed buffers.

A forward pass takes any mix of rows: decoded and drafted tokens of several requests and pieces of
prompts. It is captured once per (rows, logit rows, segments) and replayed; what the rows are stands
in the input buffers.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hearth.engine.cache.hidden_arena import HiddenArena
from hearth.engine.cache.state_arena import StateArena, state_bytes
from hearth.engine.cache.states import StatePayload
from hearth.engine.model.attention import AttentionMixer, head_shape
from hearth.engine.model.deltanet import DeltaNetMixer
from hearth.engine.model.mlp import MlpBlock
from hearth.engine.model.mtp import MtpModule
from hearth.engine.model.rope import rope_tables
from hearth.engine.model.weights import Attention, DeltaNet, MtpWeights, Weights, load_weights
from hearth.kernels import graph
from hearth.kernels.embed import embed
from hearth.kernels.kv import PAGE_TOKENS, RowPlaces
from hearth.kernels.linear import linear
from hearth.kernels.norm import rms_norm
from hearth.kernels.rows import gather_rows
from hearth.kernels.segments import TABLE_COLUMNS, Segments

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from hearth.engine.model.config import ModelConfig

__all__ = [
    "NUMERIC_VERSION",
    "Decoder",
    "DraftRow",
    "Limits",
    "RowRun",
    "Weights",
    "bytes_per_request",
    "load_weights",
]

KEPT_GRAPHS = 64
NUMERIC_VERSION = "cpu-3"  # part of the cache key: changes when any kernel changes a bit
WINDOW_ROWS = 16  # the most rows of one request that may be dropped: anchor and drafts


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes of the fixed buffers. ``state_dtype``: float32, or float16, which rounds the recurrent
    state behind every token."""

    max_rows: int
    max_logit_rows: int
    max_requests: int
    context_length: int
    state_dtype: str = "float32"

    @property
    def pages_per_request(self) -> int:
        return -(-self.context_length // PAGE_TOKENS)


@dataclass(frozen=True, slots=True)
class RowRun:
    """Rows of a pass that continue one request. ``commits``: all of them are kept for certain."""

    slot: int
    first_row: int
    num_rows: int
    commits: bool


@dataclass(frozen=True, slots=True)
class DraftRow:
    """One step of drafting: the token at a position, and the request's pages up to there."""

    slot: int
    token: int
    position: int
    pages: tuple[int, ...]


class Inputs:
    """The static buffers that say what the rows of the next forward pass are."""

    def __init__(self, limits: Limits) -> None:
        rows = limits.max_rows
        self.ids = torch.zeros(rows, dtype=torch.int32)
        self.positions = torch.zeros(rows, dtype=torch.int32)
        self.rope_positions = torch.zeros(rows, 3, dtype=torch.int32)
        self.row_request = torch.full((rows,), -1, dtype=torch.int32)
        self.row_segment = torch.full((rows,), -1, dtype=torch.int32)
        self.segments = torch.zeros(limits.max_requests, TABLE_COLUMNS, dtype=torch.int32)
        self.page_table = torch.zeros(
            (limits.max_requests, limits.pages_per_request), dtype=torch.int32
        )
        self.logit_rows = torch.zeros(limits.max_logit_rows, dtype=torch.int32)
        self.row_before = torch.zeros(rows, dtype=torch.int32)  # see Decoder._hidden

    def place(self, row: int, slot: int, start: int, ids: Sequence[int]) -> None:
        """Rows from ``row`` on are ``ids`` at token positions from ``start`` on."""
        rows = slice(row, row + len(ids))
        self.ids[rows] = torch.tensor(ids, dtype=torch.int32)
        positions = torch.arange(start, start + len(ids), dtype=torch.int32)
        self.positions[rows] = positions
        self.rope_positions[rows] = positions.unsqueeze(1)
        self.row_request[rows] = slot

    def places(self, num_rows: int) -> RowPlaces:
        rows = slice(num_rows)
        return RowPlaces(
            self.positions[rows], self.rope_positions[rows], self.row_request[rows], self.page_table
        )


class Decoder:
    """Runs forward passes; engine thread only. Owns activations, states and captured graphs.

    Attributes:
        states: recurrent state of every slot; None for models with attention only.
        hiddens: what the MTP module still needs of every slot; None without it.
    """

    def __init__(self, weights: Weights, limits: Limits, pages: torch.Tensor) -> None:
        self._weights = weights
        self.limits = limits
        self.inputs = Inputs(limits)
        config, rows = weights.config, limits.max_rows
        rope = rope_tables(config, limits.context_length, weights.rope_divisors)
        self._attention = AttentionMixer(config, rows, rope, pages)
        self._mlp = MlpBlock(config, rows)
        self._delta_net: DeltaNetMixer | None = None
        self.states: StateArena | None = None
        if config.linear is not None:
            self.states = _state_arena(config, limits)
            self._delta_net = DeltaNetMixer(config, config.linear, rows, self.states)
        self._x = torch.empty(rows, config.hidden_size)
        self._last = torch.empty(limits.max_logit_rows, config.hidden_size)
        self.logits = torch.empty(limits.max_logit_rows, config.vocab_size)
        self._graphs: OrderedDict[Hashable, graph.Graph] = OrderedDict()
        self._mtp: MtpModule | None = None
        self.hiddens: HiddenArena | None = None
        if weights.mtp is not None:
            self._prepare_mtp(weights.mtp)

    def _prepare_mtp(self, module: MtpWeights) -> None:
        limits, hidden_size = self.limits, self._weights.config.hidden_size
        self._mtp = MtpModule(self._weights, module, limits.max_rows, self._attention, self._mlp)
        self.hiddens = HiddenArena(limits.max_requests, WINDOW_ROWS, hidden_size)
        # Final hidden states of a pass's rows, then of the token before each slot's first row.
        self._hidden = torch.zeros(limits.max_rows + limits.max_requests, hidden_size)
        self._hidden_before = torch.zeros(limits.max_rows, hidden_size)
        self._draft_hidden = torch.zeros(limits.max_requests, hidden_size)
        self._drafted = torch.zeros(limits.max_requests, hidden_size)

    @staticmethod
    def page_floats(config: ModelConfig) -> int:
        return head_shape(config).page_floats

    # ---------------------------------------------------------------------------------- one pass

    def forward(
        self, num_rows: int, num_logit_rows: int, runs: Sequence[RowRun] = ()
    ) -> torch.Tensor:
        """Run the rows described by ``inputs``; float32 logits [num_logit_rows, vocab], a view that
        the next call overwrites. ``runs`` says whose states the rows move on (unused without)."""
        assert 0 < num_rows <= self.limits.max_rows, f"{num_rows} rows do not fit the buffers"
        assert num_logit_rows <= self.limits.max_logit_rows, "too many logit rows"
        num_segments = self._plan(self.states, runs) if self.states is not None else 0
        if self.hiddens is not None:
            self._point_before(self.hiddens, runs)
        key = (num_rows, num_logit_rows, num_segments)
        self._replay(key, lambda: self._launch(*key))
        if self.hiddens is not None:
            for run in runs:
                rows = self._hidden[run.first_row : run.first_row + run.num_rows]
                self.hiddens.take(run.slot, rows, commits=run.commits)
        return self.logits[:num_logit_rows]

    def _plan(self, states: StateArena, runs: Sequence[RowRun]) -> int:
        """Write the table of segments; returns how many there are."""
        assert runs, "every row of a recurrent model moves a state on"
        for index, run in enumerate(runs):
            line = states.line(run.slot, run.first_row, run.num_rows, commits=run.commits)
            self.inputs.segments[index, : len(line)] = torch.tensor(line, dtype=torch.int32)
            self.inputs.row_segment[run.first_row : run.first_row + run.num_rows] = index
        return len(runs)

    def _point_before(self, hiddens: HiddenArena, runs: Sequence[RowRun]) -> None:
        """Say where the hidden state of the token before each row is found."""
        before = self.inputs.row_before
        for run in runs:
            rows = torch.arange(run.first_row, run.first_row + run.num_rows, dtype=torch.int32)
            before[run.first_row : run.first_row + run.num_rows] = rows - 1
            first = self.limits.max_rows + run.slot
            before[run.first_row] = first
            last = hiddens.last(run.slot)
            self._hidden[first] = 0.0 if last is None else last

    def _replay(self, key: Hashable, launch: Callable[[], None]) -> None:
        """Run the graph of ``key``, captured from ``launch`` when it is new."""
        known = self._graphs.get(key)
        if known is None:
            with graph.capture() as known:
                launch()
            self._graphs[key] = known
            if len(self._graphs) > KEPT_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        known.replay()

    def _launch(self, num_rows: int, num_logit_rows: int, num_segments: int) -> None:
        weights, eps = self._weights, self._weights.config.rms_norm_eps
        x, ids = self._x[:num_rows], self.inputs.ids[:num_rows]
        embed(ids, weights.token_embd, x)
        self._launch_layers(x, self._segments(num_rows, num_segments))
        if self._mtp is not None:
            rms_norm(x, weights.output_norm, eps, self._hidden[:num_rows])
            before = self._hidden_before[:num_rows]
            gather_rows(self._hidden, self.inputs.row_before[:num_rows], before)
            self._mtp.launch_keys(before, ids, self.inputs.places(num_rows))
        if num_logit_rows:
            last = self._last[:num_logit_rows]
            gather_rows(x, self.inputs.logit_rows[:num_logit_rows], last)
            rms_norm(last, weights.output_norm, eps, last)
            linear(last, weights.output, self.logits[:num_logit_rows])

    def _launch_layers(self, x: torch.Tensor, segments: Segments) -> None:
        places = self.inputs.places(x.shape[0])
        page_layer = linear_index = 0
        for layer in self._weights.layers:
            if isinstance(layer.mixer, Attention):
                self._attention.launch(layer.mixer, page_layer, x, places)
                page_layer += 1
            elif self._delta_net is not None:
                self._delta_net.launch(layer.mixer, linear_index, x, segments)
                linear_index += 1
            self._mlp.launch(layer.mlp, x)

    def _segments(self, num_rows: int, num_segments: int) -> Segments:
        return Segments(self.inputs.segments[:num_segments], self.inputs.row_segment[:num_rows])

    # ----------------------------------------------------------------------------------- drafting

    def draft(self, rows: Sequence[DraftRow], *, is_first: bool) -> torch.Tensor:
        """One step of the MTP module: float32 logits [len(rows), vocab] of the token behind each
        row's, a view. The first step continues what the model computed, the others the module's own
        last step in the same slots."""
        assert self._mtp is not None and self.hiddens is not None, "the model has an MTP module"  # noqa: PT018
        for index, row in enumerate(rows):
            self.inputs.place(index, row.slot, row.position, [row.token])
            pages = torch.tensor(row.pages, dtype=torch.int32)
            self.inputs.page_table[row.slot, : len(pages)] = pages
            source = self.hiddens.last(row.slot) if is_first else self._drafted[row.slot]
            assert source is not None, "drafting begins behind a computed token"
            self._draft_hidden[index] = source
        count = len(rows)
        self._replay(("draft", count), lambda: self._launch_draft(count))
        for index, row in enumerate(rows):
            self._drafted[row.slot] = self._last[index]
        return self.logits[:count]

    def _launch_draft(self, count: int) -> None:
        assert self._mtp is not None, "only models with the module draft"
        out, places = self._last[:count], self.inputs.places(count)
        self._mtp.launch(self._draft_hidden[:count], self.inputs.ids[:count], places, out)
        linear(out, self._weights.output, self.logits[:count])

    # ------------------------------------------------------------------------------------- states

    @property
    def needs_state(self) -> bool:
        """Whether a request can go on only where its state was kept."""
        return self.states is not None or self.hiddens is not None

    def snapshot(self, slot: int, num_tokens: int) -> StatePayload | None:
        """The state behind ``num_tokens`` of the request in ``slot``; None when the model needs
        none, or the state is not there (it has seen tokens that were dropped since)."""
        tensors: dict[str, torch.Tensor] = {}
        if self.states is not None:
            if self.states[slot].position != num_tokens:
                return None
            if self.states[slot].num_kept:
                self._settle(self.states, slot)
            tensors |= self.states.snapshot(slot)
        if self.hiddens is not None:
            hidden = self.hiddens.last(slot)
            if hidden is None:
                return None
            tensors["hidden"] = hidden.clone()
        return StatePayload(tensors) if tensors else None

    def _settle(self, states: StateArena, slot: int) -> None:
        """Replay the kept rows of a window, without new ones."""
        line = states.line(slot, 0, 0, commits=False)
        self.inputs.segments[0, : len(line)] = torch.tensor(line, dtype=torch.int32)
        self._replay("settle", self._launch_settling)

    def _launch_settling(self) -> None:
        assert self._delta_net is not None, "only recurrent models settle"
        mixers = [layer.mixer for layer in self._weights.layers]
        segments = self._segments(0, 1)
        for index, mixer in enumerate(m for m in mixers if isinstance(m, DeltaNet)):
            self._delta_net.settle(mixer, index, segments)

    def begin(self, slot: int, state: StatePayload | None, num_tokens: int) -> None:
        """A request in ``slot`` goes on behind ``num_tokens``, from the state found there."""
        assert state is not None or num_tokens == 0 or not self.needs_state, "a state is needed"
        tensors = {} if state is None else state.tensors
        if self.states is not None:
            self.states.begin(slot, tensors, num_tokens)
        if self.hiddens is not None:
            self.hiddens.begin(slot, tensors.get("hidden"))

    def fits(self, state: StatePayload) -> bool:
        """Whether a snapshot (which may come from disk) is one of this model's."""
        hidden = state.tensors.get("hidden")
        size = (self._weights.config.hidden_size,)
        has_hidden = hidden is not None and hidden.shape == size and hidden.dtype == torch.float32
        return (self.states is None or self.states.fits(state.tensors)) and (
            self.hiddens is None or has_hidden
        )

    def keep(self, slot: int, num_rows: int) -> None:
        """The first ``num_rows`` of the rows that the last pass left open are part of the text.
        Negative: tokens before them were taken back too, and no state is left."""
        if self.states is not None:
            self.states.keep(slot, num_rows)
        if self.hiddens is not None:
            self.hiddens.keep(slot, num_rows)


def bytes_per_request(config: ModelConfig, state_dtype: str) -> int:
    """Of recurrent state, both copies and windows; 0 for models with attention only."""
    if config.linear is None:
        return 0
    per_layer = state_bytes(config.linear, window_rows=WINDOW_ROWS, dtype=state_dtype)
    return config.num_linear_layers * per_layer


def _state_arena(config: ModelConfig, limits: Limits) -> StateArena:
    assert config.linear is not None, "only recurrent models have states"
    return StateArena(
        config.linear,
        num_layers=config.num_linear_layers,
        num_slots=limits.max_requests,
        window_rows=WINDOW_ROWS,
        dtype=limits.state_dtype,
    )
