"""The model dialog: which models are at hand, and what fits on this machine or on a given card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from hearth.app.memory_words import card_words, detail_words, fit_words, requantised_words
from hearth.engine.memory import KvFormat, MemoryWish
from hearth.ui.jobs import Job
from hearth.ui.memory_bar import MemoryBar, MemoryLegend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hearth.engine.memory import PlannedMemory
    from hearth.ui.theme import Theme

    MakePlan = Callable[[Path, str, MemoryWish], PlannedMemory]

CARDS = {"": "This machine"} | {f"{size}GB": f"A {size} GB card" for size in (8, 12, 16, 24, 32)}
MAX_CONTEXT = 10_000_000


class ModelDialog(QDialog):
    """Plans are made beside the window; the newest wish waits for the one that is being made.

    Signals:
        open_asked(object): the path of the model that the user wants to talk to.
        planned(): the figures or the sentence in view are those of the newest wish.
    """

    open_asked = Signal(object)
    planned = Signal()

    def __init__(
        self,
        models: Mapping[str, str],
        current: str,
        make_plan: MakePlan,
        theme: Theme,
        parent: QWidget | None = None,
    ) -> None:
        """``models``: names by path. ``current``: the path that is chosen first."""
        super().__init__(parent)
        self._make_plan = make_plan
        self._theme = theme
        self._job: Job | None = None
        self._is_stale = False
        self._kv: KvFormat | None = None  # None: what the device does by itself
        self.plan: PlannedMemory | None = None
        self._build(models, current)
        self._arrange()
        self._connect()
        self._ask()

    # ------------------------------------------------------------------------------------ building

    def _build(self, models: Mapping[str, str], current: str) -> None:
        self.setWindowTitle("Models and memory")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._models, self._cards, self._formats = QComboBox(), QComboBox(), QComboBox()
        for path, name in models.items():
            self._models.addItem(name, path)
        self._models.setCurrentIndex(max(self._models.findData(current), 0))
        for card, title in CARDS.items():
            self._cards.addItem(title, card)
        self._context = QSpinBox(minimum=0, maximum=MAX_CONTEXT, singleStep=1024)
        self._context.setSpecialValueText("as much as fits")
        self._context.setGroupSeparatorShown(True)
        self._card_line, self._note, self._verdict = QLabel(), QLabel(), QLabel()
        self._fact_names, self._fact_values = QLabel(), QLabel()
        self._fact_names.setObjectName("factNames")
        for label in (self._note, self._verdict):
            label.setWordWrap(True)
        self._note.setObjectName("quiet")
        self._bar, self._legend = MemoryBar(self._theme), MemoryLegend(self._theme)
        self._open = QPushButton("Open this model")
        self._open.setObjectName("primary")
        self._close = QPushButton("Close")

    def _arrange(self) -> None:
        px = self._theme.px
        form = QFormLayout()
        form.setSpacing(px(1))
        choices = {
            "Model": self._models,
            "Memory": self._cards,
            "Keys and values": self._formats,
            "Context, tokens": self._context,
        }
        for name, widget in choices.items():
            form.addRow(name, widget)
            widget.setAccessibleName(name)
        facts = QHBoxLayout()
        facts.setSpacing(px(2))
        facts.addWidget(self._fact_names)
        facts.addWidget(self._fact_values, 1)
        buttons = QHBoxLayout()
        buttons.addStretch()
        buttons.addWidget(self._close)
        buttons.addWidget(self._open)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(*(px(2.5),) * 4)
        layout.setSpacing(px(1.5))
        layout.addLayout(form)
        for shown in (self._card_line, self._bar, self._legend):
            layout.addWidget(shown)
        layout.addLayout(facts)
        layout.addWidget(self._note)
        layout.addWidget(self._verdict)
        layout.addStretch()
        layout.addLayout(buttons)
        self.setMinimumWidth(px(80))

    def _connect(self) -> None:
        self._models.currentIndexChanged.connect(self._ask)
        self._cards.currentIndexChanged.connect(self._card_changed)
        self._formats.activated.connect(self._format_chosen)
        self._context.valueChanged.connect(self._ask)
        self._open.clicked.connect(self._open_chosen)
        self._close.clicked.connect(self.reject)

    # ------------------------------------------------------------------------------------- choices

    def choose(self, *, card: str | None = None, kv: KvFormat | None = None) -> None:
        """As the user would in the selectors."""
        if card is not None:
            self._cards.setCurrentIndex(self._cards.findData(card))
        if kv is not None:
            self._kv = kv
            self._ask()

    def _card_changed(self) -> None:
        """The processor knows one format, a card others: what this machine has is not known yet."""
        if not self._cards.currentData() or self._kv is KvFormat.FLOAT32:
            self._kv = None
        self._ask()

    def _format_chosen(self) -> None:
        self._kv = KvFormat(self._formats.currentData())
        self._ask()

    def _open_chosen(self) -> None:
        self.open_asked.emit(Path(self._models.currentData()))
        self.accept()

    # --------------------------------------------------------------------------------------- plans

    def _ask(self) -> None:
        if self._models.count() == 0:
            self._say("There is no model yet. Get the starter model, or open a model file.")
            self._open.setEnabled(False)
            return
        if self._job is not None:
            self._is_stale = True
            return
        self._is_stale = False
        path, card = Path(self._models.currentData()), str(self._cards.currentData())
        wish = MemoryWish(context=self._context.value() or None, kv=self._kv)
        self._job = Job(lambda *_: self._make_plan(path, card, wish))
        self._job.succeeded.connect(self._show)
        self._job.failed.connect(self._fail)
        self._job.start()

    def _finished(self) -> bool:
        """Whether the answer that has come is to the newest wish; else that one is asked now."""
        self._job = None
        if self._is_stale:
            self._ask()
            return False
        return True

    def _fail(self, sentence: str) -> None:
        if self._finished():
            self._say(sentence)
            self.planned.emit()

    def _say(self, sentence: str) -> None:
        """Instead of figures."""
        self.plan = None
        self._bar.show_plan(None)
        self._legend.show_plan(None)
        for label in (self._card_line, self._fact_names, self._fact_values, self._note):
            label.clear()
        self._show_verdict(sentence, is_refusal=True)

    def _show(self, plan: PlannedMemory) -> None:
        if not self._finished():
            return
        self.plan = plan
        self._card_line.setText(card_words(plan))
        self._bar.show_plan(plan)
        self._legend.show_plan(plan)
        names, values = zip(*detail_words(plan), strict=True)
        self._fact_names.setText("\n".join(names))
        self._fact_values.setText("\n".join(values))
        self._note.setText(requantised_words(plan))
        self._note.setVisible(bool(self._note.text()))
        self._show_formats(plan)
        self._show_verdict(fit_words(plan), is_refusal=plan.refusal is not None)
        self.planned.emit()

    def _show_formats(self, plan: PlannedMemory) -> None:
        self._formats.clear()
        for choice in plan.kv_choices:
            words = f"{choice.format.value} — {choice.largest_context:,} tokens fit"
            self._formats.addItem(words, choice.format.value)
        self._formats.setCurrentIndex(self._formats.findData(plan.settings.kv.value))
        self._formats.setEnabled(self._formats.count() > 1)

    def _show_verdict(self, sentence: str, *, is_refusal: bool) -> None:
        self._verdict.setText(sentence)
        self._verdict.setObjectName("refusal" if is_refusal else "verdict")
        self._verdict.setMargin(self._theme.px(1) if is_refusal else 0)
        self._verdict.style().unpolish(self._verdict)
        self._verdict.style().polish(self._verdict)
