"""The composer keeps the user's characters; what an editor would change becomes a chip."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QInputMethodEvent, QKeyEvent
from PySide6.QtWidgets import QApplication

from hearth.ui.composer import Composer

if TYPE_CHECKING:
    from hearth.ui.theme import Theme

KEPT = ["a\u00a0b", "x\u202fy", "👩\u200d👩\u200d👧", "e\u0301", "\u202eabc\u202c", "a\u00adb",
        "\t x  ", "  leading and trailing  ", "\u200b\u2011"]  # fmt: skip
TURNED_INTO_CHIPS = ["a\u2028b", "a\u2029b", "a\r\nb", "a\rb", "\ufeffa", "a\ud800b", "x\u00a0y",
                     "long " * 10_000, "z" * 9000]  # fmt: skip


@pytest.fixture
def composer(light: Theme, qtbot: object) -> Composer:
    result = Composer(light)
    qtbot.addWidget(result)  # type: ignore[attr-defined]
    return result


def paste(composer: Composer, text: str) -> None:
    data = QMimeData()
    # As bytes, like other programs do: setText would already lose characters on its way in.
    data.setData("text/plain", text.encode("utf-8", "surrogatepass"))
    composer.editor.insertFromMimeData(data)


@pytest.mark.parametrize("text", KEPT)
def test_typed_characters_stay(composer: Composer, text: str) -> None:
    composer.editor.textCursor().insertText(text)
    assert composer.editor.exact_text() == text


def test_lines_stay(composer: Composer) -> None:
    composer.editor.textCursor().insertText("one\ntwo\n\n three")
    assert composer.editor.exact_text() == "one\ntwo\n\n three"


@pytest.mark.parametrize("text", TURNED_INTO_CHIPS)
def test_unusual_or_long_pastes_become_exact_chips(composer: Composer, text: str) -> None:
    composer.editor.long_text.emit(text)
    [(part, data)] = composer.draft()[1]
    assert part.text == text
    assert data == text.encode("utf-8", "surrogatepass")


def test_a_paste_is_judged_before_it_is_inserted(composer: Composer) -> None:
    paste(composer, "short and plain")
    paste(composer, "with a line separator\u2028here")
    paste(composer, "\ufeffwith a mark")
    assert composer.editor.exact_text() == "short and plain"
    assert [part.text for part, _ in composer.draft()[1]] == [
        "with a line separator\u2028here",
        "\ufeffwith a mark",
    ]


def test_five_megabytes_are_pasted_at_once(composer: Composer) -> None:
    text = "0123456789abcdef" * (5 << 16)
    paste(composer, text)
    assert composer.editor.exact_text() == ""
    assert composer.draft()[1][0][0].text == text


def press(composer: Composer, key: Qt.Key, modifiers: Qt.KeyboardModifier | None = None) -> None:
    chosen = modifiers or Qt.KeyboardModifier.NoModifier
    event = QKeyEvent(QKeyEvent.Type.KeyPress, key, chosen)
    QApplication.sendEvent(composer.editor, event)


def test_enter_sends_and_shift_enter_does_not(composer: Composer) -> None:
    sent: list[str] = []
    composer.send_asked.connect(lambda text, attachments: sent.append(text))
    composer.editor.insertPlainText("  hello ")
    press(composer, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert sent == []
    assert composer.editor.exact_text() == "  hello \n"
    press(composer, Qt.Key.Key_Return)
    assert sent == ["  hello \n"]


def test_enter_that_confirms_an_input_method_does_not_send(composer: Composer) -> None:
    sent: list[str] = []
    composer.send_asked.connect(lambda text, attachments: sent.append(text))
    composer.editor.insertPlainText("x")
    QApplication.sendEvent(composer.editor, QInputMethodEvent("にほ", []))
    press(composer, Qt.Key.Key_Return)
    assert sent == []
    done = QInputMethodEvent("", [])
    done.setCommitString("日本")
    QApplication.sendEvent(composer.editor, done)
    press(composer, Qt.Key.Key_Return)
    assert sent == ["x日本"]


def test_stop_changes_only_when_the_engine_has_stopped(composer: Composer) -> None:
    composer.set_running(running=True)
    assert composer._send.text() == "Stop"
    composer.set_running(running=True, stopping=True)
    assert not composer._send.isEnabled()
    composer.set_running(running=False)
    assert composer._send.text() == "Send"
