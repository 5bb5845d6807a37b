"""Drafting by the model's own MTP module: its steps for several replies side by side.

Each step predicts one token from the last one and a hidden state: the model's in the first step,
the module's own in the others (Qwen3.5's multi-token prediction). Only positions from the last
known token on are written, and the next pass writes them again from true data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearth.engine.model.decoder import DraftRow

if TYPE_CHECKING:
    from collections.abc import Sequence as Seq

    from hearth.engine.model.decoder import Decoder
    from hearth.engine.sequence import Sequence


def draft_by_mtp(decoder: Decoder, sequences: Seq[Sequence]) -> None:
    """Give every sequence its drafts of this round; their pages are there."""
    drafts: dict[int, list[int]] = {sequence.slot: [] for sequence in sequences}
    for step in range(max(sequence.mtp_depth for sequence in sequences)):
        going = [sequence for sequence in sequences if step < sequence.mtp_depth]
        rows = [_row(sequence, drafts[sequence.slot]) for sequence in going]
        logits = decoder.draft(rows, is_first=step == 0).numpy()
        for sequence, line in zip(going, logits, strict=True):
            drafts[sequence.slot].append(sequence.guess(line, step))
    for sequence in sequences:
        sequence.take_drafts(drafts[sequence.slot])


def _row(sequence: Sequence, drafted: list[int]) -> DraftRow:
    last = drafted[-1] if drafted else sequence.ids[-1]
    position = len(sequence.ids) - 1 + len(drafted)
    return DraftRow(sequence.slot, last, position, tuple(sequence.pages))
