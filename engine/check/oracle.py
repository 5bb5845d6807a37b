"""``hearth check oracle``: logits and greedy text against transformers in float32.

transformers reads prompt and reply once; each token of the reply must be its argmax at that place,
so the first difference would show. The logits of the prompts are compared in the same pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hearth.engine.bench import corpus
from hearth.engine.bench.session import Outcome, Session
from hearth.engine.cache.pages import PageArena
from hearth.engine.check.reference import reference_of
from hearth.engine.model.decoder import Decoder, Limits, RowRun, load_weights
from hearth.engine.protocol import Drafting
from hearth.engine.text.prompt import load_text
from hearth.engine.weights.model_files import ModelFiles, open_model
from hearth.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from pathlib import Path

    from hearth.engine.bench.output import Reporter

MAX_RELATIVE_ERROR = 1e-3


def check_oracle(model: Path, num_prompts: int, num_tokens: int, report: Reporter) -> bool:
    """True when every logit is within 1e-3 (relative to the reference's norm) and every greedy
    token is the reference's."""
    files = open_model(model)
    reference = reference_of(files)
    with Session(model) as session:
        requests = [
            session.request(text, max_tokens=num_tokens, ignore_end=True, drafting=Drafting.AUTO)
            for text in corpus.prompts()[:num_prompts]
        ]
        outcomes = session.run_all(requests)
    held = True
    for number, outcome in enumerate(outcomes):
        error, equal = _compare(files, reference, outcome)
        report.record(
            "oracle",
            {
                "prompt": number,
                "prompt_tokens": len(outcome.prompt_ids),
                "relative_error": error,
                "greedy_tokens": len(outcome.token_ids),
                "equal_tokens": equal,
            },
        )
        held &= error <= MAX_RELATIVE_ERROR and equal == len(outcome.token_ids)
    return held


def _compare(files: ModelFiles, reference: Any, outcome: Outcome) -> tuple[float, int]:
    """Relative error of the prompt's logits, and how many reply tokens are the reference's."""
    ids = outcome.prompt_ids + outcome.token_ids
    num_prompt = len(outcome.prompt_ids)
    with torch.no_grad():
        expected = reference(torch.tensor([ids])).logits[0]
    ours = prompt_logits(files, outcome.prompt_ids)
    wanted = expected[:num_prompt]
    error = float((ours - wanted).norm() / wanted.norm())
    # Rows of the matrix that are no tokens are never drawn; the reference does not know them.
    vocabulary = load_text(files.text).vocabulary
    drawn = [
        int(vocabulary.drawable(row).argmax()) for row in expected[num_prompt - 1 : -1].numpy()
    ]
    return error, sum(a == b for a, b in zip(drawn, outcome.token_ids, strict=True))


def prompt_logits(files: ModelFiles, ids: tuple[int, ...]) -> torch.Tensor:
    """Hearth's logits [len(ids), V] of every position, in one pass."""
    config, count = files.config, len(ids)
    num_pages = -(-count // PAGE_TOKENS)
    arena = PageArena(num_pages, config.num_attention_layers, Decoder.page_floats(config))
    weights = load_weights(files, lambda done, total: None)
    decoder = Decoder(weights, Limits(count, count, 1, count), arena.pages)
    inputs = decoder.inputs
    inputs.page_table[0] = torch.arange(num_pages, dtype=torch.int32)
    inputs.logit_rows[:] = torch.arange(count, dtype=torch.int32)
    inputs.place(0, 0, 0, ids)
    decoder.begin(0, None, 0)
    return decoder.forward(count, count, [RowRun(0, 0, count, commits=True)]).clone()
