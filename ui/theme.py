"""One place for colours, spacing and type: roles, a light and a dark set, and the style sheet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QPalette

if TYPE_CHECKING:
    from PySide6.QtWidgets import QApplication

ThemeName = Literal["auto", "light", "dark"]
SPACE = 8  # one step of the spacing scale, in device-independent pixels at 100 %
BASE_POINT_SIZE = 10.5
COLUMN_CHARS = 86  # the width of a readable column of text


@dataclass(frozen=True, slots=True)
class Colours:
    """Colours by role. Text roles keep a contrast of at least 4.5 on their grounds (tested)."""

    window: str  # the conversation's ground
    sidebar: str
    raised: str  # composer, cards
    hover: str
    selected: str
    border: str
    text: str
    quiet_text: str
    accent: str
    on_accent: str
    own_bubble: str
    code_ground: str
    code_header: str
    warning_ground: str
    warning_text: str
    keyword: str
    string: str
    comment: str
    number: str
    name: str


LIGHT = Colours(
    window="#fdfcfa", sidebar="#f4f1ec", raised="#ffffff", hover="#ebe6de", selected="#e4dcd0",
    border="#ddd6cb", text="#26221d", quiet_text="#6b6359", accent="#a8430f",
    on_accent="#ffffff", own_bubble="#f3ece2", code_ground="#f6f3ee", code_header="#ece7df",
    warning_ground="#fbeecb", warning_text="#5c4300", keyword="#8a2f8f", string="#2c6b2f",
    comment="#6f675d", number="#9a4a00", name="#1f5a96",
)  # fmt: skip
DARK = Colours(
    window="#1c1a18", sidebar="#151311", raised="#262320", hover="#2f2b27", selected="#3a342e",
    border="#3b3630", text="#ece6dd", quiet_text="#a79d90", accent="#f0925a",
    on_accent="#2a1204", own_bubble="#2c2823", code_ground="#232019", code_header="#2b2720",
    warning_ground="#453511", warning_text="#f6dfa0", keyword="#d79be0", string="#9ccf8f",
    comment="#a0968a", number="#eab27a", name="#8fbdec",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours and sizes in force. ``zoom`` 1.0 is 100 %."""

    colours: Colours
    is_dark: bool
    zoom: float = 1.0

    def px(self, steps: float) -> int:
        """Steps of the spacing scale as pixels."""
        return round(SPACE * steps * self.zoom)

    def font(self, *, scale: float = 1.0, bold: bool = False, mono: bool = False) -> QFont:
        family = (
            QFontDatabase.SystemFont.FixedFont if mono else QFontDatabase.SystemFont.GeneralFont
        )
        font = QFontDatabase.systemFont(family)
        font.setPointSizeF(BASE_POINT_SIZE * scale * self.zoom * (0.95 if mono else 1.0))
        if bold:
            font.setWeight(QFont.Weight.DemiBold)
        return font

    def colour(self, role: str) -> QColor:
        return QColor(getattr(self.colours, role))


def choose(name: ThemeName, zoom_percent: int) -> Theme:
    """The theme of the settings; ``auto`` follows the system."""
    dark = name == "dark"
    if name == "auto":
        scheme = QGuiApplication.styleHints().colorScheme()
        dark = scheme == Qt.ColorScheme.Dark
    return Theme(DARK if dark else LIGHT, dark, zoom_percent / 100)


def apply(app: QApplication, theme: Theme) -> None:
    """Palette, font and style sheet for the whole program."""
    app.setFont(theme.font())
    app.setPalette(palette(theme))
    app.setStyleSheet(style_sheet(theme))


def palette(theme: Theme) -> QPalette:
    roles = {
        QPalette.ColorRole.Window: "window",
        QPalette.ColorRole.Base: "raised",
        QPalette.ColorRole.AlternateBase: "sidebar",
        QPalette.ColorRole.Button: "raised",
        QPalette.ColorRole.ToolTipBase: "raised",
        QPalette.ColorRole.WindowText: "text",
        QPalette.ColorRole.Text: "text",
        QPalette.ColorRole.ButtonText: "text",
        QPalette.ColorRole.ToolTipText: "text",
        QPalette.ColorRole.PlaceholderText: "quiet_text",
        QPalette.ColorRole.Link: "accent",
        QPalette.ColorRole.Highlight: "accent",
        QPalette.ColorRole.HighlightedText: "on_accent",
    }
    result = QPalette()
    for role, colour in roles.items():
        result.setColor(role, theme.colour(colour))
    for role in (QPalette.ColorRole.Text, QPalette.ColorRole.ButtonText):
        result.setColor(QPalette.ColorGroup.Disabled, role, theme.colour("quiet_text"))
    return result


def style_sheet(theme: Theme) -> str:
    c, px = theme.colours, theme.px
    small = f"{BASE_POINT_SIZE * 0.88 * theme.zoom:.1f}pt"
    return f"""
    QMainWindow, QDialog {{ background: {c.window}; }}
    QToolTip {{ background: {c.raised}; color: {c.text}; border: 1px solid {c.border};
        padding: {px(0.5)}px; }}
    QSplitter::handle {{ background: {c.border}; }}
    #sidebar {{ background: {c.sidebar}; }}
    #statusLine {{ background: {c.window}; color: {c.quiet_text}; font-size: {small}; }}
    #statusLine QLabel {{ color: {c.quiet_text}; font-size: {small}; }}
    #quiet {{ color: {c.quiet_text}; font-size: {small}; }}
    #heading {{ font-size: {BASE_POINT_SIZE * 1.6 * theme.zoom:.1f}pt; font-weight: 600; }}
    #banner {{ background: {c.warning_ground}; border-radius: {px(0.75)}px; }}
    #banner QLabel {{ color: {c.warning_text}; }}
    #refusal {{ background: {c.warning_ground}; color: {c.warning_text};
        border-radius: {px(0.75)}px; }}
    #verdict {{ color: {c.text}; font-weight: 600; }}
    #factNames {{ color: {c.quiet_text}; }}
    #composer {{ background: {c.raised}; border: 1px solid {c.border};
        border-radius: {px(1.5)}px; }}
    #composer[active="true"] {{ border-color: {c.accent}; }}
    #composer QPlainTextEdit {{ background: transparent; border: none; color: {c.text}; }}
    #chip {{ background: {c.hover}; border-radius: {px(0.75)}px; }}
    #codeBlock {{ background: {c.code_ground}; border: 1px solid {c.border};
        border-radius: {px(0.75)}px; }}
    #codeHeader {{ background: {c.code_header}; border-top-left-radius: {px(0.75)}px;
        border-top-right-radius: {px(0.75)}px; }}
    #codeHeader QLabel {{ color: {c.quiet_text}; font-size: {small}; }}
    #codeBlock QPlainTextEdit {{ background: transparent; border: none; color: {c.text}; }}
    QTextBrowser {{ background: transparent; border: none; color: {c.text}; }}
    QPushButton {{ background: {c.raised}; color: {c.text}; border: 1px solid {c.border};
        border-radius: {px(0.75)}px; padding: {px(0.6)}px {px(1.5)}px; }}
    QPushButton:hover {{ background: {c.hover}; }}
    QPushButton:disabled {{ color: {c.quiet_text}; }}
    QPushButton#primary {{ background: {c.accent}; color: {c.on_accent}; border: none;
        font-weight: 600; }}
    QPushButton#primary:disabled {{ background: {c.hover}; color: {c.quiet_text}; }}
    QPushButton:focus, QToolButton:focus {{ outline: none; border: 1px solid {c.accent}; }}
    QToolButton {{ background: transparent; color: {c.quiet_text}; border: 1px solid transparent;
        border-radius: {px(0.5)}px; padding: {px(0.3)}px {px(0.7)}px; font-size: {small}; }}
    QToolButton:hover {{ background: {c.hover}; color: {c.text}; }}
    QToolButton#think {{ border-color: {c.border}; border-radius: {px(1.2)}px;
        padding: {px(0.3)}px {px(1.1)}px; }}
    QToolButton#think:checked {{ background: {c.selected}; color: {c.text};
        border-color: {c.accent}; }}
    QToolButton#reasoning {{ text-align: left; padding-left: 0; font-size: inherit; }}
    QLineEdit, QSpinBox, QDoubleSpinBox, QComboBox, QDialog QPlainTextEdit, QDialog QTextBrowser {{
        background: {c.raised}; color: {c.text}; border: 1px solid {c.border};
        border-radius: {px(0.75)}px; padding: {px(0.5)}px {px(0.75)}px; }}
    QLineEdit:focus, QSpinBox:focus, QDoubleSpinBox:focus, QComboBox:focus {{
        border-color: {c.accent}; }}
    QComboBox::drop-down {{ border: none; width: {px(3)}px; }}
    QSpinBox, QDoubleSpinBox {{ padding-right: {px(2.5)}px; }}
    QSpinBox::up-button, QSpinBox::down-button, QDoubleSpinBox::up-button,
    QDoubleSpinBox::down-button {{ border: none; width: {px(2.5)}px; }}
    QComboBox::down-arrow, QSpinBox::down-arrow, QDoubleSpinBox::down-arrow {{ width: 0; height: 0;
        border-left: {px(0.5)}px solid {c.raised}; border-right: {px(0.5)}px solid {c.raised};
        border-top: {px(0.6)}px solid {c.quiet_text}; }}
    QSpinBox::up-arrow, QDoubleSpinBox::up-arrow {{ width: 0; height: 0;
        border-left: {px(0.5)}px solid {c.raised}; border-right: {px(0.5)}px solid {c.raised};
        border-bottom: {px(0.6)}px solid {c.quiet_text}; }}
    QComboBox QAbstractItemView {{ background: {c.raised}; color: {c.text}; }}
    #sidebar QListView {{ background: transparent; border: none; outline: none; }}
    #sidebar QListView::item {{ padding: {px(0.9)}px {px(1)}px; border-radius: {px(0.75)}px;
        color: {c.text}; }}
    #sidebar QListView::item:hover {{ background: {c.hover}; }}
    #sidebar QListView::item:selected {{ background: {c.selected}; color: {c.text}; }}
    QMenuBar {{ background: {c.window}; color: {c.text}; }}
    QMenuBar::item:selected {{ background: {c.hover}; }}
    QMenu {{ background: {c.raised}; color: {c.text}; border: 1px solid {c.border};
        padding: {px(0.5)}px; }}
    QMenu::item {{ padding: {px(0.6)}px {px(2)}px; border-radius: {px(0.5)}px; }}
    QMenu::item:selected {{ background: {c.hover}; }}
    QMenu::item:disabled {{ color: {c.quiet_text}; }}
    QMenu::separator {{ height: 1px; background: {c.border}; margin: {px(0.5)}px; }}
    QProgressBar {{ background: {c.hover}; border: none; border-radius: {px(0.4)}px;
        height: {px(0.8)}px; }}
    QProgressBar::chunk {{ background: {c.accent}; border-radius: {px(0.4)}px; }}
    QScrollBar:vertical {{ background: transparent; width: {px(1.4)}px; margin: 0; }}
    QScrollBar::handle:vertical {{ background: {c.border}; border-radius: {px(0.5)}px;
        min-height: {px(4)}px; margin: {px(0.25)}px; }}
    QScrollBar::handle:vertical:hover {{ background: {c.quiet_text}; }}
    QScrollBar:horizontal {{ background: transparent; height: {px(1.2)}px; margin: 0; }}
    QScrollBar::handle:horizontal {{ background: {c.border}; border-radius: {px(0.4)}px;
        min-width: {px(4)}px; margin: {px(0.2)}px; }}
    QScrollBar::add-line, QScrollBar::sub-line {{ width: 0; height: 0; }}
    QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
    """


def contrast(first: str, second: str) -> float:
    """Contrast ratio of two colours (WCAG 2.1)."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    chosen = QColor(colour)
    channels = (chosen.redF(), chosen.greenF(), chosen.blueF())
    linear = [c / 12.92 if c <= 0.04045 else float(((c + 0.055) / 1.055) ** 2.4) for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
