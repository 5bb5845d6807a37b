"""The conversation: a virtualised list of messages with anchored scrolling and a follow mode.

Only messages in or near the viewport have a widget. Others have a height: measured once, or
estimated. When a height above the reader changes, the scroll value moves with it, so that the text
under the reader's eyes stays where it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, Qt, QUrl, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPalette, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QPushButton, QWidget

from hearth.ui.chat_view.message_view import MessageView
from hearth.ui.theme import COLUMN_CHARS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearth.ui.chat_view.model import ShownMessage
    from hearth.ui.theme import Theme

KEPT_WIDGETS = 40
CHARS_PER_LINE, LINE_STEPS, FRAME_STEPS, REASONING_STEPS = (
    80,
    2.6,
    9,
    4,
)  # for the estimate of an unseen height
WHEEL_STEPS = 9


class ChatView(QAbstractScrollArea):
    """Shows messages; knows neither store nor engine.

    Signals:
        asked(str, str): a message's id and what the user wants of it.
        link_clicked(QUrl)
    """

    asked = Signal(str, str)
    link_clicked = Signal(QUrl)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._messages: list[ShownMessage] = []
        self._heights: list[int] = []
        self._tops: list[int] = [0]
        self._widgets: OrderedDict[str, MessageView] = OrderedDict()
        self._opened: set[str] = set()  # messages whose reasoning is open
        self._is_following = True
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Conversation")
        self.viewport().setObjectName("conversation")
        self.viewport().setBackgroundRole(QPalette.ColorRole.Window)
        self._jump = QPushButton("Jump to latest ↓", self.viewport())
        self._jump.clicked.connect(self.jump_to_latest)
        self._jump.hide()
        self.verticalScrollBar().valueChanged.connect(self._scrolled)
        self.verticalScrollBar().sliderPressed.connect(self._stop_following)
        self.viewport().installEventFilter(self)

    # ------------------------------------------------------------------------------------- content

    def set_messages(self, messages: Sequence[ShownMessage], *, at_end: bool = True) -> None:
        """Show another branch or chat. Widgets of messages that stay are kept."""
        for shown in messages:
            widget = self._widgets.get(shown.id)
            if widget is not None and widget.message != shown:
                self._drop(shown.id)
        wanted = {shown.id for shown in messages}
        for message_id in [known for known in self._widgets if known not in wanted]:
            self._drop(message_id)
        self._messages = list(messages)
        self._heights = [self._known_height(shown) for shown in messages]
        self._is_following = at_end
        self._arrange()
        if at_end:
            self.jump_to_latest()

    def add_message(self, shown: ShownMessage) -> None:
        self._messages.append(shown)
        self._heights.append(self._estimate(shown))
        self._arrange()

    def append_text(self, message_id: str, text: str, reasoning: str = "") -> None:
        """More of a streaming reply; costs nothing while it is out of sight."""
        place = self._place(message_id)
        if place is None:
            return
        old = self._messages[place]
        self._messages[place] = replace(
            old, text=old.text + text, reasoning=old.reasoning + reasoning
        )
        widget = self._widgets.get(message_id)
        if widget is not None:
            widget.append(text, reasoning)

    def show_thinking(self, message_id: str, seconds: float) -> None:
        """How long a streaming reply has been thinking."""
        widget = self._widgets.get(message_id)
        if widget is not None:
            widget.show_thinking(seconds)

    def toggle_reasoning(self, message_id: str) -> None:
        """Open or close the reasoning of a message in sight."""
        widget = self._widgets.get(message_id)
        if widget is not None and widget.reasoning is not None:
            widget.reasoning.set_open(is_open=not widget.reasoning.is_open)

    def _reasoning_toggled(self, message_id: str, is_open: bool) -> None:
        """The line that was clicked stays in its place, unless the reader follows a reply."""
        (self._opened.add if is_open else self._opened.discard)(message_id)
        place = self._place(message_id)
        if place is None:
            return
        if not self._messages[place].is_streaming:
            self._is_following = False
        self._height_changed()
        bar = self.verticalScrollBar()
        self._is_following = self._is_following or bar.value() >= bar.maximum()
        self._place_jump()

    def finish_message(self, shown: ShownMessage) -> None:
        place = self._place(shown.id)
        if place is None:
            return
        self._messages[place] = shown
        widget = self._widgets.get(shown.id)
        if widget is not None:
            widget.finish(shown)

    def _place(self, message_id: str) -> int | None:
        for place in range(len(self._messages) - 1, -1, -1):
            if self._messages[place].id == message_id:
                return place
        return None

    @property
    def messages(self) -> Sequence[ShownMessage]:
        return self._messages

    @property
    def num_live_widgets(self) -> int:
        return len(self._widgets)

    def widget_of(self, message_id: str) -> MessageView | None:
        return self._widgets.get(message_id)

    # ------------------------------------------------------------------------------------ following

    @property
    def is_following(self) -> bool:
        return self._is_following

    def jump_to_latest(self) -> None:
        self._is_following = True
        self.verticalScrollBar().setValue(self.verticalScrollBar().maximum())
        self._show_live()

    def follow(self) -> None:
        """On when the user sends."""
        self._is_following = True

    def _stop_following(self) -> None:
        self._is_following = False
        self._place_jump()

    def scroll_to(self, message_id: str) -> None:
        """Bring a message to the top of the view."""
        place = self._place(message_id)
        if place is not None:
            self._stop_following()
            self.verticalScrollBar().setValue(self._tops[place])
            self._show_live()
            self.verticalScrollBar().setValue(self._tops[place])

    def scroll_into_sight(self, message_id: str) -> None:
        """Nothing moves when its top can be seen already."""
        place = self._place(message_id)
        if place is None:
            return
        top = self.verticalScrollBar().value()
        if not top <= self._tops[place] < top + self.viewport().height():
            self.scroll_to(message_id)

    def wheelEvent(self, event: QWheelEvent) -> None:
        delta = event.pixelDelta().y() or event.angleDelta().y() / 120 * self._theme.px(WHEEL_STEPS)
        if delta > 0:
            self._stop_following()
        bar = self.verticalScrollBar()
        bar.setValue(int(bar.value() - delta))
        if bar.value() >= bar.maximum():
            self._is_following = True
            self._place_jump()
        event.accept()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        bar = self.verticalScrollBar()
        page = int(self.viewport().height() * 0.9)
        moves = {
            Qt.Key.Key_PageUp: -page,
            Qt.Key.Key_PageDown: page,
            Qt.Key.Key_Up: -self._theme.px(6),
            Qt.Key.Key_Down: self._theme.px(6),
        }
        if event.key() == Qt.Key.Key_End:
            self.jump_to_latest()
        elif event.key() == Qt.Key.Key_Home:
            self._stop_following()
            bar.setValue(0)
        elif event.key() in moves:
            move = moves[Qt.Key(event.key())]
            if move < 0:
                self._stop_following()
            bar.setValue(bar.value() + move)
        else:
            super().keyPressEvent(event)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """A press inside the text (selecting, clicking) ends following."""
        if isinstance(event, QMouseEvent) and event.type() == QEvent.Type.MouseButtonPress:
            at_end = self.verticalScrollBar().value() >= self.verticalScrollBar().maximum()
            if not at_end:
                self._stop_following()
        return super().eventFilter(watched, event)

    # --------------------------------------------------------------------------------------- layout

    def _column(self) -> tuple[int, int]:
        """Left edge and width of the column of text."""
        available = self.viewport().width() - 2 * self._theme.px(3)
        char = self.fontMetrics().averageCharWidth()
        width = max(min(available, COLUMN_CHARS * char), self._theme.px(20))
        return (self.viewport().width() - width) // 2, width

    def _estimate(self, shown: ShownMessage) -> int:
        lines = sum(1 + len(line) // CHARS_PER_LINE for line in shown.text.split("\n"))
        frame = FRAME_STEPS + (REASONING_STEPS if shown.reasoning else 0)
        return self._theme.px(frame) + round(lines * self._theme.px(LINE_STEPS))

    def _known_height(self, shown: ShownMessage) -> int:
        widget = self._widgets.get(shown.id)
        return widget.height() if widget is not None else self._estimate(shown)

    def _arrange(self) -> None:
        """Recompute tops and the scroll range, then the widgets in sight."""
        self._sum_heights()
        self._show_live()

    def _sum_heights(self) -> None:
        self._tops = [self._theme.px(2)]
        for height in self._heights:
            self._tops.append(self._tops[-1] + height)
        total = self._tops[-1] + self._theme.px(2)
        bar = self.verticalScrollBar()
        bar.setPageStep(self.viewport().height())
        bar.setSingleStep(self._theme.px(3))
        bar.setRange(0, max(0, total - self.viewport().height()))

    def _visible_range(self) -> range:
        """Indexes of messages in the viewport or one viewport around it."""
        top = self.verticalScrollBar().value()
        height = self.viewport().height()
        first = max(bisect_right(self._tops, top - height) - 1, 0)
        last = bisect_right(self._tops, top + 2 * height)
        return range(first, min(last, len(self._messages)))

    def _show_live(self) -> None:
        """Make, measure and place the widgets near the viewport, keeping the reader's anchor."""
        if not self._messages:
            self._hide_others(set())
            return
        for _ in range(4):  # measuring moves things; it settles in one or two rounds
            anchor, offset = self._anchor()
            changed = self._measure(self._visible_range())
            if not changed:
                break
            self._sum_heights()
            self._restore(anchor, offset)
        left, width = self._column()
        scroll = self.verticalScrollBar().value()
        live = set()
        for place in self._visible_range():
            widget = self._widgets[self._messages[place].id]
            live.add(widget.message.id)
            widget.setGeometry(left, self._tops[place] - scroll, width, self._heights[place])
            widget.show()
        self._hide_others(live)
        self._place_jump()

    def _measure(self, places: range) -> bool:
        _, width = self._column()
        changed = False
        for place in places:
            shown = self._messages[place]
            widget = self._widgets.get(shown.id) or self._make(shown)
            self._widgets.move_to_end(shown.id)
            height = widget.layout_for(width)
            if height != self._heights[place]:
                self._heights[place] = height
                changed = True
        return changed

    def _anchor(self) -> tuple[int, int]:
        """The message at the top of the viewport and how far into it the view begins."""
        top = self.verticalScrollBar().value()
        place = min(max(bisect_right(self._tops, top) - 1, 0), len(self._messages) - 1)
        return place, top - self._tops[place]

    def _restore(self, anchor: int, offset: int) -> None:
        bar = self.verticalScrollBar()
        wanted = bar.maximum() if self._is_following else self._tops[anchor] + offset
        bar.blockSignals(True)
        bar.setValue(wanted)
        bar.blockSignals(False)

    def _make(self, shown: ShownMessage) -> MessageView:
        widget = MessageView(shown, self._theme, self.viewport())
        widget.asked.connect(self.asked)
        widget.link_clicked.connect(self.link_clicked)
        if widget.reasoning is not None and shown.id in self._opened:
            widget.reasoning.set_open(is_open=True)
        widget.height_changed.connect(self._height_changed)
        widget.reasoning_toggled.connect(self._reasoning_toggled)
        self._widgets[shown.id] = widget
        return widget

    def _height_changed(self) -> None:
        self._show_live()
        if self._is_following:
            self.verticalScrollBar().setValue(self.verticalScrollBar().maximum())

    def _hide_others(self, live: set[str]) -> None:
        for message_id, widget in list(self._widgets.items()):
            if message_id not in live:
                widget.hide()
        for message_id in list(self._widgets):
            if len(self._widgets) <= KEPT_WIDGETS:
                break
            if message_id not in live and not self._widgets[message_id].message.is_streaming:
                self._drop(message_id)

    def _drop(self, message_id: str) -> None:
        widget = self._widgets.pop(message_id)
        widget.hide()
        widget.deleteLater()

    def _scrolled(self) -> None:
        self._show_live()

    def _place_jump(self) -> None:
        at_end = self.verticalScrollBar().value() >= self.verticalScrollBar().maximum() - 4
        self._jump.setVisible(not at_end and not self._is_following)
        size = self._jump.sizeHint()
        x = (self.viewport().width() - size.width()) // 2
        y = self.viewport().height() - size.height() - self._theme.px(1)
        self._jump.setGeometry(x, y, size.width(), size.height())
        self._jump.raise_()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._arrange_keeping_anchor()

    def _arrange_keeping_anchor(self) -> None:
        if not self._messages:
            return
        anchor, offset = self._anchor()
        self._sum_heights()
        self._restore(anchor, offset)
        self._show_live()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        """The widgets are placed by ``_show_live``; nothing is scrolled by Qt."""

    def set_theme(self, theme: Theme) -> None:
        """Build the live messages anew in other colours or sizes."""
        self._theme = theme
        for message_id in list(self._widgets):
            self._drop(message_id)
        self._heights = [self._estimate(shown) for shown in self._messages]
        self._arrange()
