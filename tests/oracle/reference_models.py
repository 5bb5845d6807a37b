"""The same weights in transformers and in Hearth's decoder, for comparing their logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hearth.engine.cache.pages import PageArena
from hearth.engine.check.reference import HF_LAYER_NAMES, HF_NAMES, hf_name, reference_of
from hearth.engine.model.decoder import Decoder, DraftRow, Limits, RowRun, load_weights
from hearth.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hearth.engine.weights.model_files import ModelFiles

__all__ = ["HF_LAYER_NAMES", "HF_NAMES", "HearthLogits", "hf_name", "reference_of"]


class HearthLogits:
    """Hearth's decoder for one text: logits of every position, in passes of any size."""

    def __init__(self, files: ModelFiles, *, max_tokens: int) -> None:
        weights = load_weights(files, lambda done, total: None)
        config = files.config
        num_pages = -(-max_tokens // PAGE_TOKENS)
        arena = PageArena(num_pages, config.num_attention_layers, Decoder.page_floats(config))
        self._decoder = Decoder(weights, Limits(max_tokens, max_tokens, 1, max_tokens), arena.pages)
        inputs = self._decoder.inputs
        inputs.page_table[0] = torch.arange(num_pages, dtype=torch.int32)
        inputs.logit_rows[:] = torch.arange(max_tokens, dtype=torch.int32)
        self._num_done = 0

        self.restart()

    def restart(self) -> None:
        self._num_done = 0
        self._decoder.begin(0, None, 0)

    def feed(self, ids: Sequence[int]) -> torch.Tensor:
        """Logits [len(ids), V] behind each of ``ids``, which continue what was fed before."""
        count = len(ids)
        self._decoder.inputs.place(0, 0, self._num_done, ids)
        self._num_done += count
        return self._decoder.forward(count, count, [RowRun(0, 0, count, commits=True)]).clone()

    def draft(self, anchor: int, drafted: Sequence[int]) -> NDArray[np.float32]:
        """Logits [1 + len(drafted), V] of the MTP module behind the anchor and each draft."""
        pages = tuple(self._decoder.inputs.page_table[0].tolist())
        rows = [
            DraftRow(0, token, self._num_done + step, pages)
            for step, token in enumerate((anchor, *drafted))
        ]
        lines = [self._decoder.draft([row], is_first=row is rows[0]).clone() for row in rows]
        return torch.cat(lines).numpy()


class HearthBatch:
    """Several texts in the same passes."""

    def __init__(self, files: ModelFiles, count: int, *, max_tokens: int) -> None:
        weights = load_weights(files, lambda done, total: None)
        config, rows = files.config, count * max_tokens
        pages_each = -(-max_tokens // PAGE_TOKENS)
        arena = PageArena(
            count * pages_each, config.num_attention_layers, Decoder.page_floats(config)
        )
        self._decoder = Decoder(weights, Limits(rows, rows, count, max_tokens), arena.pages)
        ids = torch.arange(count * pages_each, dtype=torch.int32)
        self._decoder.inputs.page_table[:] = ids.view(count, -1)
        self._done = [0] * count
        for slot in range(count):
            self._decoder.begin(slot, None, 0)

    def feed(self, texts: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """Logits [n, V] behind each token of every text, which continues what it was fed before."""
        runs, row = [], 0
        for slot, ids in enumerate(texts):
            self._decoder.inputs.place(row, slot, self._done[slot], ids)
            runs.append(RowRun(slot, row, len(ids), commits=True))
            self._done[slot] += len(ids)
            row += len(ids)
        self._decoder.inputs.logit_rows[:row] = torch.arange(row, dtype=torch.int32)
        logits = self._decoder.forward(row, row, runs).clone()
        return list(logits.split([len(ids) for ids in texts]))
