"""Greedy text against transformers in float32: 200 tokens of ten prompts, every one the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from reference_models import reference_of

from hearth.engine.bench import corpus
from hearth.engine.bench.session import Session
from hearth.engine.protocol import Drafting
from hearth.engine.weights.model_files import open_model

if TYPE_CHECKING:
    from pathlib import Path

NUM_PROMPTS, NUM_TOKENS = 10, 200


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_greedy_text_equals_transformers(starter_model: Path) -> None:
    """transformers reads prompt and reply once; each token must be its argmax at that place, so
    the first difference would show, and with it how close the two candidates were."""
    reference = reference_of(open_model(starter_model))
    with Session(starter_model) as session:
        requests = [
            session.request(prompt, max_tokens=NUM_TOKENS, ignore_end=True, drafting=Drafting.AUTO)
            for prompt in corpus.prompts()[:NUM_PROMPTS]
        ]
        outcomes = session.run_all(requests)
    differences = []
    for number, outcome in enumerate(outcomes):
        ids = torch.tensor([outcome.prompt_ids + outcome.token_ids])
        with torch.no_grad():
            logits = reference(ids).logits[0, len(outcome.prompt_ids) - 1 : -1]
        ours = torch.tensor(outcome.token_ids)
        wrong = (logits.argmax(1) != ours).nonzero().flatten().tolist()
        for place in wrong:
            row = logits[place]
            gap = float((row.max() - row[ours[place]]) / row.abs().max())
            differences.append((number, place, gap))
    assert all(len(outcome.token_ids) == NUM_TOKENS for outcome in outcomes)
    assert not differences, f"(prompt, token, relative gap): {differences}"
