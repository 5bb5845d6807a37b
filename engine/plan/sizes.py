"""Bytes of what stands beside the weights, as formulas of a model's shape.

The dense hybrid of 27 billion parameters is the measure in every docstring: 48 linear layers, 16 of
full attention, 4 key heads of 256, 48 value heads of 128 x 128. Figures there are published ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearth.engine.memory import KvFormat, StateFormat

if TYPE_CHECKING:
    from hearth.engine.memory import MemorySettings
    from hearth.engine.model.config import ModelConfig

KV_VALUE_BYTES = {KvFormat.FLOAT32: 4, KvFormat.BF16: 2, KvFormat.FP8: 1, KvFormat.INT8: 1}
INT8_KV_GROUP = 64  # dimensions of a head that share a float16 scale
STATE_VALUE_BYTES = {StateFormat.FP32: 4, StateFormat.FP16: 2}
STATE_COPIES = 2  # a round reads one and writes the other (decision D2)
WINDOWS = 2  # the rows of the last round are read while those of this one are written
DELTA_CHUNK = 64  # tokens of the chunked form that reads prompts


def bytes_per_token(config: ModelConfig, kv: KvFormat, *, use_mtp: bool) -> int:
    """Keys and values of one token in all layers that keep them.

    layers * 2 * key heads * (head size * bytes + scales). bf16: 64 KiB, and 4 KiB for MTP; fp8:
    32 KiB, one scale a tensor; int8: 33 KiB with a scale for every 64 dimensions.
    """
    layers = config.num_attention_layers - (0 if use_mtp else config.num_mtp_layers)
    head = config.head_dim * KV_VALUE_BYTES[kv]
    if kv is KvFormat.INT8:
        head += 2 * -(-config.head_dim // INT8_KV_GROUP)
    return layers * 2 * config.num_key_value_heads * head


def recurrent_bytes(config: ModelConfig, state: StateFormat) -> int:
    """One copy: linear layers * value heads * key size * value size. fp32: 144 MiB; fp16: 72."""
    linear = config.linear
    if linear is None:
        return 0
    values = linear.num_value_heads * linear.key_head_dim * linear.value_head_dim
    return config.num_linear_layers * values * STATE_VALUE_BYTES[state]


def conv_bytes(config: ModelConfig, value_bytes: int) -> int:
    """One copy: the last taps - 1 rows before the convolution. bf16: 2.81 MiB; float32: 5.6."""
    linear = config.linear
    if linear is None:
        return 0
    rows = linear.conv_kernel_dim - 1
    return config.num_linear_layers * linear.conv_dim * rows * value_bytes


def replay_bytes(config: ModelConfig, num_rows: int, value_bytes: int) -> int:
    """k and v of a window's rows, and their g and beta in float32: what the next round replays.
    16 rows in bf16: 12.9 MB."""
    linear = config.linear
    if linear is None:
        return 0
    values = (linear.key_size + linear.value_size) * value_bytes
    return config.num_linear_layers * num_rows * (values + 2 * linear.num_value_heads * 4)


def window_bytes(config: ModelConfig, num_rows: int, value_bytes: int) -> int:
    """``replay_bytes`` and the rows before the convolution: all that a round keeps of its rows
    until it is known which were accepted."""
    linear = config.linear
    if linear is None:
        return 0
    raw = config.num_linear_layers * num_rows * linear.conv_dim * value_bytes
    return raw + replay_bytes(config, num_rows, value_bytes)


def state_bytes(config: ModelConfig, state: StateFormat, value_bytes: int) -> int:
    """One complete copy, which is also one snapshot. fp16 and bf16: 74.8 MiB."""
    return recurrent_bytes(config, state) + conv_bytes(config, value_bytes)


def windowed_kv_bytes(num_layers: int, kv_size: int, window: int, value_bytes: int = 2) -> int:
    """Keys and values of a drafter that sees ``window`` tokens. DFlash2 (5 layers, 8 heads of 128,
    2,048 tokens, bf16): 42 MB."""
    return num_layers * 2 * kv_size * window * value_bytes


# ----------------------------------------------------------------------------------------- scratch


def activation_bytes(config: ModelConfig, num_rows: int, value_bytes: int) -> int:
    """The buffers of one pass, reused by every layer: residual, normed input, what the mixer's
    projections give, what it attends to, gate and up, their product. 2,048 rows in bf16: 349 MB;
    about 380 MiB were seen to come and go in another engine."""
    mixer = config.q_size * (2 if config.attn_output_gate else 1) + 2 * config.kv_size
    attended = config.q_size
    if config.linear is not None:
        of_delta = config.linear.conv_dim + config.linear.value_size
        mixer = max(mixer, of_delta + 2 * config.linear.num_value_heads)
        attended = max(attended, config.linear.value_size)
    width = 2 * config.hidden_size + mixer + attended + 3 * config.intermediate_size
    return num_rows * width * value_bytes


def delta_bytes(config: ModelConfig, num_rows: int, value_bytes: int) -> int:
    """U and W of the chunked form, and the state before every chunk of 64 rows, of one layer."""
    linear = config.linear
    if linear is None:
        return 0
    heads, key, value = linear.num_value_heads, linear.key_head_dim, linear.value_head_dim
    chunks = -(-num_rows // DELTA_CHUNK)
    return heads * (num_rows * (key + value) + chunks * key * value) * value_bytes


def unpacked_bytes(config: ModelConfig) -> int:
    """The largest matrix of a layer as bf16, for passes of many rows: gate and up, 357 MB."""
    return 2 * config.intermediate_size * config.hidden_size * 2


def logit_bytes(config: ModelConfig, num_rows: int) -> int:
    """float32 for every row that is drawn from. 16 rows: 16 MB."""
    return num_rows * config.vocab_size * 4


def rope_bytes(config: ModelConfig) -> int:
    """The processor's tables of cosines and sines for the whole trained context, float32."""
    return config.max_position_embeddings * config.rope_dim * 4


def card_scratch(config: ModelConfig, settings: MemorySettings, *, has_quantised: bool) -> int:
    """Everything that is allocated once on a card and never grows after capture."""
    draws = settings.max_requests * settings.verify_rows
    rows = max(settings.prefill_chunk, draws)
    scratch = activation_bytes(config, rows, 2) + delta_bytes(config, rows, 2)
    return scratch + logit_bytes(config, draws) + (unpacked_bytes(config) if has_quantised else 0)


def host_scratch(config: ModelConfig, settings: MemorySettings) -> int:
    """The processor's buffers: float32, and no matrix is ever unpacked."""
    draws = settings.max_requests * settings.verify_rows
    rows = settings.prefill_chunk + draws
    last = draws * config.hidden_size * 4
    return host_buffer_bytes(config, rows) + last + logit_bytes(config, draws) + rope_bytes(config)


def host_buffer_bytes(config: ModelConfig, num_rows: int) -> int:
    """What the residual and every kind of block hold side by side (model/attention.py, mlp.py and
    deltanet.py); float32."""
    hidden = config.hidden_size
    queries = config.q_size * (2 if config.attn_output_gate else 1)
    width = hidden
    width += hidden + queries + 2 * config.kv_size + config.q_size
    width += hidden + 3 * config.intermediate_size
    linear = config.linear
    if linear is not None:
        gates = 2 * linear.num_value_heads
        width += hidden + 2 * (linear.conv_dim + linear.value_size + gates)
    return num_rows * width * 4
