"""How benchmarks and checks report: JSON lines for programs, a short table for people."""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hearth.engine.weights.shapes import is_synthetic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Value = str | int | float | bool | None
SYNTHETIC = "synthetic weights: time only"


@dataclass(frozen=True, slots=True)
class Reporter:
    """Prints records; with ``as_json`` one JSON object a line, else ``name: value`` lines."""

    as_json: bool

    def record(self, kind: str, values: Mapping[str, Value]) -> None:
        if self.as_json:
            line = json.dumps({"record": kind, **values}, ensure_ascii=False)
        else:
            line = f"{kind:<12} " + "  ".join(f"{key} {_show(v)}" for key, v in values.items())
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def machine(self, command: Sequence[str], model: Path | None = None) -> None:
        """The first record of every run: what was measured where, when and by which command."""
        weights = {"weights": SYNTHETIC} if model is not None and is_synthetic(model) else {}
        self.record(
            "machine",
            {
                "date": datetime.now(UTC).strftime("%Y-%m-%d"),
                "processor": _processor(),
                "cores": os.cpu_count(),
                "system": platform.platform(),
                "python": platform.python_version(),
                "command": "hearth " + " ".join(command),
                **({"model": model.name} if model is not None else {}),
                **weights,
            },
        )


def _show(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else str(value)


def _processor() -> str:
    """The processor's name; Linux keeps it out of ``platform``."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - not a user's path
            names = [line for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0].split(":", 1)[1].strip() if names else platform.processor()
