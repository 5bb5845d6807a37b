"""JSON from model folders, bounded in size, count and depth before it becomes Python objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn

from hearth.engine.errors import UserError
from hearth.engine.weights.files import damaged, shown, unreadable

if TYPE_CHECKING:
    from pathlib import Path

MAX_FILE_BYTES = 16 << 20  # a tokenizer_config.json with many added tokens has 1 MB
# A few bytes of JSON become 50 to 100 bytes of objects. A header of 60,000 tensors has 180,000
# brackets and 360,000 commas.
MAX_BRACKETS = 1 << 19
MAX_COMMAS = 1 << 20


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of bounded size; a missing or broken file is a UserError naming it."""
    return parse_json(path, read_bytes(path))


def read_bytes(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise UserError(
                f"{shown(path.parent.name)} has no file {shown(path.name)}.",
                action="Choose a folder with config.json, tokenizer.json and safetensors files.",
            )
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(data) > MAX_FILE_BYTES:
        raise damaged(path, "it is too large for a configuration file")
    return data


def read_text(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise damaged(path, "it is not UTF-8") from error


def parse_json(path: Path, data: bytes) -> dict[str, Any]:
    """The object that ``data`` from ``path`` spells. Duplicate names, NaN and infinities are
    damage: readers disagree about them."""
    if data.count(b"[") + data.count(b"{") > MAX_BRACKETS or data.count(b",") > MAX_COMMAS:
        raise damaged(path, "its JSON is absurdly large")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise damaged(path, "a name occurs twice in its JSON")
        return result

    def no_number(constant: str) -> NoReturn:
        raise damaged(path, f"its JSON holds {constant}")

    try:
        text = data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=unique, parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        raise damaged(path, "it is not JSON") from error
    if not isinstance(value, dict):
        raise damaged(path, "it is not a JSON object")
    return value
