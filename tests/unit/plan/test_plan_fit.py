"""A plan fits what it promises; a refusal names its numbers, and its way out works."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planned_models import DENSE, HYBRID_27B, model

from hearth.engine.cache import budget
from hearth.engine.errors import UserError
from hearth.engine.memory import (
    PARTS,
    Card,
    Drafter,
    KvFormat,
    MemorySettings,
    MemoryWish,
    PlannedMemory,
    StateFormat,
)
from hearth.engine.plan import fit

GIB = 1 << 30
FILES = model()
DENSE_FILES = model(DENSE)
HOST = MemorySettings(
    kv=KvFormat.FLOAT32,
    max_requests=8,
    prefill_chunk=256,
    snapshots_on_card=0,
    snapshots_on_host=0,
)


def plan(
    size_gib: float, settings: MemorySettings | None = None, *, free: int | None = None
) -> PlannedMemory:
    card = Card("the card", int(size_gib * GIB), free)
    return fit.plan_memory(FILES, card, settings or MemorySettings())


def on_host(free: int, settings: MemorySettings = HOST) -> PlannedMemory:
    card = Card("memory", 64 * GIB, free, is_host=True)
    return fit.plan_memory(DENSE_FILES, card, settings)


def test_parts_are_in_order_and_add_up() -> None:
    result = plan(24)
    ids = [part.id for part in result.parts]
    assert ids == [name for name in PARTS if name in ids]
    assert result.needed_bytes + result.free_bytes == result.available_bytes
    page_bytes = 128 * result.bytes_per_token
    assert 0 <= result.free_bytes < page_bytes
    assert result.part("pages") == (result.context // 128 + 1) * page_bytes


def test_24_gb_hold_about_what_others_reach() -> None:
    """65,536 to 86,727 tokens in bf16 with MTP are published for a 24 GB card."""
    assert 65_536 <= plan(24).largest_context <= 95_000


def test_states_are_two_copies_and_two_windows_a_request() -> None:
    one, three = plan(24), plan(24, MemorySettings(max_requests=3))
    assert one.part("states") == 2 * one.state_bytes + 2 * one.window_bytes
    assert three.part("states") == 3 * one.part("states")


def test_snapshots_are_counted_where_they_are_kept() -> None:
    result = plan(24, MemorySettings(snapshots_on_card=3, snapshots_on_host=5))
    assert result.part("snapshots") == 3 * result.snapshot_bytes
    assert result.host_snapshot_bytes == 5 * result.snapshot_bytes
    assert plan(24, MemorySettings(snapshots_on_card=0)).part("snapshots") == 0


def test_a_drafter_brings_weights_and_a_cache_for_every_request() -> None:
    drafter = Drafter("DFlash2", 1_200_000_000, 42_000_000)
    bare = plan(24, MemorySettings(max_requests=2))
    result = plan(24, MemorySettings(max_requests=2, drafter=drafter))
    assert result.part("drafter") == 1_200_000_000
    assert result.part("states") - bare.part("states") == 84_000_000


def test_a_measured_card_is_planned_from_what_is_free() -> None:
    result = plan(24, free=20 * GIB)
    assert result.available_bytes == 20 * GIB
    assert result.part("desktop") == fit.GROWTH_BYTES
    assert plan(24).part("desktop") == fit.DESKTOP_BYTES


def test_half_the_state_and_half_the_cache_never_need_more() -> None:
    wide = plan(24, MemorySettings(context=65_536))
    for narrow in (
        MemorySettings(context=65_536, kv=KvFormat.INT8),
        MemorySettings(context=65_536, kv=KvFormat.FP8),
        MemorySettings(context=65_536, state=StateFormat.FP16),
        MemorySettings(context=65_536, use_mtp=False),
        MemorySettings(context=65_536, max_depth=3),
    ):
        assert plan(24, narrow).needed_bytes < wide.needed_bytes


def test_published_matrices_cost_what_they_cost() -> None:
    kept = plan(32, MemorySettings(requantise=()))
    assert kept.requantised == ()
    assert plan(32).requantised == ("embedding", "head", "mtp")
    assert kept.part("head") > 1.9 * plan(32).part("head")


# ---------------------------------------------------------------------------------------- refusals


def test_too_long_a_context_is_refused_with_the_numbers() -> None:
    result = plan(24, MemorySettings(context=131_072))
    assert result.refusal is not None
    assert result.refusal.needed_bytes == result.needed_bytes > result.refusal.available_bytes
    with pytest.raises(
        UserError, match=r"131,072 tokens needs 26.32 GiB and 23.52 GiB can"
    ) as told:
        result.require()
    action = f"Choose at most {result.largest_context:,} tokens, or keep keys and values as int8."
    assert told.value.action == action


def test_no_format_is_named_that_does_not_help() -> None:
    result = plan(24, MemorySettings(context=262_144))
    assert result.refusal is not None
    assert "keep" not in result.refusal.action


def test_more_than_the_model_was_trained_for() -> None:
    with pytest.raises(UserError, match="trained for 262,144 tokens; 300,000 are too many"):
        plan(80, MemorySettings(context=300_000)).require()


@pytest.mark.parametrize("context", [-1, 0, 127])
def test_too_small_a_context(context: int) -> None:
    with pytest.raises(UserError, match="too small to chat in"):
        plan(80, MemorySettings(context=context)).require()


@pytest.mark.parametrize("context", [None, 128])
def test_a_card_that_cannot_hold_the_weights(context: int | None) -> None:
    result = plan(12, MemorySettings(context=context))
    assert result.largest_context == 0
    with pytest.raises(UserError, match=r"needs at least 17.8\d GiB and 11.76 GiB can") as told:
        result.require()
    assert told.value.action == "Choose a smaller model or version of it."


def test_what_could_make_room_is_named() -> None:
    result = plan(12, MemorySettings(max_requests=4), free=10 * GIB)
    assert result.refusal is not None
    assert "close other programs, or answer fewer requests" in result.refusal.action


@given(
    size_gib=st.floats(1.0, 200.0),
    context=st.none() | st.integers(-10, 400_000),
    kv=st.sampled_from(fit.CARD_FORMATS),
    max_requests=st.integers(1, 64),
)
def test_a_plan_fits_and_a_refusal_leads_to_one(
    size_gib: float, context: int | None, kv: KvFormat, max_requests: int
) -> None:
    settings = MemorySettings(context=context, kv=kv, max_requests=max_requests)
    result = plan(size_gib, settings)
    if result.refusal is None:
        assert result.needed_bytes <= result.available_bytes
        assert result.context == (context or result.context) <= result.largest_context
    elif result.largest_context:
        for number in re.findall(r"\d[\d,]*\d", result.refusal.action.partition("as ")[0]):
            possible = replace(settings, context=int(number.replace(",", "")))
            plan(size_gib, possible).require()


# --------------------------------------------------------------------------------------- processor


@given(free=st.integers(400_000_000, 40 * GIB), context=st.none() | st.integers(128, 8192))
def test_the_processors_plan_is_the_running_engines(free: int, context: int | None) -> None:
    """As long as the scratch fits too, which the running engine does not ask for."""
    result = on_host(free, replace(HOST, context=context))
    try:
        running = budget.plan(
            page_bytes=128 * result.bytes_per_token,
            max_context=8192,
            wanted_context=context,
            available_bytes=max(free - DENSE_FILES.weight_bytes, 0),
        )
    except UserError:
        assert result.refusal is not None
        return
    assert result.refusal is None
    assert (result.context, result.part("pages")) == (running.context_length, running.cache_bytes)


def test_the_processor_has_no_driver_and_no_desktop_of_its_own() -> None:
    result = on_host(8 * GIB)
    assert {part.id for part in result.parts} == {
        "embedding", "attention", "mlp", "norms", "scratch", "pages",
    }  # fmt: skip
    assert [choice.format for choice in result.kv_choices] == [KvFormat.FLOAT32]


def test_a_full_machine_is_said() -> None:
    with pytest.raises(UserError, match="needs at least"):
        on_host(100_000_000).require()


def test_a_hybrid_on_the_processor_keeps_float32_states() -> None:
    card = Card("memory", 256 * GIB, 200 * GIB, is_host=True)
    result = fit.plan_memory(FILES, card, HOST)
    conv = 48 * 10_240 * 3 * 4
    assert result.state_bytes == (144 << 20) + conv
    assert result.bytes_per_token == 17 * 2 * 4 * 256 * 4
    running = budget.plan(
        page_bytes=128 * result.bytes_per_token,
        max_context=262_144,
        wanted_context=None,
        available_bytes=200 * GIB - FILES.weight_bytes - result.part("states"),
        has_states=True,
    )
    assert (result.part("pages"), result.part("snapshots")) == (
        running.cache_bytes,
        running.snapshot_bytes,
    )


# ------------------------------------------------------------------------------------------ wishes


def test_wishes_replace_what_the_device_does() -> None:
    card = Card("the card", GIB)
    wish = MemoryWish(context=1000, kv=KvFormat.INT8, state=StateFormat.FP16, max_requests=3)
    decided = fit.decide(wish, MemorySettings(), card)
    assert (decided.context, decided.kv, decided.state) == (1000, KvFormat.INT8, StateFormat.FP16)
    assert decided.max_requests == 3
    assert fit.decide(MemoryWish(), HOST, Card("m", GIB, GIB, is_host=True)) == HOST


@pytest.mark.parametrize(
    ("wish", "is_host", "sentence"),
    [
        (MemoryWish(kv=KvFormat.FP8), True, "On the processor"),
        (MemoryWish(kv=KvFormat.FLOAT32), False, "never kept in 32 bit"),
        (MemoryWish(max_requests=0), False, "0 requests at once are impossible"),
    ],
)
def test_impossible_wishes(wish: MemoryWish, is_host: bool, sentence: str) -> None:
    card = Card("here", GIB, GIB, is_host=is_host)
    with pytest.raises(UserError, match=sentence):
        fit.decide(wish, HOST if is_host else MemorySettings(), card)


def test_the_shapes_of_these_tests_are_those_of_the_family() -> None:
    assert (HYBRID_27B.num_attention_layers, HYBRID_27B.num_linear_layers) == (17, 48)
