"""The hybrid family against transformers in float32, in passes of every size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from hybrid_models import VARIANTS, VOCAB, random_model, save
from reference_models import HearthBatch, HearthLogits

from hearth.engine.weights.model_files import open_model

if TYPE_CHECKING:
    from pathlib import Path

CHUNK = 64  # rows of a chunk in the reference's matrix form


def random_ids(count: int, seed: int = 1) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count,), generator=generator).tolist()


def logits_of(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


def relative_error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_of_every_variant(tmp_path: Path, variant: str) -> None:
    model = random_model(**VARIANTS[variant])
    ids = random_ids(200)
    hearth = HearthLogits(open_model(save(model, tmp_path)), max_tokens=len(ids))
    assert relative_error(hearth.feed(ids), logits_of(model, ids)) < 1e-4


def test_every_split_around_chunk_boundaries(tmp_path: Path) -> None:
    model = random_model()
    ids = random_ids(2 * CHUNK + 2)
    theirs = logits_of(model, ids)
    hearth = HearthLogits(open_model(save(model, tmp_path)), max_tokens=len(ids))
    whole = hearth.feed(ids)
    assert relative_error(whole, theirs) < 1e-4
    for cut in (1, 2, 3, 4, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK - 1, 2 * CHUNK, 2 * CHUNK + 1):
        hearth.restart()
        assert torch.equal(torch.cat((hearth.feed(ids[:cut]), hearth.feed(ids[cut:]))), whole)
    hearth.restart()
    assert torch.equal(torch.cat([hearth.feed([token]) for token in ids]), whole)


def test_200_greedy_tokens(tmp_path: Path) -> None:
    model = random_model(seed=8)
    prompt = random_ids(70, seed=2)
    with torch.no_grad():
        theirs = model.generate(
            torch.tensor([prompt]), max_new_tokens=200, min_new_tokens=200, do_sample=False
        )[0, len(prompt) :].tolist()
    hearth = HearthLogits(open_model(save(model, tmp_path)), max_tokens=len(prompt) + 200)
    ours, logits = [], hearth.feed(prompt)[-1]
    for _ in range(200):
        masked = logits.clone()
        masked[256] = -torch.inf  # min_new_tokens forbids the end
        ours.append(int(masked.argmax()))
        logits = hearth.feed(ours[-1:])[0]
    assert len(set(ours)) > 20, "a loop would prove little"
    assert ours == theirs


def test_mrope_axes_are_those_of_transformers(tmp_path: Path) -> None:
    from hearth.engine.model.rope import rope_tables

    model = random_model(head_dim=64, num_key_value_heads=1)
    config = open_model(save(model, tmp_path)).config
    rope = rope_tables(config, 512)
    positions = torch.randint(0, 512, (3, 1, 40))
    cos, sin = model.model.rotary_emb(torch.zeros(1, 1, 1), positions)
    turned = positions[rope.axes.long(), 0].t()
    frequencies = torch.arange(len(rope.axes))
    assert (rope.cos[turned, frequencies] - cos[0, :, : len(rope.axes)]).abs().max() < 1e-6
    assert (rope.sin[turned, frequencies] - sin[0, :, : len(rope.axes)]).abs().max() < 1e-6
    assert config.vocab_size == VOCAB


def test_the_oracle_command_s_reference(tmp_path: Path) -> None:
    """What was loaded, given back to transformers, is the model that was saved."""
    from hearth.engine.check.oracle import prompt_logits
    from hearth.engine.check.reference import reference_of

    model = random_model()
    ids = random_ids(40)
    files = open_model(save(model, tmp_path))
    theirs = logits_of(model, ids)
    assert relative_error(logits_of(reference_of(files), ids), theirs) < 1e-5
    assert relative_error(prompt_logits(files, tuple(ids)), theirs) < 1e-4


def test_a_batch_of_unequal_lengths(tmp_path: Path) -> None:
    """Three texts in the same passes: prompts of 5, 70 and 33 tokens, then a token of each."""
    model = random_model()
    files = open_model(save(model, tmp_path))
    texts = [random_ids(length + 4, seed=length) for length in (5, 70, 33)]
    batch = HearthBatch(files, len(texts), max_tokens=128)
    done = [len(text) - 4 for text in texts]
    logits = batch.feed([text[:count] for text, count in zip(texts, done, strict=True)])
    for step in range(4):
        new = batch.feed([[text[count + step]] for text, count in zip(texts, done, strict=True)])
        logits = [torch.cat(pair) for pair in zip(logits, new, strict=True)]
    for text, ours in zip(texts, logits, strict=True):
        assert relative_error(ours, logits_of(model, text)) < 1e-4
