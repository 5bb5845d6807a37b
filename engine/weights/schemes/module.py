"""One linear layer as a quantised checkpoint stores it: several tensors under one module's name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hearth.engine.errors import UserError
from hearth.engine.weights.files import shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hearth.engine.weights.safetensors_file import SafeTensor

DTYPES = {
    "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I32": torch.int32,
    "I64": torch.int64, "I8": torch.int8, "U8": torch.uint8, "F8_E4M3": torch.float8_e4m3fn,
}  # fmt: skip
FLOATS = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class Module:
    """``parts``: the stored tensors by the last word of their names. ``name``: the engine's."""

    name: str
    published: str
    path: Path
    parts: Mapping[str, SafeTensor]

    @property
    def num_bytes(self) -> int:
        return sum(part.num_bytes for part in self.parts.values())

    def refused(self, what: str) -> UserError:
        """A way of storing it that Hearth does not read."""
        return UserError(
            f"{shown(self.path.name)} stores {shown(self.published)} {what}, which Hearth cannot "
            "read yet.",
            action="Choose another version of the model.",
        )

    def damaged(self, what: str) -> UserError:
        return UserError(
            f"{shown(self.path.name)} is damaged: {shown(self.published)} {what}.",
            action="Download the model again.",
        )

    def has(self, part: str, *dtypes: str) -> bool:
        """Whether there is such a part, of one of these types where they are given."""
        return part in self.parts and (not dtypes or self.parts[part].dtype in dtypes)

    def count(self, part: str) -> int:
        """How many values a part has; known without reading it."""
        return math.prod(self.parts[part].shape)

    def expect(self, *parts: str) -> None:
        """Raises UserError for a part that a scheme would leave out silently."""
        others = sorted(set(self.parts) - set(parts))
        if others:
            raise self.refused(f"with {shown(', '.join(others))} beside its weights")

    def require(self, holds: bool, rule: str) -> None:
        """Raises UserError when the parts contradict each other."""
        if not holds:
            raise self.damaged(f"has parts that do not fit together ({rule})")

    def matrix(self, part: str) -> torch.Tensor:
        """A part [rows, columns] in its own dtype, a view of the file."""
        tensor = self.parts[part]
        self.require(len(tensor.shape) == 2, f"{part} is a matrix")
        return self._view(tensor).view(tensor.shape)

    def vector(self, part: str) -> torch.Tensor:
        """All values of a part in a row."""
        return self._view(self.parts[part]).flatten()

    def floats(self, part: str) -> torch.Tensor:
        """A small part as float32, in its own shape."""
        tensor = self.parts[part]
        return self._view(tensor).view(tensor.shape).float()

    def scalar(self, part: str) -> torch.Tensor:
        """A float32 [1] that the file stores as one number."""
        self.require(self.has(part, *FLOATS) and self.count(part) == 1, f"{part} is one number")
        return self.vector(part).float()

    def _view(self, tensor: SafeTensor) -> torch.Tensor:
        if tensor.dtype not in DTYPES:
            raise self.refused(f"as {shown(tensor.dtype)}")
        return tensor.raw().flatten().view(DTYPES[tensor.dtype])
