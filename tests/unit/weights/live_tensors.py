"""Measures how many bytes of tensors are alive at once while a piece of code runs."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveTensors(TorchDispatchMode):
    """Follows every tensor that an operator gives while the mode is on. ``peak_bytes``: the most
    that lived at once; ``largest_float``: elements of the largest floating-point result."""

    def __init__(self) -> None:
        super().__init__()
        self._owners: dict[int, tuple[int, list[weakref.ref[torch.Tensor]]]] = {}
        self.peak_bytes = 0
        self.largest_float = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> torch.Tensor:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._note(tensor)
        return result

    def _note(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self._forget_dead()
        known = self._owners.setdefault(storage.data_ptr(), (storage.nbytes(), []))
        known[1].append(weakref.ref(tensor))
        self.peak_bytes = max(self.peak_bytes, sum(size for size, _ in self._owners.values()))
        if tensor.is_floating_point():
            self.largest_float = max(self.largest_float, tensor.numel())

    def _forget_dead(self) -> None:
        """A storage lives as long as one of the tensors that showed it."""
        for place, (_, owners) in list(self._owners.items()):
            owners[:] = [owner for owner in owners if owner() is not None]
            if not owners:
                del self._owners[place]
