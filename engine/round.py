"""One forward pass over mixed rows: decode and verify rows of every reply, pieces of prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hearth.engine.model.decoder import RowRun

if TYPE_CHECKING:
    from collections.abc import Sequence as Seq

    import numpy as np
    from numpy.typing import NDArray

    from hearth.engine.model.decoder import Decoder
    from hearth.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive positions of one request: ids from ``start`` on. ``num_logits`` of its last rows
    need logits. ``commits``: its rows are part of the text for certain, none is a draft."""

    sequence: Sequence
    ids: tuple[int, ...]
    start: int
    num_logits: int
    commits: bool

    def __post_init__(self) -> None:
        assert self.ids, "a segment has rows"
        assert 0 <= self.num_logits <= len(self.ids), "logits belong to rows"


def run_round(decoder: Decoder, segments: Seq[Segment]) -> list[NDArray[np.float32]]:
    """Run all segments in one pass; logits [num_logits, V] for each, views until the next pass."""
    inputs = decoder.inputs
    row = logit_row = 0
    logit_rows: list[int] = []
    runs: list[RowRun] = []
    for segment in segments:
        slot, count = segment.sequence.slot, len(segment.ids)
        inputs.place(row, slot, segment.start, segment.ids)
        pages = torch.tensor(segment.sequence.pages, dtype=torch.int32)
        inputs.page_table[slot, : len(pages)] = pages
        runs.append(RowRun(slot, row, count, segment.commits))
        row += count
        logit_rows += range(row - segment.num_logits, row)
    inputs.logit_rows[: len(logit_rows)] = torch.tensor(logit_rows, dtype=torch.int32)
    logits = decoder.forward(row, len(logit_rows), runs).numpy()
    result = []
    for segment in segments:
        result.append(logits[logit_row : logit_row + segment.num_logits])
        logit_row += segment.num_logits
    return result
