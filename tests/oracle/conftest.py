"""Makes ``reference_models`` and the tiny checkpoints of the unit tests importable."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "unit" / "weights")]
