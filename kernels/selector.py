"""The candidate selector: the best tokens of a row, and their scores behind a predecessor."""

from __future__ import annotations

import torch


def top_candidates(logits: torch.Tensor, count: int) -> torch.Tensor:
    """int64 [count]: ids of the largest of logits [V], ascending; of equals the lowest ids.

    ``topk`` alone promises nothing about equals, and a proposal has to come out the same again.
    """
    count = min(count, logits.shape[0])
    threshold = logits.topk(count).values[-1]
    above = (logits > threshold).nonzero().flatten()
    equal = (logits == threshold).nonzero().flatten()[: count - len(above)]
    return torch.cat((above, equal)).sort().values


def edge_scores(
    unary: torch.Tensor, predecessor: torch.Tensor, hidden: torch.Tensor, successors: torch.Tensor
) -> torch.Tensor:
    """float32 [C]: unary[c] + Σ_r predecessor[r] · hidden[r] · successors[c, r].

    unary [C], predecessor [R] (the codebook's row of the token before), hidden [R] (projected, of
    the candidates' own row), successors [C, R].
    """
    assert successors.shape == (len(unary), len(hidden)), "a codebook row for every candidate"
    return unary + successors @ (predecessor * hidden)
