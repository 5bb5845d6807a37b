"""The float64 oracle of the hybrid family against transformers, and its two recurrences."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from float64 import hybrid
from float64_models import float64_of, save_tiny_hybrid
from reference_models import HearthLogits

from hearth.engine.weights.model_files import open_model

if TYPE_CHECKING:
    from pathlib import Path

# Lengths on both sides of one, two and three chunks of 64.
LENGTHS = (1, 2, 3, 4, 62, 63, 64, 65, 66, 127, 128, 129, 191, 192, 193)


def relative_error(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


def their_outputs(folder: Path, ids: np.ndarray, positions: np.ndarray | None = None) -> Any:
    from transformers import Qwen3_5ForCausalLM

    model = Qwen3_5ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    places = None if positions is None else torch.from_numpy(positions)[:, None]
    with torch.no_grad():
        return model(torch.from_numpy(ids)[None], position_ids=places, output_hidden_states=True)


def random_ids(length: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 300, length)


@pytest.mark.parametrize("tied", [False, True])
def test_whole_model_against_transformers(tmp_path: Path, tied: bool) -> None:
    """transformers computes in float32 and by chunks; here token by token."""
    ids = random_ids(130)
    folder = save_tiny_hybrid(tmp_path, tied=tied)
    theirs, (tensors, config) = their_outputs(folder, ids), float64_of(folder)
    ours = hybrid.forward(tensors, config, ids)
    assert relative_error(ours["logits"], theirs.logits[0].numpy()) < 1e-5
    # hidden_states[i + 1] is the residual behind layer i, but the last one is normalised.
    states = [state[0].numpy() for state in theirs.hidden_states]
    assert relative_error(ours["hidden"], states[-1]) < 1e-5
    for layer in range(config.num_hidden_layers - 1):
        assert relative_error(ours["taps"][layer], states[layer + 1]) < 1e-5


def test_positions_of_images_against_transformers(tmp_path: Path) -> None:
    ids = random_ids(40)
    positions = np.tile(np.arange(40), (3, 1))
    positions[:, 10:22] = 10
    positions[1, 10:22] += np.repeat(np.arange(3), 4)
    positions[2, 10:22] += np.tile(np.arange(4), 3)
    positions[:, 22:] -= 8
    folder = save_tiny_hybrid(tmp_path)
    theirs, (tensors, config) = their_outputs(folder, ids, positions), float64_of(folder)
    ours = hybrid.forward(tensors, config, ids, positions)["logits"]
    assert relative_error(ours, theirs.logits[0].numpy()) < 1e-5
    plain = hybrid.forward(tensors, config, ids)["logits"]
    assert relative_error(plain, theirs.logits[0].numpy()) > 1e-3, "the positions matter"


@pytest.mark.parametrize("tied", [False, True])
def test_the_engine_against_float64(tmp_path: Path, tied: bool) -> None:
    ids = random_ids(130)
    folder = save_tiny_hybrid(tmp_path, tied=tied)
    ours = HearthLogits(open_model(folder), max_tokens=len(ids)).feed(ids.tolist()).numpy()
    theirs = hybrid.forward(*float64_of(folder), ids)["logits"]
    assert relative_error(ours, theirs) < 1e-4


def random_rows(length: int) -> hybrid.DeltaRows:
    rng = np.random.default_rng(length)
    q, k = (hybrid.l2_normalised(rng.normal(size=(length, 3, 16))) for _ in range(2))
    v = rng.normal(size=(length, 3, 24))
    g = -np.exp(rng.normal(size=(length, 3)) * 3.0 - 2.0)  # from hardly any decay to nearly all
    beta = hybrid.sigmoid(rng.normal(size=(length, 3)) * 3.0)
    return hybrid.DeltaRows(q / 4.0, k, v, g, beta)


@pytest.mark.parametrize("length", LENGTHS)
def test_chunks_equal_single_steps(length: int) -> None:
    rows = random_rows(length)
    state = np.random.default_rng(0).normal(size=(3, 16, 24))
    one, one_state = hybrid.recurrent(rows, state)
    many, many_state = hybrid.chunked(rows, state)
    assert relative_error(many, one) < 1e-12
    assert relative_error(many_state, one_state) < 1e-12


def test_a_state_carries_a_text_on() -> None:
    rows = random_rows(100)
    whole, whole_state = hybrid.recurrent(rows, hybrid.first_state(rows))
    first = hybrid.DeltaRows(*(value[:37] for value in rows))
    rest = hybrid.DeltaRows(*(value[37:] for value in rows))
    start, state = hybrid.recurrent(first, hybrid.first_state(first))
    end, state = hybrid.recurrent(rest, state)
    np.testing.assert_array_equal(np.concatenate([start, end]), whole)
    np.testing.assert_array_equal(state, whole_state)


def test_tiled_value_heads_are_the_same_model(tmp_path: Path) -> None:
    """GGUF's order of value heads: j belongs to key head j % num_key_heads."""
    tensors, config = float64_of(save_tiny_hybrid(tmp_path))
    linear = config.linear
    assert linear is not None
    in_tiles = np.arange(linear.num_value_heads).reshape(linear.num_key_heads, -1).T.flatten()
    rows = np.arange(linear.value_size).reshape(linear.num_value_heads, -1)[in_tiles].flatten()
    channels = np.concatenate([np.arange(2 * linear.key_size), 2 * linear.key_size + rows])
    orders = {"in_qkv": channels, "conv": channels, "in_z": rows}
    orders |= dict.fromkeys(("in_a", "in_b", "decay", "dt_bias"), in_tiles)
    tiled = {}
    for name, value in tensors.items():
        inner = name.rsplit(".", 1)[-1]
        value = value[orders[inner]] if inner in orders else value
        tiled[name] = value[:, rows] if inner == "out" else value
    tiled_config = replace(config, linear=replace(linear, is_tiled=True))
    ids = random_ids(20)
    ours = hybrid.forward(tiled, tiled_config, ids)["logits"]
    assert relative_error(ours, hybrid.forward(tensors, config, ids)["logits"]) < 1e-12
