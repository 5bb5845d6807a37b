"""The memory that is here: graphics cards by NVML, read only, and the machine's own."""

from __future__ import annotations

import os

from hearth.engine.cache.host_memory import available_bytes
from hearth.engine.memory import Card

HOST_NAME = "this machine's memory"


def present_card() -> Card | None:
    """The card with the most memory; None when no NVIDIA driver answers."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        cards = [_card(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:  # a card that fell off the bus
        return None
    finally:
        pynvml.nvmlShutdown()
    return max(cards, key=lambda card: card.total_bytes, default=None)


def _card(nvml: object, index: int) -> Card:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)  # type: ignore[attr-defined]
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)  # type: ignore[attr-defined]
    name = nvml.nvmlDeviceGetName(handle)  # type: ignore[attr-defined]
    return Card(str(name), int(memory.total), int(memory.free))


def host_card() -> Card:
    """The machine's memory as if it were a card: what a program may take now."""
    free = available_bytes()
    names = getattr(os, "sysconf_names", {})
    known = "SC_PHYS_PAGES" in names and "SC_PAGE_SIZE" in names
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if known else free
    return Card(HOST_NAME, max(total, free, 1), free, is_host=True)
