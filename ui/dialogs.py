"""Small dialogs: settings, the prompt exactly as the model got it, an answer as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QDoubleSpinBox,
    QFormLayout,
    QLabel,
    QPlainTextEdit,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearth.app.settings import Settings
    from hearth.ui.theme import Theme

THEMES = {"auto": "As the system", "light": "Light", "dark": "Dark"}
THINKING = {"auto": "As the model does by itself", "on": "On", "off": "Off"}
EFFORTS = {"auto": "As the model does by itself", "low": "Low", "medium": "Medium",
           "high": "High", "xhigh": "Very high"}  # fmt: skip
DRAFTING = {"auto": "Auto", "off": "Off", "lookup": "Lookup", "mtp": "MTP, where a model has it"}


class SettingsDialog(QDialog):
    """Edits a copy of the settings; ``apply_to`` writes what was chosen."""

    def __init__(self, settings: Settings, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Settings")
        form = QFormLayout()
        form.setSpacing(theme.px(1))
        look, sampling = settings.appearance, settings.sampling
        self._theme_name = _choice(THEMES, look.theme)
        self._zoom = _whole(look.zoom_percent, 75, 300, suffix=" %", step=25)
        self._temperature = _real(sampling.temperature, 0.0, 2.0, 0.05)
        self._top_p = _real(sampling.top_p, 0.01, 1.0, 0.01)
        self._top_k = _whole(sampling.top_k, 0, 1000, special="off")
        self._min_p = _real(sampling.min_p, 0.0, 0.99, 0.01)
        self._repetition = _real(sampling.repetition_penalty, 0.5, 2.0, 0.05)
        self._seed = _whole(-1 if sampling.seed is None else sampling.seed, -1, 2**31 - 1,
                            special="new each time")  # fmt: skip
        self._max_tokens = _whole(sampling.max_tokens, 0, 1_000_000, special="no limit")
        self._max_thinking = _whole(settings.thinking.max_tokens, 0, 1_000_000,
                                    special="no limit")  # fmt: skip
        self._thinking = _choice(THINKING, settings.thinking.mode)
        self._effort = _choice(EFFORTS, settings.thinking.effort)
        self._drafting = _choice(DRAFTING, settings.speed.drafting)
        self._context = _whole(settings.model.context_length or 0, 0, 1_000_000,
                               special="as much as fits", step=1024)  # fmt: skip
        rows: list[tuple[str, QWidget]] = [
            ("Theme", self._theme_name),
            ("Zoom", self._zoom),
            ("Temperature (0 is always the likeliest)", self._temperature),
            ("Top-p", self._top_p),
            ("Top-k", self._top_k),
            ("Min-p", self._min_p),
            ("Repetition penalty", self._repetition),
            ("Seed", self._seed),
            ("Longest answer, tokens", self._max_tokens),
            ("Thinking before the answer (models that can)", self._thinking),
            ("Effort of thinking (another one reads the chat again)", self._effort),
            ("Longest thinking, tokens (besides the answer's)", self._max_thinking),
            ("Drafting (speed only, never the words)", self._drafting),
            ("Context, tokens (when a model is opened)", self._context),
        ]
        for text, widget in rows:
            form.addRow(text, widget)
            widget.setAccessibleName(text)
        buttons = QDialogButtonBox(
            QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel
        )
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(*(theme.px(2.5),) * 4)
        layout.setSpacing(theme.px(2))
        layout.addLayout(form)
        layout.addWidget(buttons)

    def apply_to(self, settings: Settings) -> None:
        settings.appearance.theme = self._theme_name.currentData()
        settings.appearance.zoom_percent = self._zoom.value()
        sampling = settings.sampling
        sampling.temperature = round(self._temperature.value(), 4)
        sampling.top_p = round(self._top_p.value(), 4)
        sampling.top_k = self._top_k.value()
        sampling.min_p = round(self._min_p.value(), 4)
        sampling.repetition_penalty = round(self._repetition.value(), 4)
        sampling.seed = None if self._seed.value() < 0 else self._seed.value()
        sampling.max_tokens = self._max_tokens.value()
        settings.thinking.mode = self._thinking.currentData()
        settings.thinking.effort = self._effort.currentData()
        settings.thinking.max_tokens = self._max_thinking.value()
        settings.speed.drafting = self._drafting.currentData()
        settings.model.context_length = self._context.value() or None


def _choice(texts: dict[str, str], current: str) -> QComboBox:
    box = QComboBox()
    for value, text in texts.items():
        box.addItem(text, value)
    box.setCurrentIndex(box.findData(current))
    return box


def _whole(
    value: int, low: int, high: int, *, suffix: str = "", special: str = "", step: int = 1
) -> QSpinBox:
    box = QSpinBox(minimum=low, maximum=high, suffix=suffix, singleStep=step)
    box.setSpecialValueText(special)
    box.setValue(value)
    return box


def _real(value: float, low: float, high: float, step: float) -> QDoubleSpinBox:
    box = QDoubleSpinBox(minimum=low, maximum=high, singleStep=step, decimals=2)
    box.setValue(value)
    return box


class TextDialog(QDialog):
    """A read-only text with a sentence above it, selectable and readable by screen readers."""

    def __init__(
        self, title: str, intro: str, text: str, theme: Theme, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle(title)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(theme.px(100), theme.px(75))
        head = QLabel(intro)
        head.setWordWrap(True)
        self.body = QPlainTextEdit(text, readOnly=True)
        self.body.setFont(theme.font(mono=True))
        self.body.setAccessibleName(title)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        buttons.rejected.connect(self.reject)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(*(theme.px(2),) * 4)
        layout.setSpacing(theme.px(1.5))
        for widget in (head, self.body, buttons):
            layout.addWidget(widget)


def prompt_text(pieces: Sequence[tuple[int, str]]) -> str:
    """Token ids and texts, one token a line: exactly what the model was given."""
    return "\n".join(f"{token:>7}  {text!r}" for token, text in pieces)
