"""Typed access to GGUF metadata: a wrong type is a damaged file, never a crash."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hearth.engine.weights.files import damaged

if TYPE_CHECKING:
    from hearth.engine.weights.gguf import GgufFile, Value

MAX_INTEGER = 1 << 31


class Metadata:
    """Reads the values of one opened file."""

    def __init__(self, gguf: GgufFile) -> None:
        self.path = gguf.path
        self._values = gguf.metadata

    def has(self, key: str) -> bool:
        return key in self._values

    def integer(self, key: str, default: int | None = None) -> int:
        """Some writers give one value a layer; equal values count as one."""
        value: Value | None = self._values.get(key)
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_INTEGER:
            raise damaged(self.path, f"{key} is missing or no sensible number")
        return value

    def optional_integer(self, key: str) -> int | None:
        return self.integer(key) if self.has(key) else None

    def real(self, key: str, default: float | None = None) -> float:
        value = self._values.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise damaged(self.path, f"{key} is missing or no number")
        if not math.isfinite(value):
            raise damaged(self.path, f"{key} is not finite")
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._values.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise damaged(self.path, f"{key} is missing or no text")
        return value

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if self.has(key) else None

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._values.get(key, default)
        if not isinstance(value, bool):
            raise damaged(self.path, f"{key} is neither true nor false")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Empty when the key is missing: which lists a tokenizer needs depends on its kind."""
        value = self._values.get(key, [])
        if not isinstance(value, list):
            raise damaged(self.path, f"{key} is no list of texts")
        texts = tuple(item for item in value if isinstance(item, str))
        if len(texts) != len(value):
            raise damaged(self.path, f"{key} is no list of texts")
        return texts

    def integers(self, key: str) -> tuple[int, ...]:
        """Empty when the key is missing."""
        value = self._values.get(key, [])
        if not isinstance(value, list):
            raise damaged(self.path, f"{key} is no list of numbers")
        integers = tuple(item for item in value if isinstance(item, int))
        if len(integers) != len(value):
            raise damaged(self.path, f"{key} is no list of numbers")
        return integers

    def per_layer(self, key: str, count: int) -> tuple[int, ...]:
        """One number a layer; a single one stands for all ``count``."""
        if not isinstance(self._values.get(key), list):
            return (self.integer(key),) * count
        values = self.integers(key)
        if len(values) != count:
            raise damaged(self.path, f"{key} has {len(values)} values for {count} layers")
        if any(isinstance(value, bool) or not 0 <= value < MAX_INTEGER for value in values):
            raise damaged(self.path, f"{key} holds no sensible numbers")
        return values

    def flags(self, key: str) -> tuple[bool, ...] | None:
        """None when the key is missing. Some writers store truth as the numbers 0 and 1."""
        if not self.has(key):
            return None
        values = self.integers(key)
        if any(value not in (0, 1) for value in values):
            raise damaged(self.path, f"{key} is no list of true and false")
        return tuple(bool(value) for value in values)
