"""The model dialog: the plan in view is that of the newest wish, made beside the window."""

from __future__ import annotations

import itertools
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QLabel

sys.path.insert(0, str(Path(__file__).parent.parent / "unit" / "plan"))
from planned_models import model

from hearth.app.memory_words import FREE
from hearth.engine.memory import PARTS, KvFormat, MemorySettings, MemoryWish, PlannedMemory
from hearth.engine.plan.cards import parse_card
from hearth.engine.plan.fit import decide, plan_memory
from hearth.ui import theme as themes
from hearth.ui.memory_bar import PAINTS, MemoryBar, paint_colour, segments
from hearth.ui.model_dialog import CARDS, ModelDialog

if TYPE_CHECKING:
    from hearth.ui.theme import Theme

FILES = model()
MODELS = {"/models/tall": "Tall", "/models/small": "Small"}


class Planner:
    """Plans for the card named, 24 GB for this machine; remembers who asked on which thread."""

    def __init__(self) -> None:
        self.asked: list[tuple[Path, str, MemoryWish]] = []
        self.threads: set[int] = set()

    def __call__(self, path: Path, card_name: str, wish: MemoryWish) -> PlannedMemory:
        self.asked.append((path, card_name, wish))
        self.threads.add(threading.get_ident())
        card = parse_card(card_name or "24GB")
        return plan_memory(FILES, card, decide(wish, MemorySettings(), card))


@pytest.fixture
def planner() -> Planner:
    return Planner()


@pytest.fixture
def dialog(light: Theme, planner: Planner, qtbot: object) -> ModelDialog:
    made = ModelDialog(MODELS, "/models/small", planner, light)
    made.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose, False)
    qtbot.addWidget(made)  # type: ignore[attr-defined]
    settle(made, qtbot)
    return made


def settle(dialog: ModelDialog, qtbot: object) -> None:
    qtbot.waitUntil(lambda: dialog._job is None, timeout=5000)  # type: ignore[attr-defined]


def test_it_starts_with_the_open_model_on_this_machine(
    dialog: ModelDialog, planner: Planner
) -> None:
    assert planner.asked == [(Path("/models/small"), "", MemoryWish())]
    assert planner.threads.isdisjoint({threading.get_ident()})
    assert dialog.plan is not None
    assert "The largest context that fits is" in dialog._verdict.text()
    assert dialog._formats.currentText() == f"bf16 — {dialog.plan.largest_context:,} tokens fit"


def test_every_choice_asks_again(dialog: ModelDialog, planner: Planner, qtbot: object) -> None:
    dialog.choose(card="32GB")
    settle(dialog, qtbot)
    dialog._formats.setCurrentIndex(2)
    dialog._formats.activated.emit(2)
    settle(dialog, qtbot)
    dialog._context.setValue(4096)
    settle(dialog, qtbot)
    dialog._models.setCurrentIndex(0)
    settle(dialog, qtbot)
    wish = MemoryWish(context=4096, kv=KvFormat.INT8)
    assert planner.asked[-1] == (Path("/models/tall"), "32GB", wish)
    assert dialog.plan is not None
    assert dialog.plan.context == 4096


def test_the_newest_wish_wins(dialog: ModelDialog, planner: Planner, qtbot: object) -> None:
    for card in ("8GB", "12GB", "16GB", "32GB"):
        dialog.choose(card=card)
    settle(dialog, qtbot)
    assert dialog.plan is not None
    assert dialog.plan.card.total_bytes == 32 << 30
    assert len(planner.asked) == 3, "the first, one that was under way, and the newest"


def test_what_does_not_fit_is_said(dialog: ModelDialog, qtbot: object) -> None:
    dialog.choose(card="12GB")
    settle(dialog, qtbot)
    assert dialog._verdict.objectName() == "refusal"
    assert "needs at least 17.8" in dialog._verdict.text()
    assert dialog._verdict.text() in dialog._bar.accessibleDescription()


def test_a_file_that_is_no_model_is_said(light: Theme, qtbot: object) -> None:
    from hearth.engine.errors import UserError

    def refuse(*_: object) -> PlannedMemory:
        raise UserError("It is damaged.", action="Download it again.")

    dialog = ModelDialog(MODELS, "", refuse, light)
    qtbot.addWidget(dialog)  # type: ignore[attr-defined]
    settle(dialog, qtbot)
    assert dialog._verdict.text() == "It is damaged. Download it again."
    assert dialog.plan is None


def test_without_models_there_is_a_sentence(light: Theme, planner: Planner, qtbot: object) -> None:
    dialog = ModelDialog({}, "", planner, light)
    qtbot.addWidget(dialog)  # type: ignore[attr-defined]
    assert "There is no model yet" in dialog._verdict.text()
    assert not dialog._open.isEnabled()
    assert planner.asked == []


def test_opening_names_the_path(dialog: ModelDialog) -> None:
    paths: list[object] = []
    dialog.open_asked.connect(paths.append)
    dialog._open.click()
    assert paths == [Path("/models/small")]


def test_the_legend_names_every_part(dialog: ModelDialog) -> None:
    texts = [label.text() for label in dialog._legend.findChildren(QLabel)]
    assert {"MLPs", "8.22 GiB", "Keys and values", "States of requests"} <= set(texts)


def test_cards_of_the_selector_are_sizes_that_are_understood() -> None:
    assert [parse_card(card).total_bytes >> 30 for card in CARDS if card] == [8, 12, 16, 24, 32]


# --------------------------------------------------------------------------------------- the bar


def planned(size: str, context: int | None = None) -> PlannedMemory:
    card = parse_card(size)
    return plan_memory(FILES, card, MemorySettings(context=context))


@pytest.mark.parametrize("size", ["8GB", "24GB", "32GB"])
def test_segments_fill_the_bar(light: Theme, size: str) -> None:
    shown = segments(planned(size), light)
    assert sum(segment.share for segment in shown) == pytest.approx(1.0)
    for one, following in itertools.pairwise(shown):
        assert following.start == pytest.approx(one.start + one.share)


def test_every_part_has_a_colour_of_its_own() -> None:
    assert set(PAINTS) == {*PARTS, FREE}
    for name in ("light", "dark"):
        theme = themes.choose(name, 100)  # type: ignore[arg-type]
        colours = [paint_colour(part, theme).name() for part in PAINTS]
        assert len(set(colours)) == len(colours)


@pytest.mark.parametrize("name", ["light", "dark"])
@pytest.mark.parametrize("context", [None, 200_000])
def test_the_bar_is_painted(name: themes.ThemeName, context: int | None, qtbot: object) -> None:
    theme = themes.choose(name, 100)
    bar = MemoryBar(theme)
    qtbot.addWidget(bar)  # type: ignore[attr-defined]
    bar.resize(600, 36)
    bar.show_plan(planned("24GB", context))
    bar.show()
    QApplication.processEvents()
    picture = bar.grab().toImage()
    mlp = next(s for s in segments(planned("24GB", context), theme) if s.title == "MLPs")
    middle = QPoint(int((mlp.start + mlp.share / 2) * 600), 18)
    assert picture.pixelColor(middle).name() == paint_colour("mlp", theme).name()
    at = bar.segment_at(middle)
    assert at is not None
    assert at.words == "MLPs: 8.22 GiB"


def test_the_bar_says_what_it_shows(light: Theme, qtbot: object) -> None:
    bar = MemoryBar(light)
    qtbot.addWidget(bar)  # type: ignore[attr-defined]
    bar.show_plan(planned("24GB"))
    words = bar.accessibleDescription()
    assert words.startswith("A 24 GB card: 23.52 GiB can be used. The largest context")
    assert "Head: 1.20 GiB" in words
    bar.show_plan(None)
    assert bar.accessibleDescription() == ""
