"""The memory plan fits what it promises, and a refusal names numbers that would work."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.engine.cache import budget, host_memory
from hearth.engine.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

MB = 1_000_000
PAGE = 128


def plan(**changes: int | None) -> budget.MemoryPlan:
    values = {
        "page_bytes": 6 * MB,
        "max_context": 8192,
        "wanted_context": None,
        "available_bytes": 20_000 * MB,
    } | changes
    return budget.plan(**values)  # type: ignore[arg-type]


def test_with_room_the_whole_context_fits_two_and_a_half_times() -> None:
    result = plan()
    assert result == budget.MemoryPlan(161, 8192, 6 * MB)
    assert result.cache_bytes == 161 * 6 * MB


def test_a_wanted_context_is_what_one_gets() -> None:
    assert plan(wanted_context=1000).context_length == 1000
    assert plan(wanted_context=1000).num_pages == 21
    assert plan(wanted_context=8192) == plan()


def test_short_of_memory_the_context_shrinks_to_what_fits() -> None:
    result = plan(available_bytes=200 * MB)
    assert result == budget.MemoryPlan(10, 9 * PAGE, 6 * MB)


def test_a_model_of_a_few_tokens_runs() -> None:
    assert plan(max_context=64).context_length == 64


@pytest.mark.parametrize("wanted", [-1, 0, 1, 127])
def test_a_context_that_is_too_small_is_refused(wanted: int) -> None:
    with pytest.raises(UserError, match="too small to chat in") as caught:
        plan(wanted_context=wanted)
    assert caught.value.action == "Choose between 128 and 8,192 tokens."


def test_more_than_the_model_knows_is_refused() -> None:
    with pytest.raises(UserError, match=r"trained for 8,192 tokens; 8,193 are too many") as caught:
        plan(wanted_context=8193, available_bytes=200 * MB)
    assert caught.value.action == "Choose a context of at most 1,152 tokens."


def test_more_than_memory_holds_is_refused_with_the_numbers() -> None:
    with pytest.raises(UserError, match="needs 66 MB and 60 MB may be used") as caught:
        plan(wanted_context=1153, available_bytes=200 * MB)
    assert caught.value.action == "Choose at most 1,152 tokens, or close other programs."


@pytest.mark.parametrize("wanted", [None, 128, 8192])
def test_no_memory_at_all_is_said(wanted: int | None) -> None:
    with pytest.raises(UserError, match="Only 10 MB of memory are free") as caught:
        plan(available_bytes=10 * MB, wanted_context=wanted)
    assert "at least 12 MB are needed" in str(caught.value)


@given(
    page_bytes=st.integers(1, 10**8),
    max_context=st.integers(1, 10**6),
    wanted=st.none() | st.integers(-10, 10**6),
    available=st.integers(0, 10**11),
)
def test_a_plan_fits_and_a_refusal_leads_to_one(
    page_bytes: int, max_context: int, wanted: int | None, available: int
) -> None:
    values = {"page_bytes": page_bytes, "max_context": max_context, "available_bytes": available}
    try:
        result = plan(**values, wanted_context=wanted)
    except UserError as error:
        for number in re.findall(r"[\d,]*\d", error.action or "nothing"):
            possible = int(number.replace(",", ""))
            assert plan(**values, wanted_context=possible).context_length == possible
        return
    assert result.cache_bytes <= available * budget.CACHE_SHARE
    assert result.num_pages * PAGE >= result.context_length + PAGE
    assert result.context_length == (wanted or result.context_length) <= max_context


# ------------------------------------------------------------------------------ what is available


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with 8 GB available."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    text = "MemTotal: 16000000 kB\nMemFree: 100 kB\nMemAvailable:    8000000 kB\n"
    (tmp_path / "proc/meminfo").write_text(text)
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/old\n0::/user/app\n")
    return tmp_path


def limit(folder: Path, maximum: str, current: int, inactive: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{maximum}\n")
    (folder / "memory.current").write_text(f"{current}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\nactive_file 7\n")


def test_the_systems_estimate_counts(root: Path) -> None:
    assert host_memory.available_bytes(root) == 8_000_000 * 1024


def test_a_containers_limit_counts_without_files_that_were_read(root: Path) -> None:
    limit(root / "sys/fs/cgroup", "3000", 2500, inactive=2000)
    assert host_memory.available_bytes(root) == 2500


def test_the_tightest_group_counts(root: Path) -> None:
    limit(root / "sys/fs/cgroup/user", "2000", 500)
    limit(root / "sys/fs/cgroup/user/app", "1000", 100)
    assert host_memory.available_bytes(root) == 900
    limit(root / "sys/fs/cgroup/user", "600", 500)
    assert host_memory.available_bytes(root) == 100
    limit(root / "sys/fs/cgroup/user", "600", 700)
    assert host_memory.available_bytes(root) == 0


def test_no_limit_is_no_limit(root: Path) -> None:
    limit(root / "sys/fs/cgroup/user/app", "max", 100)
    assert host_memory.available_bytes(root) == 8_000_000 * 1024


def test_limits_outside_of_the_own_group_do_not_count(root: Path) -> None:
    limit(root / "sys/fs/cgroup/other", "10", 5)
    limit(root / "sys/fs", "10", 5)
    assert host_memory.available_bytes(root) == 8_000_000 * 1024


def test_a_system_that_says_nothing_is_asked_for_its_size(tmp_path: Path) -> None:
    assert host_memory.available_bytes(tmp_path) > 0


def test_this_machine_has_memory() -> None:
    assert host_memory.available_bytes() > 100 * MB
