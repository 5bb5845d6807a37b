"""Cards by size and name, and the one that is here (a stand-in for NVML, only at that border)."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from hearth.engine.errors import UserError
from hearth.engine.memory import Card
from hearth.engine.plan.cards import CARDS, parse_card
from hearth.engine.plan.present import host_card, present_card

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 1 << 30


@pytest.mark.parametrize("text", ["24GB", "24 gb", "24", " 24G ", "24GiB", "24.0"])
def test_sizes(text: str) -> None:
    assert parse_card(text) == Card("a 24 GB card", 24 * GIB)


@pytest.mark.parametrize(
    "text", ["RTX 4090", "rtx4090", "NVIDIA GeForce RTX 4090", "GeForce RTX-4090"]
)
def test_names(text: str) -> None:
    assert parse_card(text) == Card("RTX 4090", 24 * GIB)


@pytest.mark.parametrize("name", CARDS)
def test_every_name_of_the_table_is_understood(name: str) -> None:
    assert parse_card(name).total_bytes == CARDS[name] * GIB


@pytest.mark.parametrize("text", ["", "0", "9999", "-8", "RTX", "Voodoo 2", "24TB", "x" * 500])
def test_others_are_refused_with_a_way_on(text: str) -> None:
    with pytest.raises(UserError, match="There is no card") as told:
        parse_card(text)
    assert "24GB" in (told.value.action or "")
    assert len(told.value.sentence) < 200


def test_two_sizes_of_one_card_are_both_named() -> None:
    with pytest.raises(UserError) as told:
        parse_card("RTX 4060 Ti")
    assert "'RTX 4060 Ti 8GB' or 'RTX 4060 Ti 16GB'" in (told.value.action or "")


class NvmlError(Exception):
    """What the driver's interface raises."""


def nvml(*cards: tuple[str, int, int], failing: str = "") -> SimpleNamespace:
    """``failing``: the call that raises."""

    def call(name: str, answer: Callable[..., object]) -> Callable[..., object]:
        def run(*arguments: object) -> object:
            if name == failing:
                raise NvmlError
            return answer(*arguments)

        return run

    answers: dict[str, Callable[..., object]] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: len(cards),
        "nvmlDeviceGetHandleByIndex": lambda index: cards[index],
        "nvmlDeviceGetName": lambda card: card[0],
        "nvmlDeviceGetMemoryInfo": lambda card: SimpleNamespace(total=card[1], free=card[2]),
    }
    calls = {name: call(name, answer) for name, answer in answers.items()}
    return SimpleNamespace(NVMLError=NvmlError, **calls)


def test_the_largest_card_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(("A", 8 * GIB, GIB), ("B", 24 * GIB, 5 * GIB)))
    assert present_card() == Card("B", 24 * GIB, 5 * GIB)


@pytest.mark.parametrize("failing", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetMemoryInfo"])
def test_a_driver_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(("A", GIB, GIB), failing=failing))
    assert present_card() is None


def test_no_card_and_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    assert present_card() is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert present_card() is None


def test_this_machines_memory() -> None:
    card = host_card()
    assert card.is_host
    assert card.free_bytes is not None
    assert 0 < card.free_bytes <= card.total_bytes
