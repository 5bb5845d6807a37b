"""Makes ``tiny_engine`` importable and opens its model once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from tiny_engine import Loaded


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model as a GGUF file."""
    from tiny_engine import write_model

    return write_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny(tiny_path: Path) -> Loaded:
    """The tiny model's weights and text, to build schedulers from."""
    from tiny_engine import Loaded

    return Loaded.open(tiny_path)
