"""The processor's engine allocates what the plan says: counted from its own buffers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from planned_models import DENSE, HYBRID_27B

from hearth.engine.cache.state_arena import StateArena
from hearth.engine.memory import StateFormat
from hearth.engine.model.attention import AttentionMixer
from hearth.engine.model.config import LinearAttention, ModelConfig
from hearth.engine.model.decoder import bytes_per_request
from hearth.engine.model.deltanet import DeltaNetMixer
from hearth.engine.model.mlp import MlpBlock
from hearth.engine.plan import sizes

SIZES = LinearAttention(2, 6, 32, 48, 4)
SMALL = replace(
    HYBRID_27B, hidden_size=96, intermediate_size=160, num_attention_heads=4,
    num_key_value_heads=2, head_dim=32, rotary_dim=16, mrope_section=None, linear=SIZES,
)  # fmt: skip
SLOTS, ROWS = 3, 5


def held(owner: object) -> int:
    return sum(value.nbytes for value in vars(owner).values() if isinstance(value, torch.Tensor))


@pytest.fixture
def arena() -> StateArena:
    return StateArena(SIZES, num_layers=48, num_slots=SLOTS, window_rows=ROWS)


def test_states(arena: StateArena) -> None:
    one = sizes.STATE_COPIES * sizes.state_bytes(SMALL, StateFormat.FP32, 4)
    window = sizes.WINDOWS * sizes.window_bytes(SMALL, ROWS, 4)
    assert held(arena) == SLOTS * (one + window)


def test_what_the_engine_sets_aside_for_a_request() -> None:
    one = sizes.STATE_COPIES * sizes.state_bytes(HYBRID_27B, StateFormat.FP32, 4)
    window = sizes.WINDOWS * sizes.window_bytes(HYBRID_27B, 16, 4)
    assert bytes_per_request(HYBRID_27B, "float32") == one + window


def test_a_snapshot(arena: StateArena) -> None:
    assert arena.snapshot_bytes == sizes.state_bytes(SMALL, StateFormat.FP32, 4)


@pytest.mark.parametrize("config", [SMALL, DENSE])
def test_buffers(config: ModelConfig, arena: StateArena) -> None:
    absent: object = None  # neither tables nor pages are touched before a launch
    blocks: list[object] = [
        AttentionMixer(config, 7, absent, absent),  # type: ignore[arg-type]
        MlpBlock(config, 7),
    ]
    if config.linear is not None:
        blocks.append(DeltaNetMixer(config, config.linear, 7, arena))
    residual = 7 * config.hidden_size * 4
    assert sizes.host_buffer_bytes(config, 7) == residual + sum(held(block) for block in blocks)
