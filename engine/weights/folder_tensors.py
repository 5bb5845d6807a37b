"""The tensors of a folder, grouped by the engine's names: a quantised matrix has several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearth.engine.weights.files import damaged, shown
from hearth.engine.weights.safetensors_file import open_safetensors
from hearth.engine.weights.schemes import PARTS, Module, is_unused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from hearth.engine.errors import UserError
    from hearth.engine.weights.safetensors_file import SafeTensor

WHOLE = "weight"  # the part of tensors that are stored alone


def group_tensors(
    shards: Iterable[Path],
    canonical: Callable[[str], str | None],
    unknown: Callable[[Path, str], UserError | None],
    known: Mapping[str, Module] | None = None,
) -> dict[str, Module]:
    """Modules by the engine's name, ``known`` ones among them. ``canonical`` translates a published
    name (with ``.weight``); for names that it does not know, ``unknown`` gives the refusal, or None
    to leave them out.

    Raises UserError for a tensor that occurs twice.
    """
    modules = dict(known or {})
    for shard in shards:
        for tensor in open_safetensors(shard).values():
            if is_unused(tensor.name):
                continue
            base, part = _split(tensor.name)
            name = canonical(base)
            if name is not None:
                _add(modules, name, part, tensor, shard)
            elif (refusal := unknown(shard, tensor.name)) is not None:
                raise refusal
    return modules


def _split(published: str) -> tuple[str, str]:
    """The name that a plain tensor would have, and which part of it this is."""
    module, _, last = published.rpartition(".")
    if last in PARTS:
        return f"{module}.weight", last
    return published, WHOLE


def _add(modules: dict[str, Module], name: str, part: str, tensor: SafeTensor, shard: Path) -> None:
    known = modules.get(name)
    if known is None:
        published = tensor.name.removesuffix(f".{part}")
        known = modules[name] = Module(name, published, shard, {})
    if part in known.parts:
        raise damaged(shard, f"tensor {shown(tensor.name)} occurs twice")
    modules[name] = Module(name, known.published, known.path, {**known.parts, part: tensor})
