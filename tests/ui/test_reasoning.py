"""Reasoning in the view: a quiet line that opens; the switch in the composer; the clock."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication

from hearth.app.chats.store import ChatStore
from hearth.app.conversation import Conversations
from hearth.app.settings import Settings, SettingsFile
from hearth.ui import clipboard
from hearth.ui import theme as themes
from hearth.ui.chat_view.message_view import MessageView
from hearth.ui.chat_view.model import ShownMessage
from hearth.ui.chat_view.panes import CodePane
from hearth.ui.chat_view.reasoning_block import ReasoningBlock, thinking_words
from hearth.ui.chat_view.view import KEPT_WIDGETS, ChatView
from hearth.ui.dialogs import SettingsDialog
from hearth.ui.main_window import MainWindow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearth.ui.theme import Theme

THOUGHT = "First I look.\n\n1. one\n2. two\n\n```py\nx = 1\n```\n\nSo it **is**"


@pytest.fixture
def view(light: Theme, qtbot: Any) -> ChatView:
    result = ChatView(light)
    qtbot.addWidget(result)
    result.resize(900, 600)
    result.show()
    return result


def block(view: ChatView, message_id: str = "r") -> ReasoningBlock:
    widget = view.widget_of(message_id)
    assert widget is not None
    assert widget.reasoning is not None
    return widget.reasoning


def plain(found: ReasoningBlock) -> list[str]:
    return [
        pane.source if isinstance(pane, CodePane) else pane.document().toPlainText()
        for pane in found.column.panes
    ]


def streaming(view: ChatView, *, is_open: bool, step: int = 7) -> None:
    view.set_messages([ShownMessage("r", "assistant", "", is_streaming=True)])
    for start in range(0, len(THOUGHT), step):
        view.append_text("r", "", THOUGHT[start : start + step])
        if start == 0 and is_open:
            block(view).set_open(is_open=True)


def test_closed_reasoning_costs_no_layout(view: ChatView) -> None:
    streaming(view, is_open=False)
    height = view._heights[0]
    view.append_text("r", "", "more\n\n" * 500)
    assert block(view).column.panes == []
    assert view._heights[0] == height


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_reasoning_streams_while_it_is_open(view: ChatView, step: int) -> None:
    streaming(view, is_open=True, step=step)
    view.append_text("r", "Yes.")
    view.finish_message(ShownMessage("r", "assistant", "Yes.", THOUGHT, 12.0))
    whole = MessageView(ShownMessage("w", "assistant", "Yes.", THOUGHT, 12.0), view._theme)
    assert whole.reasoning is not None
    whole.reasoning.set_open(is_open=True)
    assert (
        plain(block(view))
        == plain(whole.reasoning)
        == [
            "First I look.\none\ntwo",
            "x = 1",
            "So it is",
        ]
    )
    whole.deleteLater()


def test_closing_and_opening_shows_the_same(view: ChatView) -> None:
    streaming(view, is_open=True)
    before = plain(block(view))
    for _ in range(2):
        view.toggle_reasoning("r")
    assert plain(block(view)) == before
    assert view._heights[0] > view.widget_of("r").reasoning.header.height()  # type: ignore[union-attr]


def test_the_line_says_how_long(view: ChatView) -> None:
    streaming(view, is_open=False)
    view.show_thinking("r", 12.4)
    assert block(view).header.text() == "▸  Thinking … 12 s"
    assert block(view).header.accessibleName() == "Thinking. Show the reasoning"
    view.append_text("r", "Yes")
    view.show_thinking("r", 12.4)
    assert block(view).header.text() == "▸  Thought for 12 s"
    view.toggle_reasoning("r")
    assert block(view).header.accessibleName() == "Thought for 12 s. Hide the reasoning"


@pytest.mark.parametrize(
    ("seconds", "is_thinking", "words"),
    [
        (0.2, True, "Thinking … 0 s"),
        (0.9, False, "Thought briefly"),
        (59.9, False, "Thought for 59 s"),
        (125.0, False, "Thought for 2 min 5 s"),
    ],
)
def test_times_in_words(seconds: float, is_thinking: bool, words: str) -> None:
    assert thinking_words(seconds, is_thinking=is_thinking) == words


@pytest.mark.parametrize("key", [Qt.Key.Key_Space, Qt.Key.Key_Return, Qt.Key.Key_Enter])
def test_keys_open_it(view: ChatView, qtbot: Any, key: Qt.Key) -> None:
    view.set_messages([ShownMessage("r", "assistant", "Yes.", THOUGHT, 12.0)])
    header = block(view).header
    assert header.focusPolicy() & Qt.FocusPolicy.TabFocus
    qtbot.keyClick(header, key)
    assert block(view).is_open
    qtbot.mouseClick(header, Qt.MouseButton.LeftButton)
    assert not block(view).is_open


def test_the_clicked_line_stays_in_its_place(view: ChatView, qtbot: Any) -> None:
    messages = [
        ShownMessage(str(n), "assistant", "word\n\n" * 5, "why\n\n" * 30, 2.0) for n in range(30)
    ]
    view.set_messages(messages)
    header = block(view, "29").header
    top = header.mapTo(view, header.pos()).y()
    qtbot.mouseClick(header, Qt.MouseButton.LeftButton)
    QApplication.processEvents()
    assert abs(header.mapTo(view, header.pos()).y() - top) <= 1
    assert not view.is_following


def test_what_was_opened_stays_open_when_widgets_are_made_anew(view: ChatView) -> None:
    messages = [
        ShownMessage(str(n), "assistant", "word " * 300, "why " * 50, 2.0)
        for n in range(KEPT_WIDGETS * 3)
    ]
    view.set_messages(messages, at_end=False)
    view.toggle_reasoning("0")
    for value in range(0, view.verticalScrollBar().maximum(), 2000):
        view.verticalScrollBar().setValue(value)
    assert view.widget_of("0") is None
    view.scroll_to("0")
    assert block(view, "0").is_open
    view.set_theme(themes.choose("dark", 100))
    assert block(view, "0").is_open


def test_copy_gives_the_answer_only(view: ChatView) -> None:
    view.set_messages([ShownMessage("r", "assistant", "Yes.", THOUGHT, 12.0)])
    widget = view.widget_of("r")
    assert widget is not None
    widget.copy()
    assert QGuiApplication.clipboard().text() == "Yes."
    clipboard.release()


@pytest.mark.parametrize("colours", [themes.LIGHT, themes.DARK])
@pytest.mark.parametrize(
    ("text", "ground"), [("quiet_text", "code_ground"), ("quiet_text", "raised")]
)
def test_contrast_of_quiet_text(colours: themes.Colours, text: str, ground: str) -> None:
    assert themes.contrast(getattr(colours, text), getattr(colours, ground)) >= 4.5


# ------------------------------------------------------------------------------------- the window


class World:
    """A window on a real store and an engine that answers by script."""

    def __init__(self, folder: Path, *, can_think: bool) -> None:
        script = Path(__file__).parents[1] / "unit" / "app" / "conftest.py"
        spec = importlib.util.spec_from_file_location("scripted_engine", script)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.engine = module.ScriptedEngine()
        self.engine.can_think = can_think
        self.settings = SettingsFile(folder / "settings.toml")
        self.conversations = Conversations(
            ChatStore(folder / "chats"), self.engine, self.settings.values
        )
        self.window = MainWindow(self.conversations, self.settings, lambda: None)
        self.window.show()
        model = folder / "thinker.gguf"
        model.write_bytes(b"GGUF")
        self.window.open_model(model)
        self.window._frame()

    @property
    def think(self) -> Any:
        return self.window._composer.think


@pytest.fixture
def world(tmp_path: Path, light: object, qtbot: Any) -> Iterator[World]:
    result = World(tmp_path, can_think=True)
    yield result
    result.window.close()


def test_the_switch_changes_settings_and_requests(world: World, qtbot: Any) -> None:
    assert world.think.isVisible()
    assert not world.think.isChecked(), "this model does not think by itself"
    qtbot.mouseClick(world.think, Qt.MouseButton.LeftButton)
    assert SettingsFile(world.settings._path).values.thinking.mode == "on"
    world.window.say_for_user("Hi")
    assert world.engine.requests[0].prompt.thinking.enabled
    world.window.actions_by_id["think"].trigger()
    assert not world.think.isChecked()
    assert world.settings.values.thinking.mode == "off"


def test_the_dialog_gives_back_what_it_was_given(light: Theme, qtbot: Any) -> None:
    before = Settings()
    before.thinking.mode, before.thinking.effort, before.thinking.max_tokens = "on", "low", 7000
    dialog = SettingsDialog(before, light)
    qtbot.addWidget(dialog)
    after = Settings()
    dialog.apply_to(after)
    assert after.thinking == before.thinking


def test_a_model_without_a_choice_has_no_switch(tmp_path: Path, light: object) -> None:
    world = World(tmp_path, can_think=False)
    assert not world.think.isVisible()
    world.window.actions_by_id["think"].trigger()
    assert "no switch" in world.window._banner.text.text()
    assert world.settings.values.thinking.mode == "auto"
    world.window.close()


def test_a_reply_thinks_and_answers(world: World) -> None:
    world.window.say_for_user("Hi")
    request = world.engine.requests[0]
    world.engine.read(request)
    world.engine.write(request, "", reasoning="so it")
    world.window._frame()
    view = world.window._view
    running = world.conversations.running(request.id)
    assert running is not None
    assert running.reasoning_began_at is not None
    running.reasoning_began_at -= 5
    world.window._frame()
    assert block(view, request.id).header.text().endswith("Thinking … 5 s")
    world.window._reload()  # another chat and back
    world.window.actions_by_id["show_reasoning"].trigger()
    world.engine.write(request, "Yes", reasoning=" is")
    world.window._frame()
    assert block(view, request.id).header.text().endswith("Thought for 5 s")
    assert plain(block(view, request.id)) == ["so it is"]
    world.engine.finish(request, "Yes.", reasoning="so it is")
    world.window._frame()
    assert view.messages[1].text == "Yes."
    assert plain(block(view, request.id)) == ["so it is"]
    world.window._messages.copy_last()
    assert QGuiApplication.clipboard().text() == "Yes."
    clipboard.release()
