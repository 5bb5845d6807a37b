"""What a DFlash drafter remembers of one request: keys and values of its committed tokens.

A layer with a window keeps the last window - 1 tokens in a ring, the others keep all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hearth.kernels.block_attention import RingView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearth.engine.draft.dflash_config import DflashConfig

FIRST_SLOTS = 256  # doubled when full, up to the window: most chats are short
END = "drafter.end"


class LayerRing:
    """One layer's keys and values [C, Hkv * D]: position p lies in slot p % C."""

    def __init__(self, kv_size: int, window: int | None) -> None:
        self.max_rows = None if window is None else window - 1
        slots = FIRST_SLOTS if self.max_rows is None else min(FIRST_SLOTS, self.max_rows)
        self._keys = torch.empty(slots, kv_size)
        self._values = torch.empty(slots, kv_size)
        self.first = self.end = 0

    def view(self) -> RingView:
        return RingView(self._keys, self._values, self.first, self.end)

    def write(self, start: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Rows [N, Hkv * D] of the positions from ``start`` on, which follow what is there."""
        if self.first == self.end:
            self.first = self.end = start
        assert start == self.end, "positions follow each other"
        stop = start + len(keys)
        self._make_room(stop - self.first)
        slots = len(self._keys)
        kept = min(len(keys), slots)
        places = torch.arange(stop - kept, stop) % slots
        self._keys[places] = keys[len(keys) - kept :]
        self._values[places] = values[len(values) - kept :]
        self.first, self.end = max(self.first, stop - slots), stop

    def _make_room(self, num_positions: int) -> None:
        slots = len(self._keys)
        while slots < num_positions:
            slots *= 2
        if self.max_rows is not None:
            slots = min(slots, self.max_rows)
        if slots == len(self._keys):
            return
        places = torch.arange(self.first, self.end) % slots
        keys, values = self.view().ordered()
        self._keys = torch.empty(slots, keys.shape[1])
        self._values = torch.empty(slots, keys.shape[1])
        self._keys[places], self._values[places] = keys, values


class DflashContext:
    """One request's context, all layers. Engine thread only; the request owns it."""

    def __init__(self, config: DflashConfig) -> None:
        self._config = config
        self.layers = [LayerRing(config.kv_size, window) for window in config.windows]

    @property
    def end(self) -> int:
        """token_index behind the last committed token: where the next anchor stands."""
        return self.layers[0].end

    @property
    def is_empty(self) -> bool:
        return self.layers[0].first == self.layers[0].end

    def rows_needed(self, num_rows: int) -> int:
        """How many of the last of ``num_rows`` new rows any layer will ever look at."""
        windows = self._config.windows
        if any(window is None for window in windows):
            return num_rows
        return min(num_rows, max(window - 1 for window in windows if window is not None))

    def clear(self) -> None:
        """Forget everything: the next rows may stand anywhere."""
        self.layers = [LayerRing(self._config.kv_size, window) for window in self._config.windows]

    def save(self) -> dict[str, torch.Tensor]:
        """Copies under the names of a ``StatePayload``: rows in order of positions, so that the
        same context has the same bytes however it came about."""
        tensors = {END: torch.tensor([self.end])}
        for index, ring in enumerate(self.layers):
            keys, values = ring.view().ordered()
            tensors |= {f"drafter.{index}.keys": keys, f"drafter.{index}.values": values}
        return tensors

    @classmethod
    def restored(
        cls, config: DflashConfig, tensors: Mapping[str, torch.Tensor]
    ) -> DflashContext | None:
        """The context that ``save`` saw; None when ``tensors`` are not of such a drafter (it then
        starts empty, which costs speed and never changes text)."""
        context, end = cls(config), tensors.get(END)
        if end is None or end.dtype != torch.int64 or end.shape != (1,):
            return None
        for index, ring in enumerate(context.layers):
            pair = [tensors.get(f"drafter.{index}.{name}") for name in ("keys", "values")]
            keys, values = pair
            if keys is None or values is None or not _fits(config, ring, keys, values, int(end)):
                return None
            ring.write(int(end) - len(keys), keys, values)
        ends = {ring.end for ring in context.layers}
        return context if ends <= {int(end)} else None


def _fits(
    config: DflashConfig, ring: LayerRing, keys: torch.Tensor, values: torch.Tensor, end: int
) -> bool:
    return (
        keys.dtype == values.dtype == torch.float32
        and keys.shape == values.shape
        and keys.ndim == 2
        and keys.shape[1] == config.kv_size
        and len(keys) <= end
        and (ring.max_rows is None or len(keys) <= ring.max_rows)
    )
