"""Makes ``tiny_engine`` importable and opens its model once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "oracle"))  # hybrid_models

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


@pytest.fixture(scope="session")
def tiny_loaded(tiny: Loaded) -> Loaded:
    """``tiny`` where a module gives that name to several models."""
    return tiny


@pytest.fixture(scope="session")
def hybrid_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random hybrid model as a folder."""
    from hybrid_models import random_model, save

    return save(random_model(), tmp_path_factory.mktemp("hybrid"))


@pytest.fixture(scope="session")
def hybrid(hybrid_path: Path) -> Loaded:
    from tiny_engine import Loaded

    return Loaded.open(hybrid_path)
