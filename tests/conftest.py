"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as in hearth.app.__main__

STARTER_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def starter_model() -> Path:
    """The starter model's GGUF file, as ``hearth models pull starter`` leaves it."""
    named = os.environ.get("HEARTH_STARTER_MODEL")
    if named:
        return Path(named)
    import platformdirs

    path = platformdirs.user_data_path("hearth", appauthor=False) / "models" / STARTER_FILE
    if not path.exists():
        pytest.skip("the starter model is not installed: run 'hearth models pull starter'")
    return path
