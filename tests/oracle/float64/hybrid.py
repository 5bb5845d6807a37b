"""The hybrid family (Gated DeltaNet and gated attention) in float64, one equation at a time.

Section numbers are those of the family's model specification. Tensors have the engine's canonical
names and values: norm weights are 1 + w already, ``decay`` is -exp(A_log), ``conv`` is
[channels, taps]. Nothing here is shared with the engine but the sizes in ``ModelConfig``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hearth.engine.model.config import LinearAttention, ModelConfig

Array = np.ndarray
L2_EPS = 1e-6  # section 4.3
CHUNK = 64  # section 4.4


def forward(
    tensors: Mapping[str, Array],
    config: ModelConfig,
    ids: Sequence[int],
    positions: Array | None = None,
) -> dict[str, object]:
    """The whole model over one text from its start (section 2).

    ``positions``: [T], or [3, T] of time, height and width; 0..T-1 when not given. Returns
    ``logits`` [T, V], ``hidden`` [T, H] (behind the final norm) and ``taps``: layer -> the residual
    [T, H] behind that layer.
    """
    assert config.rope_scaling is None, "stretched positions are not specified for this family"
    x = tensors["token_embd"][np.asarray(ids)].astype(np.float64)
    angles = rope_angles(config, axes_of(positions, len(ids)))
    taps = {}
    for layer, kind in enumerate(config.kinds):
        inner = part(tensors, f"layers.{layer}.")
        h = rms_norm(x, inner["attn_norm"], config.rms_norm_eps)
        is_linear = kind == "linear_attention"
        x = x + (
            gated_delta_net(inner, config, h) if is_linear else attention(inner, config, h, angles)
        )
        h = rms_norm(x, inner["ffn_norm"], config.rms_norm_eps)
        x = x + mlp(inner, h)
        taps[layer] = x
    hidden = rms_norm(x, tensors["output_norm"], config.rms_norm_eps)
    return {"logits": hidden @ head_of(tensors, config).T, "hidden": hidden, "taps": taps}


def head_of(tensors: Mapping[str, Array], config: ModelConfig) -> Array:
    return tensors["token_embd" if config.tie_word_embeddings else "output"]


def part(tensors: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The tensors below ``prefix``, without it."""
    return {
        name.removeprefix(prefix): value.astype(np.float64)
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


# ------------------------------------------------------------------------------------ section 2


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """y = x / sqrt(mean(x²) + eps) · weight over the last axis; ``weight`` is the whole factor."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def mlp(layer: Mapping[str, Array], h: Array) -> Array:
    """W_down( SiLU(W_gate h) ⊙ (W_up h) )."""
    return (silu(h @ layer["gate"].T) * (h @ layer["up"].T)) @ layer["down"].T


# ------------------------------------------------------------------------------------ section 3


def axes_of(positions: Array | None, length: int) -> Array:
    """[3, T]: a text token's three positions are equal."""
    if positions is None:
        positions = np.arange(length)
    positions = np.asarray(positions, dtype=np.float64)
    return positions if positions.ndim == 2 else np.stack([positions] * 3)


def rope_angles(config: ModelConfig, axes: Array) -> Array:
    """θ_i = p · theta^(−2i/R) [T, R/2], R rotated dimensions; p is the height for i % 3 == 1, the
    width for i % 3 == 2, each up to three times its section, the time otherwise (mRoPE)."""
    size = config.rope_dim
    angles = np.empty((axes.shape[1], size // 2))
    for i in range(size // 2):
        axis = 0
        if config.mrope_section is not None and i % 3 and i < 3 * config.mrope_section[i % 3]:
            axis = i % 3
        angles[:, i] = axes[axis] * float(config.rope_theta) ** (-2.0 * i / size)
    return angles


def rotate(heads: Array, angles: Array) -> Array:
    """Half rotation of the first R dimensions of [T, heads, D]: (a, b) = (u_i, u_{i+R/2})."""
    half = angles.shape[1]
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b, rest = heads[..., :half], heads[..., half : 2 * half], heads[..., 2 * half :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def attention(layer: Mapping[str, Array], config: ModelConfig, h: Array, angles: Array) -> Array:
    """Gated full attention over all rows, causal. q_proj gives, head by head, query then gate."""
    length, size = len(h), config.head_dim
    q_gate = (h @ layer["q"].T).reshape(length, config.num_attention_heads, 2 * size)
    q, gate = q_gate[..., :size], q_gate[..., size:]
    k = (h @ layer["k"].T).reshape(length, config.num_key_value_heads, size)
    v = (h @ layer["v"].T).reshape(length, config.num_key_value_heads, size)
    q = rotate(rms_norm(q, layer["q_norm"], config.rms_norm_eps), angles)
    k = rotate(rms_norm(k, layer["k_norm"], config.rms_norm_eps), angles)
    group = config.num_attention_heads // config.num_key_value_heads
    out = np.empty_like(q)
    for head in range(config.num_attention_heads):
        for row in range(length):
            keys, values = k[: row + 1, head // group], v[: row + 1, head // group]
            out[row, head] = softmax(keys @ q[row, head] * size**-0.5) @ values
    return (out * sigmoid(gate)).reshape(length, -1) @ layer["o"].T


# ------------------------------------------------------------------------------------ section 4


class DeltaRows(NamedTuple):
    """What the recurrence of section 4.3 reads, by value head: q and k normalised, q scaled."""

    q: Array  # [T, Hv, dk]
    k: Array  # [T, Hv, dk]
    v: Array  # [T, Hv, dv]
    g: Array  # [T, Hv], log of the decay
    beta: Array  # [T, Hv]


def gated_delta_net(layer: Mapping[str, Array], config: ModelConfig, h: Array) -> Array:
    """The whole mixer over rows that start a text."""
    linear = config.linear
    assert linear is not None, "the configuration has linear layers"
    rows = delta_rows(layer, linear, h)
    z = (h @ layer["in_z"].T).reshape(len(h), linear.num_value_heads, linear.value_head_dim)
    o, _ = recurrent(rows, first_state(rows))
    # The gated norm of section 2: normalise first, gate after; its weight is plain.
    o = rms_norm(o, layer["gdn_norm"], config.rms_norm_eps) * silu(z)
    return o.reshape(len(h), -1) @ layer["out"].T


def delta_rows(layer: Mapping[str, Array], linear: LinearAttention, h: Array) -> DeltaRows:
    """Projections, convolution, gates and norms of sections 4.1 to 4.3."""
    length, heads = len(h), linear.num_value_heads
    c = causal_convolution(h @ layer["in_qkv"].T, layer["conv"])
    key, size = linear.num_key_heads * linear.key_head_dim, linear.key_head_dim
    q = c[:, :key].reshape(length, linear.num_key_heads, size)
    k = c[:, key : 2 * key].reshape(length, linear.num_key_heads, size)
    v = c[:, 2 * key :].reshape(length, heads, linear.value_head_dim)
    q, k = l2_normalised(q) * size**-0.5, l2_normalised(k)
    key_heads = [key_head_of(head, linear) for head in range(heads)]
    beta = sigmoid(h @ layer["in_b"].T)
    g = layer["decay"] * softplus(h @ layer["in_a"].T + layer["dt_bias"])
    return DeltaRows(q[:, key_heads], k[:, key_heads], v, g, beta)


def causal_convolution(u: Array, taps: Array) -> Array:
    """c_t = SiLU( Σ_j W[:, j] u_{t−n+1+j} ), u before the start zero; the last tap is the row's own
    (section 4.1)."""
    length, count = len(u), taps.shape[1]
    padded = np.concatenate([np.zeros((count - 1, u.shape[1])), u])
    total = np.zeros_like(u)
    for tap in range(count):
        total += taps[:, tap] * padded[tap : tap + length]
    return silu(total)


def softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)


def l2_normalised(x: Array) -> Array:
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + L2_EPS)


def key_head_of(value_head: int, linear: LinearAttention) -> int:
    """Section 4.3: groups of neighbours share a key head; in GGUF's order they are tiled."""
    if linear.is_tiled:
        return value_head % linear.num_key_heads
    return value_head // (linear.num_value_heads // linear.num_key_heads)


def first_state(rows: DeltaRows) -> Array:
    """S = 0 [Hv, dk, dv]."""
    return np.zeros((rows.q.shape[1], rows.q.shape[2], rows.v.shape[2]))


def recurrent(rows: DeltaRows, state: Array) -> tuple[Array, Array]:
    """Section 4.3, token by token: o [T, Hv, dv] and the state behind the last token."""
    state, out = state.copy(), np.empty_like(rows.v)
    for t in range(len(rows.q)):
        for head in range(rows.q.shape[1]):
            q, k, v = rows.q[t, head], rows.k[t, head], rows.v[t, head]
            s = np.exp(rows.g[t, head]) * state[head]
            delta = rows.beta[t, head] * (v - s.T @ k)
            state[head] = s + np.outer(k, delta)
            out[t, head] = state[head].T @ q
    return out, state


def chunked(rows: DeltaRows, state: Array, chunk: int = CHUNK) -> tuple[Array, Array]:
    """Section 4.4: the same by chunks, the last one as short as it is."""
    state, out = state.copy(), np.empty_like(rows.v)
    for start in range(0, len(rows.q), chunk):
        piece = DeltaRows(*(value[start : start + chunk] for value in rows))
        for head in range(rows.q.shape[1]):
            of_head = DeltaRows(*(value[:, head] for value in piece))
            o, state[head] = _one_chunk(of_head, state[head])
            out[start : start + chunk, head] = o
    return out, state


def _one_chunk(rows: DeltaRows, state: Array) -> tuple[Array, Array]:
    """One head, one chunk; q and k [C, dk], v [C, dv], g and beta [C]."""
    q, k, v, g, beta = rows
    total = np.cumsum(g)
    gamma = np.tril(np.exp(np.minimum(total[:, None] - total[None, :], 0.0)))
    lower = np.eye(len(q)) + np.tril(beta[:, None] * (k @ k.T) * gamma, -1)
    u = np.linalg.solve(lower, beta[:, None] * v)
    w = np.linalg.solve(lower, beta[:, None] * np.exp(total)[:, None] * k)
    fresh = u - w @ state
    o = np.exp(total)[:, None] * (q @ state) + (q @ k.T * gamma) @ fresh
    carried = np.exp(total[-1] - total)[:, None] * k
    return o, np.exp(total[-1]) * state + carried.T @ fresh
