"""The DFlash and DFlash2 drafters in float64: the drafters' specification, sections 1 and 2.

Reads the drafter's own config.json and published tensor names, and recomputes everything from the
taps at every call: no cache, no ring. Nothing here is shared with the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from float64.hybrid import Array, rms_norm, rotate, silu, softmax

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NO_WINDOW = 1 << 60


class Drafter(NamedTuple):
    """A drafter beside its target's embedding and head [V, H] (raw rows: no target norm)."""

    config: Mapping[str, Any]
    tensors: Mapping[str, Array]
    embedding: Array
    head: Array
    num_valid_ids: int
    sliding_is_causal: bool = True  # what sliding layers are when the configuration does not say

    def setting(self, key: str, default: Any = None) -> Any:
        """Some configurations have these keys at top level, others inside dflash_config."""
        inner = self.config.get("dflash_config", {})
        return inner.get(key, self.config.get(key, default))

    def matrix(self, name: str) -> Array:
        return self.tensors[name + ".weight"].astype(np.float64)

    def norm(self, x: Array, name: str) -> Array:
        """Plain weights: w, not 1 + w."""
        return rms_norm(x, self.matrix(name), self.config["rms_norm_eps"])

    @property
    def num_layers(self) -> int:
        return int(self.config["num_hidden_layers"])

    def window(self, layer: int) -> int:
        kinds = self.config.get("layer_types") or ["full_attention"] * self.num_layers
        is_sliding = kinds[layer] == "sliding_attention"
        return int(self.config["sliding_window"]) if is_sliding else NO_WINDOW

    def is_causal(self, layer: int) -> bool:
        """Section 2: the top level key, then the inner one, then by kind of layer."""
        for place in (self.config.get("is_causal"), self.config["dflash_config"].get("causal")):
            if place is not None:
                return bool(place)
        return self.sliding_is_causal and self.window(layer) != NO_WINDOW


class Block(NamedTuple):
    """What a block forward gives for rows 1..K; row 0 is the anchor's and predicts nothing."""

    hidden: Array  # [K, H], behind the drafter's own norm
    logits: Array  # [K, V]


def target_layer_ids(drafter: Drafter, num_target_layers: int, count: int) -> list[int]:
    """Section 2: as listed, or spread evenly: round(1 + i (L - 4) / (n - 1))."""
    listed = drafter.setting("target_layer_ids")
    if listed is not None:
        return list(listed)
    return [round(1 + i * (num_target_layers - 4) / (count - 1)) for i in range(count)]


# --------------------------------------------------------------------------------- section 1.2


def context_features(drafter: Drafter, taps: Array) -> Array:
    """c_t = RMS( fc · concat_t ; hidden_norm ) [N, H] from [N, n H]."""
    return drafter.norm(np.asarray(taps, dtype=np.float64) @ drafter.matrix("fc").T, "hidden_norm")


def keys_values(drafter: Drafter, layer: int, rows: Array, positions: Array) -> tuple[Array, Array]:
    """K = RoPE( RMS( k_proj rows ; k_norm ) ), V = v_proj rows; [N, Hkv, D] each."""
    name = f"layers.{layer}.self_attn."
    shape = (len(rows), drafter.config["num_key_value_heads"], drafter.config["head_dim"])
    k = (rows @ drafter.matrix(name + "k_proj").T).reshape(shape)
    v = (rows @ drafter.matrix(name + "v_proj").T).reshape(shape)
    return rotate(drafter.norm(k, name + "k_norm"), angles(drafter, positions)), v


def angles(drafter: Drafter, positions: Array) -> Array:
    """Full width: θ_i = p · theta^(−2i/D), pairs (i, i + D/2)."""
    size = drafter.config["head_dim"]
    rope = drafter.config.get("rope_parameters", drafter.config)
    frequencies = float(rope["rope_theta"]) ** (-2.0 * np.arange(size // 2) / size)
    return np.outer(positions, frequencies)


# --------------------------------------------------------------------------------- section 1.3


def block_forward(
    drafter: Drafter, taps: Array, anchor: int, depth: int, first_position: int = 0
) -> Block:
    """Rows [x_n, MASK, …] of length depth + 1 behind the context ``taps`` [n, taps H], whose first
    row stands at ``first_position``."""
    context = context_features(drafter, taps)
    context_positions = first_position + np.arange(len(context))
    positions = first_position + len(context) + np.arange(depth + 1)
    ids = [anchor] + [drafter.setting("mask_token_id")] * depth
    x = drafter.embedding[ids].astype(np.float64) * drafter.setting("input_embedding_scale", 1.0)
    for layer in range(drafter.num_layers):
        name = f"layers.{layer}."
        old = keys_values(drafter, layer, context, context_positions)
        h = drafter.norm(x, name + "input_layernorm")
        h, later = conv_prepare(drafter, name + "attention_conv", h)
        a = attention(drafter, layer, h, positions, old, context_positions)
        x = x + conv_finish(drafter, name + "attention_conv", a, later)
        h = drafter.norm(x, name + "post_attention_layernorm")
        h, later = conv_prepare(drafter, name + "mlp_conv", h)
        x = x + conv_finish(drafter, name + "mlp_conv", mlp(drafter, name + "mlp.", h), later)
    hidden = drafter.norm(x, "norm")[1:]
    logits = hidden @ drafter.head.astype(np.float64).T * drafter.setting("output_multiplier", 1.0)
    cap = drafter.setting("final_logit_softcapping")
    return Block(hidden, logits if cap is None else cap * np.tanh(logits / cap))


def attention(
    drafter: Drafter,
    layer: int,
    h: Array,
    positions: Array,
    old: tuple[Array, Array],
    old_positions: Array,
) -> Array:
    """Queries of the block over the context and all rows of the block."""
    name, heads = f"layers.{layer}.self_attn.", drafter.config["num_attention_heads"]
    size = drafter.config["head_dim"]
    q = (h @ drafter.matrix(name + "q_proj").T).reshape(len(h), heads, size)
    q = rotate(drafter.norm(q, name + "q_norm"), angles(drafter, positions))
    new = keys_values(drafter, layer, h, positions)
    k, v = (np.concatenate(pair) for pair in zip(old, new, strict=True))
    distance = positions[:, None] - np.concatenate([old_positions, positions])[None, :]
    visible = distance < drafter.window(layer)  # the window counts the query itself
    if drafter.is_causal(layer):
        visible &= distance >= 0
    group = heads // drafter.config["num_key_value_heads"]
    out = np.empty_like(q)
    for row in range(len(h)):
        for head in range(heads):
            keys, values = k[visible[row], head // group], v[visible[row], head // group]
            out[row, head] = softmax(keys @ q[row, head] * size**-0.5) @ values
    return out.reshape(len(h), -1) @ drafter.matrix(name + "o_proj").T


def mlp(drafter: Drafter, name: str, h: Array) -> Array:
    gate, up = h @ drafter.matrix(name + "gate_proj").T, h @ drafter.matrix(name + "up_proj").T
    return (silu(gate) * up) @ drafter.matrix(name + "down_proj").T


def conv_prepare(drafter: Drafter, name: str, h: Array) -> tuple[Array, Array]:
    """The convolved rows, and the coefficients that the finish side will use: both sides' come from
    these rows. The first DFlash has no convolutions."""
    if name + ".base_kernel" not in drafter.tensors:
        return h, h
    taps = drafter.setting("conv_kernel_size")
    groups = h.shape[1] // drafter.setting("conv_group_size")
    coefficients = h @ drafter.matrix(name + ".kernel_projection").T
    coefficients = coefficients.reshape(len(h), 2, taps, groups)
    return convolve(drafter, name, h, coefficients, 0), coefficients


def conv_finish(drafter: Drafter, name: str, a: Array, coefficients: Array) -> Array:
    if name + ".base_kernel" not in drafter.tensors:
        return a
    return convolve(drafter, name, a, coefficients, 1)


def convolve(drafter: Drafter, name: str, y: Array, coefficients: Array, side: int) -> Array:
    """Σ_τ ( base[side, τ, ch] + coef[s, side, τ, ch // group] ) · y[s − τ, ch], zero before the
    block's first row."""
    base = drafter.tensors[name + ".base_kernel"].astype(np.float64)
    size = drafter.setting("conv_group_size")
    out = np.zeros_like(y)
    for s in range(len(y)):
        for tap in range(min(base.shape[1], s + 1)):
            kernel = base[side, tap] + np.repeat(coefficients[s, side, tap], size)
            out[s] += kernel * y[s - tap]
    return out


# --------------------------------------------------------------------------------- section 1.4


class Row(NamedTuple):
    """A realised row of the lattice: what its token was drawn from."""

    token: int
    ids: Array  # ascending
    probabilities: Array


def walk(
    drafter: Drafter,
    block: Block,
    anchor: int,
    num_candidates: int,
    temperature: float,
    noise: Sequence[float] | None,
) -> list[Row]:
    """The path through the lattice: greedy without noise, else by inverse distribution functions of
    the uniform ``noise`` over candidates in ascending order."""
    rows: list[Row] = []
    for i in range(len(block.hidden)):
        logits = block.logits[i, : drafter.num_valid_ids]
        ids = np.sort(np.argsort(-logits, kind="stable")[:num_candidates])
        predecessor = rows[-1].token if rows else anchor
        scores = logits[ids] + edges(drafter, predecessor, block.hidden[i], ids)
        if noise is None:
            probabilities = (np.arange(len(ids)) == np.argmax(scores)).astype(np.float64)
            rows.append(Row(int(ids[np.argmax(scores)]), ids, probabilities))
            continue
        probabilities = softmax(scores / temperature)
        drawn = int(np.searchsorted(np.cumsum(probabilities), noise[i], side="right"))
        rows.append(Row(int(ids[min(drawn, len(ids) - 1)]), ids, probabilities))
    return rows


def edges(drafter: Drafter, predecessor: int, hidden: Array, ids: Array) -> Array:
    """e_i(p, c) = Σ_r Pred[p, r] · z_i[r] · Succ[c, r], z of the successor's own row; nothing in
    the first DFlash, whose rows are independent."""
    name = "candidate_selector."
    if name + "predecessor_codebook" not in drafter.tensors:
        return np.zeros(len(ids))
    z = drafter.matrix(name + "hidden_projection") @ hidden
    before = drafter.tensors[name + "predecessor_codebook"][predecessor].astype(np.float64)
    after = drafter.tensors[name + "successor_codebook"][ids].astype(np.float64)
    return after @ (before * z)
