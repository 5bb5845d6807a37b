"""The MTP module in float64: the model specification's section 5, drafted with as the drafters'
specification says in its section 3. Tensors as in ``hybrid``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from float64.hybrid import (
    Array,
    attention,
    axes_of,
    head_of,
    mlp,
    part,
    rms_norm,
    rope_angles,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hearth.engine.model.config import ModelConfig


def mtp_forward(
    tensors: Mapping[str, Array],
    config: ModelConfig,
    hidden: Array,
    ids: Sequence[int],
    positions: Array | None = None,
) -> dict[str, Array]:
    """Pairs (h_t, x_{t+1}) from the start: ``hidden`` [T, H] is the target's behind its final
    norm, ``ids[t]`` the token after it. ``positions`` as in ``hybrid.forward``, entry t at
    position t when not given.

    Returns ``hidden`` m [T, H] and ``logits`` [T, V]; row t is about token t + 2.
    """
    assert len(hidden) == len(ids), "a hidden state for each token"
    eps, layer = config.rms_norm_eps, part(tensors, "mtp.layers.0.")
    embedded = tensors["token_embd"][np.asarray(ids)].astype(np.float64)
    e = rms_norm(embedded, tensors["mtp.embedding_norm"], eps)
    y = rms_norm(np.asarray(hidden, dtype=np.float64), tensors["mtp.hidden_norm"], eps)
    u = np.concatenate([e, y], axis=1) @ tensors["mtp.fc"].T  # the embedding's half first
    angles = rope_angles(config, axes_of(positions, len(ids)))
    u = u + attention(layer, config, rms_norm(u, layer["attn_norm"], eps), angles)
    u = u + mlp(layer, rms_norm(u, layer["ffn_norm"], eps))
    m = rms_norm(u, tensors["mtp.norm"], eps)
    return {"hidden": m, "logits": m @ head_of(tensors, config).T}


def lowest_argmax(logits: Array) -> int:
    return int(np.argmax(logits))


def mtp_draft(
    tensors: Mapping[str, Array],
    config: ModelConfig,
    hidden: Array,
    ids: Sequence[int],
    depth: int,
    choose: Callable[[Array], int] = lowest_argmax,
) -> tuple[list[int], Array]:
    """A round of ``depth`` drafted tokens behind the pairs (h_t, x_{t+1}) of the whole text.

    The next pair is always (m, drafted token). Everything is computed again at every step: what an
    engine keeps in a cache cannot matter. Returns the tokens and their logits [depth, V].
    """
    hidden, ids = np.asarray(hidden, dtype=np.float64), list(ids)
    drafted: list[int] = []
    logits = []
    for _ in range(depth):
        result = mtp_forward(tensors, config, hidden, ids)
        logits.append(result["logits"][-1])
        drafted.append(choose(result["logits"][-1]))
        hidden = np.concatenate([hidden, result["hidden"][-1:]])
        ids.append(drafted[-1])
    return drafted, np.stack(logits)
