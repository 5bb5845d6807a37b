"""Makes ``tiny_models`` importable, and one check that every refusal passes."""

from __future__ import annotations

import sys
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hearth.engine.errors import HearthError
from hearth.engine.weights.model_files import open_model

if TYPE_CHECKING:
    from collections.abc import Callable

sys.path.insert(0, str(Path(__file__).parent))

MAX_SECONDS = 2.0  # of this process alone: a busy machine must not fail the test
MAX_BYTES = 64 << 20


@pytest.fixture
def refusal() -> Callable[[Path], str]:
    """Opens a path that must be refused: quickly, without large objects, in one sentence that
    names it, with an action. Gives the sentence."""

    def check(path: Path) -> str:
        started = time.process_time()
        with pytest.raises(HearthError) as caught:
            open_model(path)
        seconds = time.process_time() - started
        message = str(caught.value)
        tracemalloc.start()
        with pytest.raises(HearthError):
            open_model(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert seconds < MAX_SECONDS, f"{seconds:.2f} s to say: {message}"
        assert peak_bytes < MAX_BYTES, f"{peak_bytes >> 20} MiB to say: {message}"
        assert message.endswith("."), message
        assert len(message) < 400, message
        assert message.isprintable(), message
        assert caught.value.action, message
        return message

    return check
