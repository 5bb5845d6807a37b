"""What a recurrent model needs besides attention pages to go on from a token: opaque here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch


@dataclass(frozen=True, slots=True, eq=False)
class StatePayload:
    """Recurrent, convolution and drafter state behind one token, by name. Nobody changes the
    tensors any more: the cache, the disk tier and several requests share them."""

    tensors: Mapping[str, torch.Tensor]

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def to_bytes(self) -> bytes:
        return save_tensors(dict(self.tensors))

    @classmethod
    def from_bytes(cls, data: bytes) -> StatePayload | None:
        """None when ``data`` is not a payload (the tokens are computed again)."""
        try:
            return cls(load_tensors(data))
        except SafetensorError:
            return None


@dataclass(slots=True)
class Snapshot:
    """A state in the prefix tree. ``saved``: it is on disk, or on its way there."""

    state: StatePayload
    saved: bool = False
