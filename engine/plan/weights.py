"""Bytes of the weights, by the part of the model they belong to."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from hearth.engine.memory import REQUANTISED_PARTS, MemoryPart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearth.engine.weights.entries import WeightEntry

FLOAT_FORMATS = frozenset(("F32", "F16", "BF16"))
ATTENTION = frozenset(("q", "k", "v", "o", "q_bias", "k_bias", "v_bias"))
LINEAR = frozenset(("in_qkv", "in_z", "in_b", "in_a", "conv", "decay", "dt_bias", "out"))
MLP = frozenset(("gate", "up", "down"))
INT8_GROUPS = (128, 64, 32)  # inputs of a scale: the first that divides a row

# The processor's kernels keep codes of 4 or 8 bits, with scales and offsets of 2 or 4 bytes for
# every group of inputs (kernels/packing.py): (inputs, bytes) of one output's group. Where a scale
# is float16 or float32 by its value, the larger size is taken.
HOST_GROUPS = {
    "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 34), "Q5_1": (32, 36), "Q8_0": (32, 34),
    "Q2_K": (16, 16), "Q3_K": (16, 12), "Q4_K": (32, 24), "Q5_K": (32, 40), "Q6_K": (16, 20),
    "IQ4_NL": (32, 34), "IQ4_XS": (32, 36), "MXFP4": (32, 20), "NVFP4": (16, 12),
}  # fmt: skip
HOST_UNIT = 64  # outputs are padded to this
# Names of safetensors' schemes: int4 g32 asymmetric, int8 channel, FP8 block 128x128, MXFP8.
SCHEME = re.compile(r"(int4|int8|fp8|mxfp8)(?: (?:g(\d+)|(?:block )?\d+x(\d+)|channel|tensor))?"
                    r"( asymmetric)?(, activation order)?", re.IGNORECASE)  # fmt: skip
MXFP8_GROUP = 32
SHARED_GROUPS = (128, 64, 32, 16)  # a scale of more inputs is repeated for groups of these


def part_of(name: str) -> str:
    """The part that a tensor belongs to, by its canonical name."""
    if name.startswith("mtp."):
        return "mtp"
    if name in ("token_embd", "output"):
        return "embedding" if name == "token_embd" else "head"
    inner = name.rsplit(".", 1)[-1]
    parts = {"attention": ATTENTION, "linear": LINEAR, "mlp": MLP}
    return next((part for part, names in parts.items() if inner in names), "norms")


def weight_parts(
    tensors: Mapping[str, WeightEntry],
    *,
    use_mtp: bool,
    requantise: tuple[str, ...],
    is_host: bool,
) -> list[MemoryPart]:
    """Bytes by part. On a card a tensor takes what it takes in its file (decision D8), but for
    float matrices that are requantised; on the processor what its packed form takes."""
    sizes: dict[str, int] = {}
    for name, entry in tensors.items():
        part = part_of(name)
        if part == "mtp" and not use_mtp:
            continue
        if is_host:
            num_bytes = host_bytes(entry)
        elif part in requantise and shrinks(entry):
            num_bytes = int8_bytes(entry.shape)
        else:
            num_bytes = entry.num_bytes
        sizes[part] = sizes.get(part, 0) + num_bytes
    return [MemoryPart(part, num_bytes) for part, num_bytes in sizes.items()]


def requantised_parts(
    tensors: Mapping[str, WeightEntry], wanted: tuple[str, ...], *, use_mtp: bool
) -> tuple[str, ...]:
    """The parts of ``wanted`` with float matrices, which become int8."""
    found = {part_of(name) for name, entry in tensors.items() if shrinks(entry)}
    return tuple(p for p in wanted if p in found and (use_mtp or p != "mtp"))


def shrinks(entry: WeightEntry) -> bool:
    """Whether this is a float matrix of those that int8 hardly changes."""
    if len(entry.shape) != 2 or entry.format not in FLOAT_FORMATS:
        return False
    return part_of(entry.name) in REQUANTISED_PARTS and entry.shape[1] % INT8_GROUPS[-1] == 0


def int8_bytes(shape: tuple[int, ...]) -> int:
    """int8 with a float16 scale for every group of inputs."""
    rows, columns = shape
    group = next(group for group in INT8_GROUPS if columns % group == 0)
    return rows * (columns + 2 * (columns // group))


def host_bytes(entry: WeightEntry) -> int:
    """Bytes in the processor's memory, at most: vectors become float32, matrices are packed."""
    if len(entry.shape) != 2:
        return 4 * math.prod(entry.shape)
    rows, columns = entry.shape
    padded = -(-rows // HOST_UNIT) * HOST_UNIT
    group = HOST_GROUPS.get(entry.format) or _scheme_group(entry.format, columns)
    if group is None:  # floats stay as they are
        return entry.num_bytes * padded // rows
    inputs, num_bytes = group
    order = 4 * columns if "activation order" in entry.format else 0
    return padded * (columns // inputs) * num_bytes + order


def _scheme_group(name: str, columns: int) -> tuple[int, int] | None:
    """As in ``HOST_GROUPS``, for matrices of safetensors' schemes; None for other names."""
    match = SCHEME.fullmatch(name)
    if match is None:
        return None
    kind, group, block, has_offsets, _ = match.groups()
    inputs = int(group) if group else math.gcd(columns, int(block)) if block else columns
    if group is None:
        inputs = next((size for size in SHARED_GROUPS if inputs % size == 0), inputs)
    if kind.lower() == "mxfp8":
        inputs = MXFP8_GROUP
    bits = 4 if kind == "int4" else 8
    return inputs, inputs * bits // 8 + (8 if has_offsets else 4)


def has_quantised_layers(tensors: Mapping[str, WeightEntry]) -> bool:
    """Whether some matrix of a layer has to be unpacked before a wide pass multiplies with it."""
    return any(
        part_of(name) in ("attention", "linear", "mlp") and entry.format not in FLOAT_FORMATS
        for name, entry in tensors.items()
    )
