"""From a path to a running model: open, pack, plan memory, warm up."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.engine.cache import budget
from hearth.engine.cache.disk import DiskTier, ModelKey
from hearth.engine.cache.pages import PageArena
from hearth.engine.cache.prefix import PrefixCache
from hearth.engine.draft.depth import StepTimes
from hearth.engine.model.decoder import (
    NUMERIC_VERSION,
    Decoder,
    Limits,
    RowRun,
    bytes_per_request,
    load_weights,
)
from hearth.engine.protocol import ModelInfo
from hearth.engine.rows import Model
from hearth.engine.text.prompt import load_text
from hearth.engine.weights.checks import check_vocabulary
from hearth.engine.weights.model_files import open_model
from hearth.engine.weights.requantise import made_here, requantised
from hearth.kernels import graph
from hearth.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hearth.engine.engine import EngineConfig
    from hearth.engine.text.prompt import TextModel
    from hearth.engine.weights.model_files import ModelFiles

TIMED_ROWS = (1, 2, 4, 8, 16)
TIMED_REPEATS = 3


@dataclass(frozen=True, slots=True)
class LoadRequest:
    path: Path
    context_length: int | None


def load_model(
    wanted: LoadRequest,
    config: EngineConfig,
    on_progress: Callable[[str, int, int], None],
    is_cancelled: Callable[[], bool],
) -> tuple[Model, ModelInfo]:
    """Raises HearthError with a sentence when the model cannot be opened or does not fit."""
    files = requantised(open_model(wanted.path), config.requantise)
    on_progress("Reading the tokenizer", 0, files.weight_bytes)
    text = load_text(files.text)
    check_vocabulary(files, text.vocabulary.size)
    num_layers = files.config.num_attention_layers
    page_bytes = num_layers * Decoder.page_floats(files.config) * 4
    state_bytes = config.max_requests * bytes_per_request(files.config, config.state_dtype)
    plan = budget.plan(
        page_bytes=page_bytes,
        max_context=files.config.max_position_embeddings,
        wanted_context=wanted.context_length,
        available_bytes=max(budget.available_bytes() - files.weight_bytes - state_bytes, 0),
        has_states=files.config.linear is not None,
    )
    weights = load_weights(
        files, lambda done, total: on_progress("Loading weights", done, total), is_cancelled
    )
    arena = PageArena(plan.num_pages, num_layers, Decoder.page_floats(files.config))
    limits = Limits(
        max_rows=config.prefill_chunk + config.max_logit_rows,
        max_logit_rows=config.max_logit_rows,
        max_requests=config.max_requests,
        context_length=plan.context_length,
        state_dtype=config.state_dtype,
    )
    decoder = Decoder(weights, limits, arena.pages)
    on_progress("Warming up", files.weight_bytes, files.weight_bytes)
    times = measure_times(decoder, arena)
    disk = _disk_tier(config, files, arena)
    model = Model(
        decoder=decoder,
        arena=arena,
        cache=PrefixCache(
            arena,
            disk=disk,
            requires_state=decoder.needs_state,
            snapshot_bytes=plan.snapshot_bytes,
        ),
        text=text,
        times=times,
        context_length=plan.context_length,
        prefill_chunk=config.prefill_chunk,
    )
    return model, _info(files, text, plan.context_length)


def measure_times(decoder: Decoder, arena: PageArena) -> StepTimes:
    """Compile every kernel by running it, and time passes by their number of rows.

    Rows stand in a page that nobody owns yet; what they write is overwritten later.
    """
    page = arena.allocate()
    assert page is not None, "a new arena has free pages"
    decoder.inputs.page_table[0, 0] = page
    seconds = []
    for rows in TIMED_ROWS:
        decoder.inputs.logit_rows[:rows] = 0
        decoder.inputs.place(0, 0, 0, [0] * rows)
        seconds.append(min(_timed(decoder, rows) for _ in range(TIMED_REPEATS)))
    arena.release(page)
    return StepTimes(TIMED_ROWS, tuple(seconds))


def _timed(decoder: Decoder, rows: int) -> float:
    decoder.begin(0, None, 0)
    started = time.perf_counter()
    decoder.forward(rows, rows, [RowRun(0, 0, rows, commits=False)])
    return time.perf_counter() - started


def _disk_tier(config: EngineConfig, files: ModelFiles, arena: PageArena) -> DiskTier | None:
    if config.cache_folder is None:
        return None
    model = files.config
    key = ModelKey(
        weights=files.fingerprint,
        arithmetic=f"{graph.backend()} {NUMERIC_VERSION}",
        cache_dtype="float32",
        page_floats=arena.page_bytes // 4,
        num_layers=model.num_attention_layers,
        head_dim=model.head_dim,
        state=config.state_dtype if model.linear is not None else "",
        drafter="mtp" if model.num_mtp_layers else "",
        rope=f"{PAGE_TOKENS} {model.rope_theta} {model.rope_scaling}",
    )
    return DiskTier(config.cache_folder, key, capacity_bytes=config.cache_capacity_bytes)


def _info(files: ModelFiles, text: TextModel, context_length: int) -> ModelInfo:
    return ModelInfo(
        name=files.name,
        path=str(files.path),
        architecture=files.config.architecture,
        num_parameters=files.num_parameters,
        weight_bytes=files.weight_bytes,
        context_length=context_length,
        vocab_size=files.config.vocab_size,
        device="CPU",
        kernels=graph.backend(),
        fingerprint=f"{files.fingerprint}-{NUMERIC_VERSION}",
        has_chat_template=text.has_chat_template,
        can_think=text.can_think,
        thinks_by_default=text.thinks_by_default,
        has_mtp=files.config.num_mtp_layers > 0,
        requantised=made_here(files),
    )
