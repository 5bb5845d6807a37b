"""Wide matrices that cost speed (head, embeddings, MTP) narrowed while a model is opened.

Published checkpoints often leave them in bf16. They become symmetric integers in groups along the
input, rounded to nearest: ``scale = amax / qmax`` (qmax 127 or 7), rounded up to float16 so that no
code is clipped, ``code = round(weight / scale)``. A weight moves by at most scale / 2.

Rows are read, rounded and packed in slabs: beside the packed matrix itself at most ``SLAB_BYTES``
exist at any time. Nothing is narrowed unless a ``Requantise`` says so; it then shows in the format
of the tensor ("int8 g128 (made here)"), in ``ModelInfo`` and in the fingerprint.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch

from hearth.engine.errors import UserError
from hearth.engine.weights.entries import TensorEntry
from hearth.engine.weights.files import shown
from hearth.kernels import ggml_blocks, packing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearth.engine.weights.entries import WeightEntry
    from hearth.engine.weights.model_files import ModelFiles

Kind = Literal["int8", "int4"]
KINDS: tuple[Kind, ...] = ("int8", "int4")  # the finer first
BITS = {"int8": 8, "int4": 4}
GROUPS = (128, 64, 32)  # the first that divides K; a matrix that none divides is left alone
SLAB_WEIGHTS = 1 << 20
SLAB_BYTES = 16 << 20  # what rounding and packing a slab takes: 8.6 MB measured
VERSION = 1  # part of the fingerprint: changes when the same weights give other codes
MADE_HERE = "(made here)"


@dataclass(frozen=True, slots=True)
class Requantise:
    """What to narrow, and to what; None keeps a part as published.

    A tied embedding is one matrix: it becomes the finer of what head and embedding ask for. ``mtp``
    means all matrices of the MTP module.
    """

    head: Kind | None = None
    embedding: Kind | None = None
    mtp: Kind | None = None

    def kind_of(self, name: str, *, is_tied: bool) -> Kind | None:
        """What the engine's tensor ``name`` becomes."""
        if name == "token_embd" and is_tied:
            wanted = (self.head, self.embedding)
            return next((kind for kind in KINDS if kind in wanted), None)
        if name == "token_embd":
            return self.embedding
        if name == "output":
            return self.head
        return self.mtp if name.startswith("mtp.") else None


KEEP = Requantise()
# What "auto" means on the CPU. An int8 head costs no measurable quality, but a CPU's promise is to
# agree with the float32 reference (docs/decisions.md).
AUTOMATIC = KEEP


@dataclass(frozen=True, slots=True)
class RequantisedEntry:
    """A ``WeightEntry``: a wide matrix as symmetric integers."""

    source: TensorEntry
    kind: Kind
    group: int

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    @property
    def format(self) -> str:
        return f"{self.kind} g{self.group} {MADE_HERE}"

    @property
    def num_bytes(self) -> int:
        """Codes and scales: what is held, not what the file has."""
        num_rows, columns = self.shape
        return num_rows * (columns * BITS[self.kind] // 8 + columns // self.group * 2)

    def packed(self) -> packing.PackedLinear:
        bits = BITS[self.kind]
        form = packing.WeightFormat(bits=bits, bias=1 << (bits - 1), group=self.group)
        return packing.pack_slabs((self.shape[0], self.shape[1]), form, self._slabs())

    def values(self) -> torch.Tensor:
        return torch.cat([slab.values() for slab in self._slabs()])

    def parts(self) -> Iterator[tuple[str, torch.Tensor]]:
        for what, stored in self.source.parts():
            yield f"{what} {self.format}", stored

    def _slabs(self) -> Iterator[ggml_blocks.Blocks]:
        num_rows, columns = self.shape
        for rows in packing.row_slabs(num_rows, columns, SLAB_WEIGHTS):
            slab = rounded(self.source.row_values(rows), BITS[self.kind], self.group)
            if not bool(torch.isfinite(slab.scales).all()):
                raise UserError(
                    f"{shown(self.name)} holds weights that are no sensible numbers.",
                    action="Download the model again, or choose another version.",
                )
            yield slab


def rounded(values: torch.Tensor, bits: int, group: int) -> ggml_blocks.Blocks:
    """float32 [R, K] as signed codes; scales are float16 values, infinite or NaN when a group has
    values that no float16 scale reaches."""
    num_rows, columns = values.shape
    highest = (1 << (bits - 1)) - 1
    grouped = values.view(num_rows, columns // group, group)
    scales = _half_above(grouped.abs().amax(dim=2) / highest)
    divisors = torch.where(scales > 0.0, scales, 1.0).unsqueeze(2)
    codes = (grouped / divisors).round_().clamp_(-highest, highest).to(torch.int8)
    return ggml_blocks.Blocks(codes.view(num_rows, columns), scales, None, group)


def _half_above(values: torch.Tensor) -> torch.Tensor:
    """The next float16 value that is not below; non-negative float32 in and out."""
    halves = values.half()
    is_below = (halves.float() < values).to(torch.int16)
    return (halves.view(torch.int16) + is_below).view(torch.float16).float()


def requantised(files: ModelFiles, policy: Requantise) -> ModelFiles:
    """``files`` with the matrices narrowed that ``policy`` names and that are wide; the fingerprint
    changes with them."""
    is_tied = files.config.tie_word_embeddings
    tensors = {
        name: _narrowed(entry, policy.kind_of(name, is_tied=is_tied))
        for name, entry in files.tensors.items()
    }
    changed = [f"{name} {entry.format}" for name, entry in tensors.items() if _is_ours(entry)]
    if not changed:
        return files
    origin = f"{files.fingerprint} {VERSION} {' '.join(sorted(changed))}"
    fingerprint = hashlib.blake2b(origin.encode(), digest_size=16).hexdigest()
    return replace(files, tensors=tensors, fingerprint=fingerprint)


def _narrowed(entry: WeightEntry, kind: Kind | None) -> WeightEntry:
    if kind is None or not isinstance(entry, TensorEntry) or len(entry.shape) != 2:
        return entry
    group = next((group for group in GROUPS if entry.shape[1] % group == 0), None)
    if group is None or entry.ggml_type not in ggml_blocks.FLOAT_DTYPES:
        return entry
    return RequantisedEntry(entry, kind, group)


def _is_ours(entry: WeightEntry) -> bool:
    return isinstance(entry, RequantisedEntry)


def made_here(files: ModelFiles) -> str | None:
    """For people: "head int8 g128, MTP int4 g128 (made here)"; None when all is as published."""
    formats: dict[str, None] = {}
    for name, entry in files.tensors.items():
        if _is_ours(entry):
            part = _part_of(name, is_tied=files.config.tie_word_embeddings)
            formats[f"{part} {entry.format.removesuffix(MADE_HERE).strip()}"] = None
    return f"{', '.join(formats)} {MADE_HERE}" if formats else None


def _part_of(name: str, *, is_tied: bool) -> str:
    if name == "token_embd":
        return "embedding and head" if is_tied else "embedding"
    return "head" if name == "output" else "MTP"
