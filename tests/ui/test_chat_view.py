"""The conversation view: virtualised, anchored, following; user text literal; locked down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QGuiApplication, QWheelEvent
from PySide6.QtWidgets import QApplication

from hearth.ui import clipboard
from hearth.ui import theme as themes
from hearth.ui.bench import STEP_CHARS, answer
from hearth.ui.chat_view.message_view import MessageView
from hearth.ui.chat_view.model import ShownMessage
from hearth.ui.chat_view.panes import CodePane, TextPane
from hearth.ui.chat_view.view import KEPT_WIDGETS, ChatView

if TYPE_CHECKING:
    from hearth.ui.theme import Theme


@pytest.fixture
def view(light: Theme, qtbot: object) -> ChatView:
    result = ChatView(light)
    qtbot.addWidget(result)  # type: ignore[attr-defined]
    result.resize(900, 600)
    result.show()
    return result


def conversation(count: int) -> list[ShownMessage]:
    return [
        ShownMessage(
            str(n), "user" if n % 2 == 0 else "assistant", f"Message {n}\n\n" + "word " * (n % 90)
        )
        for n in range(count)
    ]


def wheel(view: ChatView, delta: int) -> None:
    place = QPointF(50, 50)
    event = QWheelEvent(
        place, place, QPoint(), QPoint(0, delta), Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(view.viewport(), event)


def test_a_thousand_messages_need_few_widgets(view: ChatView) -> None:
    view.set_messages(conversation(1000))
    for value in range(0, view.verticalScrollBar().maximum(), 5000):
        view.verticalScrollBar().setValue(value)
    assert view.num_live_widgets <= KEPT_WIDGETS


def test_opening_shows_the_end(view: ChatView) -> None:
    view.set_messages(conversation(200))
    assert view.verticalScrollBar().value() == view.verticalScrollBar().maximum()
    assert view.widget_of("199") is not None


def test_following_ends_with_wheel_up_and_comes_back(view: ChatView) -> None:
    view.set_messages([*conversation(40), ShownMessage("r", "assistant", "", is_streaming=True)])
    wheel(view, 240)
    assert not view.is_following
    before = view.verticalScrollBar().value()
    for _ in range(20):
        view.append_text("r", "more text\n\n")
    assert view.verticalScrollBar().value() == before
    view.jump_to_latest()
    view.append_text("r", "the end\n\n" * 10)
    assert view.is_following
    assert view.verticalScrollBar().value() == view.verticalScrollBar().maximum()


def test_the_readers_text_stays_when_heights_above_change(view: ChatView) -> None:
    view.set_messages(conversation(300))
    view.scroll_to("150")
    widget = view.widget_of("150")
    assert widget is not None
    top = widget.y()
    view.resize(900, 640)
    QApplication.processEvents()
    assert abs(widget.y() - top) <= 1


def test_a_streamed_answer_is_the_source(view: ChatView) -> None:
    text = answer()
    view.set_messages([ShownMessage("r", "assistant", "", is_streaming=True)])
    for start in range(0, len(text), STEP_CHARS):
        view.append_text("r", text[start : start + STEP_CHARS])
    view.finish_message(ShownMessage("r", "assistant", text))
    assert view.messages[0].text == text
    streamed = view.widget_of("r")
    assert streamed is not None
    whole = MessageView(ShownMessage("w", "assistant", text), view._theme)
    assert plain(streamed) == plain(whole)
    whole.deleteLater()


def plain(widget: MessageView) -> list[str]:
    return [
        pane.source if isinstance(pane, CodePane) else pane.document().toPlainText()
        for pane in widget._panes
    ]


def test_user_text_is_literal(light: Theme, qtbot: object) -> None:
    text = "<b>not bold</b> _x_ **y**\n    indented\n# no heading"
    widget = MessageView(ShownMessage("u", "user", text), light)
    qtbot.addWidget(widget)  # type: ignore[attr-defined]
    assert plain(widget) == [text]


def test_model_output_loads_and_opens_nothing(light: Theme, qtbot: object) -> None:
    picture = "![x](http://example.org/a.png) <img src='file:///etc/passwd'>"
    source = picture + " [link](javascript:alert(1))\n"
    widget = MessageView(ShownMessage("a", "assistant", source), light)
    qtbot.addWidget(widget)  # type: ignore[attr-defined]
    [pane] = widget._panes
    assert isinstance(pane, TextPane)
    assert pane.loadResource(2, QUrl("http://example.org/a.png")) is None
    assert not pane.openLinks()
    assert "<img" in pane.document().toPlainText()


def test_copy_gives_markdown_html_and_text(light: Theme, qtbot: object) -> None:
    source = "# Title\n\n- *one*\n"
    widget = MessageView(ShownMessage("a", "assistant", source), light)
    qtbot.addWidget(widget)  # type: ignore[attr-defined]
    widget.copy()
    data = QGuiApplication.clipboard().mimeData()
    assert data.text() == source
    assert bytes(data.data("text/markdown").data()).decode() == source
    assert "<h1>Title</h1>" in data.html()
    clipboard.release()
    assert QGuiApplication.clipboard().text() == source


def test_code_is_copied_exactly(light: Theme, qtbot: object) -> None:
    source = "```py\nif x:\n\tprint('  a')\n```\n"
    widget = MessageView(ShownMessage("a", "assistant", source), light)
    qtbot.addWidget(widget)  # type: ignore[attr-defined]
    [pane] = widget._panes
    assert isinstance(pane, CodePane)
    assert pane.source == "if x:\n\tprint('  a')"


def test_right_to_left_paragraphs(light: Theme, qtbot: object) -> None:
    widget = MessageView(ShownMessage("a", "assistant", "hello\n\nمرحبا\n"), light)
    qtbot.addWidget(widget)  # type: ignore[attr-defined]
    [pane] = widget._panes
    assert isinstance(pane, TextPane)
    last = pane.document().lastBlock()
    assert last.blockFormat().layoutDirection() == Qt.LayoutDirection.RightToLeft


@pytest.mark.parametrize("colours", [themes.LIGHT, themes.DARK])
@pytest.mark.parametrize(
    ("text", "ground"),
    [
        ("text", "window"), ("text", "sidebar"), ("text", "own_bubble"), ("text", "raised"),
        ("text", "selected"), ("quiet_text", "window"), ("quiet_text", "sidebar"),
        ("quiet_text", "code_header"), ("accent", "window"), ("on_accent", "accent"),
        ("warning_text", "warning_ground"), ("keyword", "code_ground"), ("string", "code_ground"),
        ("comment", "code_ground"), ("number", "code_ground"), ("name", "code_ground"),
    ],
)  # fmt: skip
def test_contrast(colours: themes.Colours, text: str, ground: str) -> None:
    assert themes.contrast(getattr(colours, text), getattr(colours, ground)) >= 4.5
