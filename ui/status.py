"""What surrounds the conversation: banner, status line, and the page of an empty chat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLabel,
    QProgressBar,
    QPushButton,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from hearth.app.usage_words import usage_words

if TYPE_CHECKING:
    from hearth.app.chats.records import Message
    from hearth.app.replies import Running
    from hearth.engine.protocol import ModelInfo
    from hearth.ui.theme import Theme


class Banner(QWidget):
    """One sentence with a way to put it away; further ones wait behind it."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setObjectName("banner")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._waiting: list[str] = []
        self.text = QLabel()
        self.text.setWordWrap(True)
        close = QToolButton()
        close.setText("✕")
        close.setAccessibleName("Close this notice")
        close.clicked.connect(self._next)
        self._row = QHBoxLayout(self)
        self._row.addWidget(self.text, 1)
        self._row.addWidget(close, 0, Qt.AlignmentFlag.AlignTop)
        self.set_theme(theme)
        self.hide()

    def set_theme(self, theme: Theme) -> None:
        px = theme.px
        self._row.setContentsMargins(px(2), px(1), px(1), px(1))

    def say(self, sentence: str) -> None:
        if sentence == self.text.text() or sentence in self._waiting:
            return
        self._waiting.append(sentence)
        if self.isHidden():
            self._next()

    def _next(self) -> None:
        if self._waiting:
            self.text.setText(self._waiting.pop(0))
            self.show()
        else:
            self.text.clear()
            self.hide()


class StatusLine(QWidget):
    """Model, context used, speed, and where the prompt came from."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setObjectName("statusLine")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._model, self._work, self._context = QLabel("No model is open"), QLabel(), QLabel()
        for label in (self._model, self._work, self._context):
            label.setMinimumWidth(1)  # a long text is cut rather than widening the window
        self._work.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._row = QHBoxLayout(self)
        self._row.addWidget(self._model)
        self._row.addWidget(self._work, 1)
        self._row.addWidget(self._context)
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        px = theme.px
        self._row.setContentsMargins(px(2), px(0.5), px(2), px(0.9))

    def say(self, text: str) -> None:
        self._work.setText(text)

    def show_model(self, info: ModelInfo) -> None:
        self._model.setText(f"{info.name}  ·  {info.device}")
        self._model.setToolTip(info.requantised or "All weights are as published.")
        self._work.setText("Ready")

    def show_context(self, used: int, size: int) -> None:
        self._context.setText(f"{used:,} of {size:,} tokens of context")

    def show_reading(self, done: int, total: int) -> None:
        if done < total:
            self._work.setText(f"Reading {done:,} of {total:,} tokens")

    def show_live(self, running: Running) -> None:
        """Tokens and speed of a reply while it is written."""
        if running.first_token_at is None:
            return
        rate = running.tokens_per_s
        words = [f"{len(running.token_ids):,} tokens"]
        if rate is not None:
            words.append(f"{rate:.0f} tok/s")
        if running.num_drafted:
            words.append(f"{running.num_drafted} drafted")
        self._work.setText("  ·  ".join(words))

    def show_finished(self, message: Message) -> None:
        words = usage_words(message.usage or {})[:4]  # drafts are said below the answer
        self._work.setText("  ·  ".join(words) or "Ready")


class Welcome(QWidget):
    """An empty chat: what can be done now, or how far the model is.

    Signals:
        open_asked(), starter_asked()
    """

    open_asked = Signal()
    starter_asked = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._title = QLabel("Hearth")
        self._title.setObjectName("heading")
        self._text = QLabel()
        self._text.setWordWrap(True)
        self._text.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self._bar = QProgressBar(textVisible=False)
        self._starter = QPushButton("Get the starter model")
        self._starter.setObjectName("primary")
        self._starter.clicked.connect(self.starter_asked)
        self._open = QPushButton("Open a model file …")
        self._open.clicked.connect(self.open_asked)
        self._layout = QVBoxLayout(self)
        self._buttons = QHBoxLayout()
        self._arrange()
        self.set_theme(theme)
        self.show_ready("")

    def _arrange(self) -> None:
        centre = Qt.AlignmentFlag.AlignHCenter
        self._layout.addStretch(2)
        self._layout.addWidget(self._title, 0, centre)
        self._layout.addWidget(self._text, 0, centre)
        self._layout.addWidget(self._bar, 0, centre)
        self._buttons.addStretch()
        self._buttons.addWidget(self._starter)
        self._buttons.addWidget(self._open)
        self._buttons.addStretch()
        self._layout.addLayout(self._buttons)
        self._layout.addStretch(3)

    def set_theme(self, theme: Theme) -> None:
        self._layout.setSpacing(theme.px(2))
        self._text.setFixedWidth(theme.px(60))
        self._bar.setFixedWidth(theme.px(45))
        self._bar.setFixedHeight(theme.px(0.8))

    def _show(self, text: str, *, bar: bool, buttons: bool) -> None:
        self._text.setText(text)
        self._bar.setVisible(bar)
        self._starter.setVisible(buttons)
        self._open.setVisible(buttons)

    def show_progress(self, stage: str, done: int, total: int) -> None:
        self._bar.setRange(0, 1000)
        self._bar.setValue(int(1000 * done / max(total, 1)))
        self._show(f"{stage} … you can write already.", bar=True, buttons=False)

    def show_ready(self, name: str) -> None:
        text = "Ask something, or paste a text and ask about it." if name else "Starting …"
        self._show(text, bar=False, buttons=False)

    def show_no_model(self) -> None:
        text = (
            "There is no model yet. The starter model is small (93 MB), runs on any machine and "
            "shows how everything works. Or open a GGUF file or a model folder that you have."
        )
        self._show(text, bar=False, buttons=True)
