"""DFlash and DFlash2 of the engine against the float64 oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from dflash_models import Pair, random_taps, uniform_noise
from float64 import dflash as oracle
from tiny_drafters import (
    BLOCK,
    VALID,
    dflash2_config,
    dflash_config,
    drafter_tensors,
    write_drafter,
)

from hearth.engine.cache.states import StatePayload
from hearth.engine.draft.dflash import Ask, _Block
from hearth.engine.draft.dflash_config import UndeclaredCausality
from hearth.engine.draft.dflash_context import DflashContext
from hearth.engine.draft.dflash_walk import CoupledDraw, Lattice, UniformDraw

if TYPE_CHECKING:
    from pathlib import Path

ANCHOR = 17
CONFIGS = {
    "dflash2": dflash2_config(),
    "dflash2 causal": dflash2_config(is_causal=True),
    "dflash2 three taps of convolution": dflash2_config(
        dflash_config=dflash2_config()["dflash_config"] | {"conv_kernel_size": 3}
    ),
    "dflash2 scaled": dflash2_config(
        input_embedding_scale=0.5, output_multiplier=0.25, final_logit_softcapping=2.0
    ),
    "dflash": dflash_config(),
    "dflash not causal": dflash_config(is_causal=False),
}


@pytest.fixture(params=CONFIGS.values(), ids=CONFIGS.keys())
def pair(request: Any, tmp_path: Path) -> Pair:
    return Pair(write_drafter(tmp_path, request.param))


@pytest.fixture
def dflash2(tmp_path: Path) -> Pair:
    return Pair(write_drafter(tmp_path, dflash2_config()))


def context_of(pair: Pair, taps: torch.Tensor, start: int = 0) -> DflashContext:
    context = pair.engine.new_context()
    if len(taps):
        pair.engine.append(context, taps, start)
    return context


def engine_block(pair: Pair, ask: Ask) -> oracle.Block:
    """What the engine computed before any token was chosen."""
    parts = [_Block(ask, 0, ask.depth + 1)]
    hidden = pair.engine._drafting_rows(pair.engine._forward(parts), parts)
    return oracle.Block(hidden.numpy(), pair.engine._logits(hidden).numpy())


def relative_error(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


@pytest.mark.parametrize("length", [0, 5, 11, 12, 40])
@pytest.mark.parametrize("depth", [1, 3, BLOCK - 1])
def test_block_forward(pair: Pair, length: int, depth: int) -> None:
    """Contexts shorter and longer than the window, blocks shorter than the longest."""
    taps = random_taps(length)
    ask = Ask(context_of(pair, taps), ANCHOR, length, depth)
    ours = engine_block(pair, ask)
    theirs = oracle.block_forward(pair.oracle, taps.numpy(), ANCHOR, depth)
    assert relative_error(ours.hidden, theirs.hidden) < 1e-4
    assert relative_error(ours.logits, theirs.logits) < 1e-4


def num_candidates(pair: Pair) -> int:
    selector = pair.engine.config.selector
    return 64 if selector is None else selector.top_k


@pytest.mark.parametrize("temperature", [None, 0.3, 1.0])
def test_walk(pair: Pair, temperature: float | None) -> None:
    """Greedy and with given noise: the same tokens and the same laws."""
    length, depth = 30, BLOCK - 1
    noise = uniform_noise(range(length + 1, length + 1 + depth))
    draw = None if temperature is None else UniformDraw(temperature, noise)
    taps = random_taps(length)
    (ours,) = pair.engine.propose([Ask(context_of(pair, taps), ANCHOR, length, depth, draw)])
    block = oracle.block_forward(pair.oracle, taps.numpy(), ANCHOR, depth)
    uniform = None if temperature is None else list(noise.values())
    theirs = oracle.walk(
        pair.oracle, block, ANCHOR, num_candidates(pair), temperature or 0.0, uniform
    )
    assert ours.ids == tuple(row.token for row in theirs)
    for our_row, their_row in zip(ours.rows, theirs, strict=True):
        np.testing.assert_array_equal(our_row.ids, their_row.ids)
        np.testing.assert_allclose(our_row.probabilities, their_row.probabilities, atol=1e-4)
        assert abs(our_row.probabilities.sum() - 1.0) < 1e-12
        assert our_row.ids.max() < VALID, "padding is never drafted"


def test_drawn_tokens_follow_the_stored_law(dflash2: Pair) -> None:
    """20,000 draws of one row: χ² with 5 degrees of freedom below its 99.9 % point."""
    context = context_of(dflash2, random_taps(20))
    ask = Ask(context, ANCHOR, 20, 1, UniformDraw(1.5, {21: 0.5}))
    ((row,),) = (proposal.rows for proposal in dflash2.engine.propose([ask]))
    noise = dict(enumerate(np.random.default_rng(3).random(20_000)))
    draw = UniformDraw(1.5, noise)
    picked = [draw.pick(position, row.ids, row.probabilities) for position in noise]
    expected = row.probabilities * len(noise)
    counts = np.bincount(picked, minlength=len(row.ids))
    assert len(counts) == 6
    assert ((counts - expected) ** 2 / expected).sum() < 20.5


def test_coupled_draws_equal_the_target_s_when_the_laws_do(dflash2: Pair) -> None:
    """Gumbel noise of (seed, position, id): argmax of log q + noise, as in the engine's sampler."""
    from hearth.engine.sampling import gumbel

    context = context_of(dflash2, random_taps(20))
    (proposal,) = dflash2.engine.propose([Ask(context, ANCHOR, 20, 7, CoupledDraw(1.0, 99))])
    for index, (token, row) in enumerate(zip(proposal.ids, proposal.rows, strict=True)):
        noisy = np.log(row.probabilities) + gumbel(99, 21 + index, row.ids)
        assert token == row.ids[noisy.argmax()]


# ------------------------------------------------------------------------------ bits (D1), state


def same(one: Any, other: Any) -> bool:
    rows = zip(one.rows, other.rows, strict=True)
    return one.ids == other.ids and all(
        np.array_equal(a.ids, b.ids) and np.array_equal(a.probabilities, b.probabilities)
        for a, b in rows
    )


def test_requests_do_not_change_a_bit_of_each_other(pair: Pair) -> None:
    """Other lengths, depths and ways of drawing in one pass; the convolution stops at blocks."""
    asks = []
    for index, (length, depth) in enumerate([(33, 7), (4, 2), (0, 5)]):
        noise = uniform_noise(range(length + 1, length + 1 + depth), index)
        draw = UniformDraw(0.8, noise) if index else None
        context = context_of(pair, random_taps(length, index))
        asks.append(Ask(context, ANCHOR + index, length, depth, draw))
    together = pair.engine.propose(asks)
    alone = [pair.engine.propose([ask])[0] for ask in asks]
    assert all(map(same, together, alone))
    assert pair.engine.propose([]) == []


@pytest.mark.parametrize("sizes", [(1,) * 30, (7, 1, 20, 2), (30,)])
def test_ragged_appends_are_one_append(pair: Pair, sizes: tuple[int, ...]) -> None:
    taps = random_taps(30)
    context, done = pair.engine.new_context(), 0
    for size in sizes:
        pair.engine.append(context, taps[done : done + size], done)
        done += size
    whole = context_of(pair, taps)
    for name, value in whole.save().items():
        assert torch.equal(context.save()[name], value), name
    draw = UniformDraw(1.0, uniform_noise(range(31, 38)))
    asks = [Ask(c, ANCHOR, 30, 7, draw) for c in (context, whole)]
    assert same(*pair.engine.propose(asks))


def test_a_context_may_start_anywhere(dflash2: Pair) -> None:
    """Positions are relative to each other: a text without its start is a text elsewhere."""
    taps = random_taps(25)
    shifted = engine_block(dflash2, Ask(context_of(dflash2, taps, 1000), ANCHOR, 1025, 7))
    theirs = oracle.block_forward(dflash2.oracle, taps.numpy(), ANCHOR, 7, first_position=1000)
    at_zero = oracle.block_forward(dflash2.oracle, taps.numpy(), ANCHOR, 7)
    assert relative_error(shifted.logits, theirs.logits) < 1e-4
    assert relative_error(theirs.logits, at_zero.logits) < 1e-9


@pytest.mark.parametrize("length", [0, 3, 40])
def test_state_is_saved_and_restored(pair: Pair, length: int) -> None:
    """Through the very bytes of a snapshot; what came before the window is not in them."""
    context = context_of(pair, random_taps(length))
    payload = StatePayload.from_bytes(StatePayload(context.save()).to_bytes())
    assert payload is not None
    restored = DflashContext.restored(pair.engine.config, payload.tensors)
    assert restored is not None
    assert restored.end == context.end == length
    for each in (context, restored):
        pair.engine.append(each, random_taps(9, 1), length)
    asks = [Ask(c, ANCHOR, length + 9, 5) for c in (context, restored)]
    assert same(*pair.engine.propose(asks))


def test_a_state_of_another_drafter_is_not_restored(dflash2: Pair, tmp_path: Path) -> None:
    tensors = context_of(dflash2, random_taps(40)).save()
    assert DflashContext.restored(dflash2.engine.config, tensors) is not None
    broken: list[dict[str, torch.Tensor]] = [
        {},
        {name: value for name, value in tensors.items() if name != "drafter.1.values"},
        tensors | {"drafter.1.values": torch.zeros(11, 32)},
        tensors | {"drafter.1.keys": torch.zeros(3, 64)},
        tensors | {"drafter.end": torch.tensor([3])},
        tensors | {"drafter.end": torch.tensor(40)},
        tensors | {name: torch.zeros(12, 64) for name in tensors if name != "drafter.end"},
        tensors | {name: tensors[name].double() for name in tensors if name != "drafter.end"},
    ]
    for state in broken:
        assert DflashContext.restored(dflash2.engine.config, state) is None


# --------------------------------------------------------------------------------------- traps


def test_rows_see_later_rows_only_without_causality(tmp_path: Path) -> None:
    """A causal attention kernel gives near-zero acceptance without any error: here a row of a
    causal block cannot know how long the block is, and one of the other kind does."""
    for causal in (False, True):
        config = dflash2_config(is_causal=causal)
        pair = Pair(write_drafter(tmp_path / str(causal), config))
        context = context_of(pair, random_taps(20))
        short, long = (engine_block(pair, Ask(context, ANCHOR, 20, depth)) for depth in (3, 7))
        error = relative_error(long.logits[:3], short.logits)
        assert error < 1e-5 if causal else error > 1e-3


def test_the_window_counts_for_each_row(dflash2: Pair) -> None:
    """The anchor at 30 sees tokens from 19 on, the last row at 37 from 26 on: earlier ones change
    no bit, and a change of token 19 reaches the other rows through the anchor's row only."""
    taps = random_taps(30)
    changed = taps.clone()
    changed[:19] += 5.0
    before, after = (Ask(context_of(dflash2, each), ANCHOR, 30, 7) for each in (taps, changed))
    plain = engine_block(dflash2, before).logits
    np.testing.assert_array_equal(engine_block(dflash2, after).logits, plain)
    changed[19] += 5.0
    reached = engine_block(dflash2, Ask(context_of(dflash2, changed), ANCHOR, 30, 7)).logits
    assert relative_error(reached, plain) > 1e-4


def test_the_anchor_is_no_context(dflash2: Pair) -> None:
    context = context_of(dflash2, random_taps(20))
    with pytest.raises(AssertionError, match="right before the anchor"):
        Ask(context, ANCHOR, 19, 3)
    with pytest.raises(AssertionError, match="follow each other"):
        dflash2.engine.append(context, random_taps(1), 19)


def test_the_selector_sees_the_token_before(dflash2: Pair) -> None:
    """The same rows behind two anchors: the first row's candidates are equal, their law is not."""
    context = context_of(dflash2, random_taps(20))
    block = engine_block(dflash2, Ask(context, ANCHOR, 20, 7))
    hidden, logits = (torch.from_numpy(value) for value in block)
    lattice = Lattice(hidden, logits[:, :VALID], dflash2.engine._weights.selector, 6)
    draw = UniformDraw(1.0, uniform_noise(range(21, 28)))
    one, other = (lattice.walk(anchor, 20, draw).rows[0] for anchor in (ANCHOR, ANCHOR + 1))
    np.testing.assert_array_equal(one.ids, other.ids)
    assert np.abs(one.probabilities - other.probabilities).max() > 1e-3


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (True, True, False)),
        ({"is_causal": False}, (False, False, False)),
        ({"is_causal": True}, (True, True, True)),
        ({"inner": True}, (True, True, True)),
        ({"is_causal": False, "inner": True}, (False, False, False)),
    ],
)
def test_causality_is_resolved_in_order(
    tmp_path: Path, changes: dict[str, Any], expected: tuple[bool, ...]
) -> None:
    config = dflash_config(**{key: changes[key] for key in changes if key != "inner"})
    if "inner" in changes:
        config["dflash_config"]["causal"] = changes["inner"]
    pair = Pair(write_drafter(tmp_path, config))
    assert pair.engine.config.is_causal == expected
    assert tuple(map(pair.oracle.is_causal, range(3))) == expected


def test_undeclared_causality_is_a_switch(tmp_path: Path) -> None:
    pair = Pair(write_drafter(tmp_path, dflash_config()), undeclared=UndeclaredCausality.NEVER)
    assert pair.engine.config.is_causal == (False, False, False)
    taps = random_taps(20)
    ours = engine_block(pair, Ask(context_of(pair, taps), ANCHOR, 20, 7))
    theirs = oracle.block_forward(pair.oracle, taps.numpy(), ANCHOR, 7)
    assert relative_error(ours.logits, theirs.logits) < 1e-4


def test_norm_weights_are_plain(tmp_path: Path) -> None:
    """The target's are 1 + w, the drafter's are not."""
    config = dflash2_config()
    tensors = drafter_tensors(config)
    pair = Pair(write_drafter(tmp_path, config, tensors))
    weights = pair.engine._weights
    assert torch.equal(weights.norm, tensors["norm.weight"])
    assert torch.equal(weights.layers[1].q_norm, tensors["layers.1.self_attn.q_norm.weight"])
