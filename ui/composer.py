"""The composer: keeps the user's characters, makes chips of what an editor would change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QMimeData, Qt, QTimer, Signal
from PySide6.QtWidgets import (
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from hearth.app.documents import (
    attachment_from_file,
    attachment_from_text,
    belongs_in_attachment,
)
from hearth.engine.errors import HearthError

if TYPE_CHECKING:
    from PySide6.QtGui import QDragEnterEvent, QFocusEvent, QInputMethodEvent, QKeyEvent

    from hearth.app.chats.records import AttachmentPart
    from hearth.ui.theme import Theme

COUNT_AFTER_MS = 250
HEIGHT_SHARE = 0.4  # of the window: beyond that the editor scrolls


class Editor(QPlainTextEdit):
    """The text field. ``exact_text`` is what the user typed; ``toPlainText`` is not used anywhere,
    since it turns no-break spaces into spaces.

    Signals:
        send_asked(): Enter was pressed (not while an input method composes).
        long_text(str): text that belongs into an attachment was pasted or dropped.
        files_dropped(list): local paths.
    """

    send_asked = Signal()
    long_text = Signal(object)  # a str signal would pass through QString and lose characters
    files_dropped = Signal(list)
    edit_last_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._is_composing = False
        self.setPlaceholderText("Write a message …")
        self.setAccessibleName("Message")
        self.setTabChangesFocus(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self.document().setDocumentMargin(2)

    def exact_text(self) -> str:
        """The characters as they are. Only paragraph separators, which stand for the newlines, are
        translated; such separators in pasted text went into an attachment."""
        return self.document().toRawText().replace("\u2029", "\n")

    def keyPressEvent(self, event: QKeyEvent) -> None:
        is_enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if is_enter and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            if not self._is_composing:
                self.send_asked.emit()
            event.accept()
            return
        if is_enter:
            self.textCursor().insertBlock()  # Shift+Enter would insert U+2028
            return
        if event.key() == Qt.Key.Key_Up and self.document().isEmpty():
            self.edit_last_asked.emit()
            return
        super().keyPressEvent(event)

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._is_composing = bool(event.preeditString())
        super().inputMethodEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._is_composing = False
        super().focusOutEvent(event)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return source.hasText() or source.hasUrls()

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Pasting and dropping. Rich text is ignored: the plain text is the user's words."""
        paths = [Path(url.toLocalFile()) for url in source.urls() if url.isLocalFile()]
        if paths:
            self.files_dropped.emit(paths)
            return
        text = pasted_text(source)
        if belongs_in_attachment(text):
            self.long_text.emit(text)
        else:
            self.textCursor().insertText(text)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if event.mimeData().hasUrls() or event.mimeData().hasText():
            event.acceptProposedAction()

    def content_height(self) -> int:
        lines = self.document().size().height()  # in lines, for a plain text document
        return int(lines * self.fontMetrics().lineSpacing() + 2 * self.document().documentMargin())


def pasted_text(source: QMimeData) -> str:
    """Pasted characters as they came. QMimeData.text() drops a leading byte order mark and cuts at
    halves of surrogate pairs; the bytes do not."""
    raw = bytes(source.data("text/plain").data())
    try:
        return raw.decode("utf-8", errors="surrogatepass")
    except UnicodeDecodeError:
        return source.text()


class Composer(QFrame):
    """Editor, chips, token count, Send and Stop. Takes no decision about sending itself.

    Signals:
        send_asked(str, list): exact text, attachments as (AttachmentPart, bytes).
        stop_asked()
        notice(str): a sentence about something that could not be attached.
        text_changed(str): for the token count, after a pause.
        think_asked(bool): the switch for thinking was used.
    """

    send_asked = Signal(object, list)
    stop_asked = Signal()
    notice = Signal(str)
    text_changed = Signal(object)
    edit_last_asked = Signal()
    think_asked = Signal(bool)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("composer")
        self._theme = theme
        self._attachments: list[tuple[AttachmentPart, bytes]] = []
        self._is_running = False
        self._is_stopping = False
        self.editor = Editor()
        self._chips = QHBoxLayout()
        self._meter = QLabel()
        self._meter.setObjectName("quiet")
        self._attach = QToolButton()
        self._attach.setText("Attach …")
        self._attach.setToolTip("Attach a text file")
        self.think = QToolButton()
        self.think.setText("Think")
        self.think.setCheckable(True)
        self.think.setObjectName("think")
        self.think.setToolTip("Let the model think before it answers")
        self.think.setAccessibleName("Think before answering")
        self.think.hide()
        self._send = QPushButton("Send")
        self._send.setObjectName("primary")
        self._arrange()
        self._timer = QTimer(self, singleShot=True, interval=COUNT_AFTER_MS)
        self._timer.timeout.connect(lambda: self.text_changed.emit(self.whole_text()))
        self._connect()
        self._refresh()

    def _arrange(self) -> None:
        px = self._theme.px
        layout = QVBoxLayout(self)
        layout.setContentsMargins(px(1.5), px(1), px(1), px(1))
        layout.setSpacing(px(0.75))
        self._chips.setSpacing(px(0.75))
        layout.addLayout(self._chips)
        layout.addWidget(self.editor)
        row = QHBoxLayout()
        row.addWidget(self._attach)
        row.addWidget(self.think)
        row.addWidget(self._meter)
        row.addStretch()
        row.addWidget(self._send)
        layout.addLayout(row)

    def _connect(self) -> None:
        self.editor.send_asked.connect(self._on_enter)
        self.editor.long_text.connect(self.attach_text)
        self.editor.files_dropped.connect(self.attach_files)
        self.editor.edit_last_asked.connect(self.edit_last_asked)
        self.editor.textChanged.connect(self._on_changed)
        self._send.clicked.connect(self._on_button)
        self._attach.clicked.connect(self._choose_files)
        self.think.clicked.connect(self.think_asked)

    # ------------------------------------------------------------------------------------- content

    def whole_text(self) -> str:
        """Everything that would be sent, attachments included (for counting)."""
        texts = [part.text for part, _ in self._attachments]
        return "\n\n".join([*texts, self.editor.exact_text()])

    @property
    def is_empty(self) -> bool:
        return not self._attachments and not self.editor.exact_text()

    def draft(self) -> tuple[str, list[tuple[AttachmentPart, bytes]]]:
        """Text and attachments, to be put back by ``set_draft``."""
        return self.editor.exact_text(), list(self._attachments)

    def set_draft(self, text: str, attachments: list[tuple[AttachmentPart, bytes]]) -> None:
        self.editor.clear()
        self.editor.textCursor().insertText(text)
        self._attachments = list(attachments)
        self._show_chips()

    def clear(self) -> None:
        self.set_draft("", [])

    def attach_text(self, text: str) -> None:
        """A long or unusual paste, kept to the character."""
        number = 1 + sum(part.name.startswith("Pasted text") for part, _ in self._attachments)
        self._attachments.append(attachment_from_text(f"Pasted text {number}", text))
        self._show_chips()

    def attach_files(self, paths: list[Path]) -> None:
        for path in paths:
            try:
                self._attachments.append(attachment_from_file(path))
            except HearthError as error:
                self.notice.emit(error.sentence)
        self._show_chips()

    def _choose_files(self) -> None:
        names, _ = QFileDialog.getOpenFileNames(self, "Attach text files")
        self.attach_files([Path(name) for name in names])

    def _show_chips(self) -> None:
        while self._chips.count():
            item = self._chips.takeAt(0)
            widget = item.widget() if item is not None else None
            if widget is not None:
                widget.deleteLater()
        for place, (part, _) in enumerate(self._attachments):
            chip = QPushButton(f"{part.name} · {part.num_bytes:,} bytes  ✕")
            chip.setToolTip(f"{part.encoding}; click to remove")
            chip.clicked.connect(lambda _=False, index=place: self._remove(index))
            self._chips.addWidget(chip)
        self._chips.addStretch()
        self._on_changed()

    def _remove(self, index: int) -> None:
        del self._attachments[index]
        self._show_chips()

    # ------------------------------------------------------------------------------------- sending

    def set_running(self, *, running: bool, stopping: bool = False) -> None:
        """While a reply is written the button stops it; it changes when the engine has stopped."""
        self._is_running, self._is_stopping = running, stopping
        self._refresh()

    def stop_timers(self) -> None:
        """Before the engine closes: nothing is counted after it."""
        self._timer.stop()

    def set_thinking(self, *, is_on: bool | None) -> None:
        """The state of the switch; None for a model that has none."""
        self.think.setVisible(is_on is not None)
        self.think.setChecked(is_on is True)

    def set_meter(self, text: str) -> None:
        self._meter.setText(text)

    def _on_enter(self) -> None:
        if not self._is_running and not self.is_empty:
            self.send_asked.emit(self.editor.exact_text(), list(self._attachments))

    def _on_button(self) -> None:
        if self._is_running:
            self.stop_asked.emit()
        else:
            self._on_enter()

    def _refresh(self) -> None:
        if self._is_running:
            self._send.setText("Stopping …" if self._is_stopping else "Stop")
            self._send.setEnabled(not self._is_stopping)
        else:
            self._send.setText("Send")
            self._send.setEnabled(not self.is_empty)
        self._send.setAccessibleName(self._send.text())

    def _on_changed(self) -> None:
        self._refresh()
        self._timer.start()
        self.fit()

    def fit(self) -> None:
        """As high as the text, up to a share of the window."""
        line = self.editor.fontMetrics().lineSpacing()
        window = self.window().height() if self.window() is not None else 800
        most = max(int(window * HEIGHT_SHARE), 3 * line)
        self.editor.setFixedHeight(min(max(self.editor.content_height() + 4, 2 * line), most))

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self.fit()
