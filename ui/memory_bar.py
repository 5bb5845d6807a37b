"""A memory plan to look at: one bar of all its parts, and a legend with the figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QPoint, QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QHelpEvent, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QGridLayout, QLabel, QSizePolicy, QToolTip, QWidget

from hearth.app.memory_words import FREE, card_words, fit_words, part_title
from hearth.engine.memory import size_words

if TYPE_CHECKING:
    from hearth.engine.memory import PlannedMemory
    from hearth.ui.theme import Theme

# A role of the theme and how much of it is left when it is mixed with the window's ground: weights
# share one hue, what a conversation needs has its own, what nobody uses is grey.
PAINTS = {
    "embedding": ("accent", 0.45),
    "head": ("accent", 0.6),
    "attention": ("accent", 0.75),
    "linear": ("accent", 0.88),
    "mlp": ("accent", 1.0),
    "norms": ("accent", 0.35),
    "mtp": ("number", 0.8),
    "drafter": ("number", 0.55),
    "states": ("string", 1.0),
    "snapshots": ("string", 0.6),
    "scratch": ("keyword", 0.8),
    "graphs": ("keyword", 0.5),
    "driver": ("quiet_text", 0.75),
    "desktop": ("quiet_text", 0.45),
    "pages": ("name", 1.0),
    FREE: ("hover", 1.0),
}
LEGEND_COLUMNS = 2


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the bar; ``start`` and ``share`` are parts of its whole width."""

    title: str
    num_bytes: int
    colour: QColor
    start: float
    share: float

    @property
    def words(self) -> str:
        return f"{self.title}: {size_words(self.num_bytes)}"


def segments(plan: PlannedMemory, theme: Theme) -> list[Segment]:
    """All parts in order, and what is free behind them."""
    whole = max(plan.available_bytes, plan.needed_bytes, 1)
    pieces = [(part.id, part_title(plan, part.id), part.num_bytes) for part in plan.parts]
    if plan.free_bytes > 0:
        pieces.append((FREE, FREE, plan.free_bytes))
    made, start = [], 0.0
    for name, title, num_bytes in pieces:
        share = num_bytes / whole
        made.append(Segment(title, num_bytes, paint_colour(name, theme), start, share))
        start += share
    return made


def paint_colour(name: str, theme: Theme) -> QColor:
    role, strength = PAINTS[name]
    colour, ground = theme.colour(role), theme.colour("window")
    return QColor.fromRgbF(
        _mixed(colour.redF(), ground.redF(), strength),
        _mixed(colour.greenF(), ground.greenF(), strength),
        _mixed(colour.blueF(), ground.blueF(), strength),
    )


def _mixed(over: float, under: float, strength: float) -> float:
    return strength * over + (1.0 - strength) * under


class MemoryBar(QWidget):
    """Paints the segments; a line marks what can be used when more than that is needed."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._plan: PlannedMemory | None = None
        self._segments: list[Segment] = []
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setMinimumHeight(theme.px(4.5))
        self.setAccessibleName("Memory")

    def sizeHint(self) -> QSize:
        return QSize(self._theme.px(80), self._theme.px(4.5))

    def show_plan(self, plan: PlannedMemory | None) -> None:
        self._plan = plan
        self._segments = segments(plan, self._theme) if plan is not None else []
        words = ", ".join(segment.words for segment in self._segments)
        verdict = f"{card_words(plan)}. {fit_words(plan)} " if plan is not None else ""
        self.setAccessibleDescription(verdict + words)
        self.update()

    def segment_at(self, point: QPoint) -> Segment | None:
        place = point.x() / max(self.width(), 1)
        inside = (s for s in self._segments if s.start <= place < s.start + s.share)
        return next(inside, None)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            segment = self.segment_at(event.pos())
            QToolTip.showText(event.globalPos(), segment.words if segment else "", self)
            return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        area = QRectF(self.rect()).adjusted(0.0, self._theme.px(0.5), 0.0, -self._theme.px(0.5))
        outline = QPainterPath()
        outline.addRoundedRect(area, self._theme.px(0.75), self._theme.px(0.75))
        painter.setClipPath(outline)
        painter.fillRect(area, self._theme.colour("hover"))
        for segment in self._segments:
            painter.fillRect(self._rect(segment, area), segment.colour)
        if self._plan is not None and self._plan.free_bytes < 0:
            self._paint_limit(painter, area, self._plan.available_bytes / self._plan.needed_bytes)
        painter.end()

    def _rect(self, segment: Segment, area: QRectF) -> QRectF:
        """With a gap to the next one, which a sliver does not give up its last pixel for."""
        width = segment.share * area.width()
        gap = 1.0 if width > 3.0 else 0.0
        left = area.left() + segment.start * area.width()
        return QRectF(left, area.top(), width - gap, area.height())

    def _paint_limit(self, painter: QPainter, area: QRectF, share: float) -> None:
        limit = area.left() + share * area.width()
        beyond = QRectF(limit, area.top(), area.right() - limit, area.height())
        ground = self._theme.colour("window")
        painter.fillRect(beyond, QBrush(ground, Qt.BrushStyle.BDiagPattern))
        painter.setClipping(False)
        painter.setPen(QPen(self._theme.colour("text"), self._theme.px(0.25)))
        painter.drawLine(QPoint(int(limit), 0), QPoint(int(limit), self.height()))


class Swatch(QWidget):
    """A small square of a segment's colour."""

    def __init__(self, colour: QColor, theme: Theme) -> None:
        super().__init__()
        self._colour = colour
        self._radius = theme.px(0.25)
        self.setFixedSize(theme.px(1.4), theme.px(1.4))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._colour)
        painter.drawRoundedRect(self.rect(), self._radius, self._radius)
        painter.end()


class MemoryLegend(QWidget):
    """Every segment with its colour, name and size, in two columns read downwards."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(theme.px(1))
        self._grid.setVerticalSpacing(theme.px(0.5))
        for column in range(LEGEND_COLUMNS):
            self._grid.setColumnStretch(4 * column + 1, 1)
            self._grid.setColumnMinimumWidth(4 * column + 3, theme.px(2))

    def show_plan(self, plan: PlannedMemory | None) -> None:
        self._clear()
        shown = segments(plan, self._theme) if plan is not None else []
        rows = -(-len(shown) // LEGEND_COLUMNS)
        for index, segment in enumerate(shown):
            self._add(segment, index % rows, 4 * (index // rows))

    def _clear(self) -> None:
        while (item := self._grid.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.hide()
                widget.deleteLater()

    def _add(self, segment: Segment, row: int, column: int) -> None:
        size = QLabel(size_words(segment.num_bytes))
        size.setAlignment(Qt.AlignmentFlag.AlignRight)
        self._grid.addWidget(Swatch(segment.colour, self._theme), row, column)
        self._grid.addWidget(QLabel(segment.title), row, column + 1)
        self._grid.addWidget(size, row, column + 2)
