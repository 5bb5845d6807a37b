"""Qt runs offscreen in these tests; a widget or timer that outlives its test fails it."""

from __future__ import annotations

import os

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import pytest

from hearth.ui import theme as themes


@pytest.fixture
def light(qapp: object) -> themes.Theme:
    result = themes.choose("light", 100)
    themes.apply(qapp, result)  # type: ignore[arg-type]
    return result
