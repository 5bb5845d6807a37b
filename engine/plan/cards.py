"""Graphics cards by name or size, for plans of machines that are not here."""

from __future__ import annotations

import re

from hearth.engine.errors import UserError
from hearth.engine.memory import Card

# Gigabytes as sold (1 << 30 bytes each), from the makers' data sheets. Cards that were sold with
# two sizes carry the size in their name.
CARDS = {
    "GTX 1080 Ti": 11, "RTX 2060": 6, "RTX 2070": 8, "RTX 2080": 8, "RTX 2080 Ti": 11,
    "RTX 3050": 8, "RTX 3060": 12, "RTX 3060 Ti": 8, "RTX 3070": 8, "RTX 3070 Ti": 8,
    "RTX 3080 10GB": 10, "RTX 3080 12GB": 12, "RTX 3080 Ti": 12, "RTX 3090": 24, "RTX 3090 Ti": 24,
    "RTX 4060": 8, "RTX 4060 Ti 8GB": 8, "RTX 4060 Ti 16GB": 16, "RTX 4070": 12,
    "RTX 4070 Super": 12, "RTX 4070 Ti": 12, "RTX 4070 Ti Super": 16, "RTX 4080": 16,
    "RTX 4080 Super": 16, "RTX 4090": 24, "RTX 5060": 8, "RTX 5060 Ti 8GB": 8,
    "RTX 5060 Ti 16GB": 16, "RTX 5070": 12, "RTX 5070 Ti": 16, "RTX 5080": 16, "RTX 5090": 32,
    "V100 16GB": 16, "V100 32GB": 32, "RTX A6000": 48, "RTX 6000 Ada": 48, "RTX PRO 6000": 96,
}  # fmt: skip
SIZE = re.compile(r"^(\d{1,4}(?:\.\d+)?)\s*(?:g|gb|gib)?$", re.IGNORECASE)
SMALLEST_GB, LARGEST_GB = 1, 1024


def parse_card(text: str) -> Card:
    """``24GB``, ``24`` or ``RTX 4090``. Raises UserError naming what would be understood."""
    size = SIZE.match(text.strip())
    if size is not None and SMALLEST_GB <= float(size[1]) <= LARGEST_GB:
        return Card(f"a {float(size[1]):g} GB card", int(float(size[1]) * (1 << 30)))
    wanted = _plain(text)
    named = [name for name in CARDS if _plain(name) == wanted]
    if named:
        return Card(named[0], CARDS[named[0]] << 30)
    raise _unknown(text, [name for name in CARDS if wanted and _plain(name).startswith(wanted)])


def _plain(name: str) -> str:
    """Letters and digits only: 'NVIDIA GeForce RTX 4090' and 'rtx4090' are the same card."""
    return re.sub(r"nvidia|geforce|[^a-z0-9]", "", name.lower())


def _unknown(text: str, alike: list[str]) -> UserError:
    shown = text if text.isprintable() and len(text) < 60 else "that"
    choices = f"'{alike[0]}' or '{alike[-1]}'" if alike else "'RTX 4090'"
    return UserError(
        f"There is no card {shown} in Hearth's list.",
        action=f"Give its size, for example '24GB', or a name like {choices}.",
    )
