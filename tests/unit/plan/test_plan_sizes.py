"""Formulas against published figures of the 27B hybrid (each with where it can be read)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned_models import DENSE, HYBRID_27B, INT4, model

from hearth.engine.memory import REQUANTISED_PARTS, KvFormat, MemorySettings, StateFormat
from hearth.engine.plan import sizes, weights

MIB, KIB = 1 << 20, 1 << 10
WITHOUT_MTP = replace(HYBRID_27B, num_mtp_layers=0)


@pytest.mark.parametrize(
    ("kv", "published"),
    [(KvFormat.BF16, 65_536), (KvFormat.FP8, 32_768), (KvFormat.INT8, 33_792)],
)
def test_keys_and_values_of_a_token(kv: KvFormat, published: int) -> None:
    assert sizes.bytes_per_token(WITHOUT_MTP, kv, use_mtp=True) == published
    assert sizes.bytes_per_token(HYBRID_27B, kv, use_mtp=False) == published
    assert sizes.bytes_per_token(HYBRID_27B, kv, use_mtp=True) == published * 17 // 16


def test_mtp_adds_four_kib_a_token() -> None:
    one, other = (
        sizes.bytes_per_token(HYBRID_27B, KvFormat.BF16, use_mtp=m) for m in (True, False)
    )
    assert one - other == 4 * KIB


def test_the_processors_pages_are_float32() -> None:
    assert sizes.bytes_per_token(DENSE, KvFormat.FLOAT32, use_mtp=True) == 46_080


def test_recurrent_state() -> None:
    assert sizes.recurrent_bytes(HYBRID_27B, StateFormat.FP32) == 144 * MIB
    assert sizes.recurrent_bytes(HYBRID_27B, StateFormat.FP16) == 72 * MIB


def test_convolution_state() -> None:
    assert sizes.conv_bytes(HYBRID_27B, 2) / MIB == pytest.approx(2.81, abs=0.005)
    assert sizes.conv_bytes(HYBRID_27B, 4) / MIB == pytest.approx(5.6, abs=0.03)


def test_one_complete_copy() -> None:
    copy = sizes.state_bytes(HYBRID_27B, StateFormat.FP16, 2)
    assert copy / MIB == pytest.approx(74.8, abs=0.05)


def test_what_a_round_replays() -> None:
    assert sizes.replay_bytes(HYBRID_27B, 16, 2) / 1e6 == pytest.approx(12.9, abs=0.05)


def test_a_window_also_holds_the_raw_rows() -> None:
    raw = 48 * 10_240 * 16 * 2
    replayed = sizes.replay_bytes(HYBRID_27B, 16, 2)
    assert sizes.window_bytes(HYBRID_27B, 16, 2) == replayed + raw


def test_a_drafter_with_a_window() -> None:
    assert sizes.windowed_kv_bytes(5, 8 * 128, 2048) / 1e6 == pytest.approx(42, abs=0.1)


def test_an_unpacked_matrix() -> None:
    assert sizes.unpacked_bytes(HYBRID_27B) / 1e6 == pytest.approx(357, abs=1)


def test_logits_of_sixteen_rows() -> None:
    assert sizes.logit_bytes(HYBRID_27B, 16) / 1e6 == pytest.approx(16, abs=0.2)


def test_activations_are_of_the_size_that_was_seen() -> None:
    seen = 380 * MIB
    assert sizes.activation_bytes(HYBRID_27B, 2048, 2) == pytest.approx(seen, rel=0.15)


def test_a_model_without_linear_layers_has_no_state() -> None:
    for num_bytes in (
        sizes.state_bytes(DENSE, StateFormat.FP32, 2),
        sizes.window_bytes(DENSE, 16, 2),
        sizes.delta_bytes(DENSE, 2048, 2),
    ):
        assert num_bytes == 0


def test_scratch_grows_with_rows_only_where_rows_are() -> None:
    small, large = MemorySettings(max_requests=1), MemorySettings(max_requests=4)
    grown = sizes.card_scratch(HYBRID_27B, large, has_quantised=True) - sizes.card_scratch(
        HYBRID_27B, small, has_quantised=True
    )
    assert grown == sizes.logit_bytes(HYBRID_27B, 3 * 16)


# ----------------------------------------------------------------------------------------- weights


def parts(
    *, requantise: tuple[str, ...] = REQUANTISED_PARTS, use_mtp: bool = True, layers: str = INT4
) -> dict[str, int]:
    tensors = model(layers=layers).tensors
    made = weights.weight_parts(tensors, use_mtp=use_mtp, requantise=requantise, is_host=False)
    return {part.id: part.num_bytes for part in made}


def test_parameters_of_every_part() -> None:
    counted = {name: size / 2e6 for name, size in parts(requantise=(), layers="BF16").items()}
    assert counted["linear"] / 48 == pytest.approx(115.9, abs=0.1)
    assert counted["attention"] / 16 == pytest.approx(104.9, abs=0.1)
    assert counted["mlp"] / 64 == pytest.approx(267.4, abs=0.1)
    assert counted["embedding"] == counted["head"] == pytest.approx(1271.4, abs=0.1)
    assert counted["mtp"] == pytest.approx(424.7, abs=0.1)
    assert sum(counted.values()) - counted["mtp"] == pytest.approx(26_900, rel=0.001)


def test_the_body_in_four_bits() -> None:
    body = parts()
    gates = 48 * 2 * 48 * 5120 * 2  # a and b stay 16 bit
    total = body["linear"] + body["attention"] + body["mlp"] - gates
    assert total / 1e9 == pytest.approx(12.56, abs=0.02)


def test_head_and_embedding_in_int8() -> None:
    assert parts()["head"] / 1e9 == pytest.approx(1.291, abs=0.001)
    assert parts(requantise=())["head"] / 1e9 == pytest.approx(2.54, abs=0.005)


def test_the_whole_as_another_engine_loads_it() -> None:
    """14.26 GiB with embedding, head and MTP in int8, language model only."""
    assert sum(parts().values()) / (1 << 30) == pytest.approx(14.26, rel=0.03)


def test_without_mtp_its_weights_are_not_there() -> None:
    assert "mtp" not in parts(use_mtp=False)
    assert weights.requantised_parts(model().tensors, REQUANTISED_PARTS, use_mtp=False) == (
        "embedding",
        "head",
    )
