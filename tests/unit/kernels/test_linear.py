"""Linear kernels against float64, and the same bits for any number of rows and threads."""

from __future__ import annotations

import pytest
import torch

from hearth.kernels import ggml_blocks, graph, packing
from hearth.kernels.linear import concatenate, linear, pack_float, pack_gguf

SHAPES = [(64, 256), (80, 512), (1, 256), (200, 768)]
HALF_FIELDS = {
    ggml_blocks.Q4_0: (0,), ggml_blocks.Q4_1: (0, 2), ggml_blocks.Q5_0: (0,),
    ggml_blocks.Q5_1: (0, 2), ggml_blocks.Q8_0: (0,), ggml_blocks.Q2_K: (80, 82),
    ggml_blocks.Q3_K: (108,), ggml_blocks.Q4_K: (0, 2), ggml_blocks.Q5_K: (0, 2),
    ggml_blocks.Q6_K: (208,), ggml_blocks.IQ4_NL: (0,), ggml_blocks.IQ4_XS: (0,),
}  # fmt: skip
QUANTISED = [t for t in ggml_blocks.LAYOUTS if ggml_blocks.LAYOUTS[t].elements > 1]


def random_raw(ggml_type: int, rows: int, columns: int) -> torch.Tensor:
    layout = ggml_blocks.LAYOUTS[ggml_type]
    generator = torch.Generator().manual_seed(ggml_type)
    shape = (rows, columns // layout.elements, layout.num_bytes)
    raw = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    for byte in HALF_FIELDS.get(ggml_type, ()):
        halves = torch.randn(*shape[:2], 1, generator=generator) * 0.01
        raw[..., byte : byte + 2] = halves.half().view(torch.uint8)
    if ggml_type == ggml_blocks.MXFP4:
        raw[..., 0] = 120 + raw[..., 0] % 10
    if ggml_type == ggml_blocks.NVFP4:
        raw[..., :4] = raw[..., :4] % 0x50
    return raw.reshape(rows, -1)


def run(x: torch.Tensor, weight: packing.PackedLinear, **options: object) -> torch.Tensor:
    out = torch.full((x.shape[0], weight.shape[0]), float("nan"))
    linear(x, weight, out, **options)  # type: ignore[arg-type]
    return out


@pytest.mark.parametrize("ggml_type", QUANTISED)
@pytest.mark.parametrize("shape", SHAPES)
def test_quantised(ggml_type: int, shape: tuple[int, int]) -> None:
    raw = random_raw(ggml_type, *shape)
    weight = pack_gguf(raw, ggml_type)
    values = ggml_blocks.dequantise(raw, ggml_type)
    torch.testing.assert_close(packing.dequantise(weight), values, rtol=1e-6, atol=0)
    x = torch.randn(5, shape[1])
    expected = x.double() @ values.double().T
    assert (run(x, weight) - expected).norm() <= 2e-6 * expected.norm()


@pytest.mark.parametrize("ggml_type", [ggml_blocks.NVFP4, ggml_blocks.Q4_K])
@pytest.mark.parametrize("scale", [0.25, 0.0123])
def test_a_scale_of_the_whole_tensor(ggml_type: int, scale: float) -> None:
    raw = random_raw(ggml_type, 80, 512)
    weight = pack_gguf(raw, ggml_type, scale=scale)
    values = ggml_blocks.dequantise(raw, ggml_type).double() * scale
    tolerance = 3e-7 * float(values.abs().max())  # where a block's offset cancels its codes
    torch.testing.assert_close(packing.dequantise(weight).double(), values, rtol=0, atol=tolerance)
    x = torch.randn(5, 512)
    expected = x.double() @ values.T
    assert (run(x, weight) - expected).norm() <= 2e-6 * expected.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(7, 5), (64, 33), (100, 17)])
def test_floats_of_odd_sizes(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    values = torch.randn(*shape).to(dtype)
    x = torch.randn(3, shape[1])
    expected = x.double() @ values.double().T
    out = run(x, pack_float(values))
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ggml_type", [*QUANTISED, ggml_blocks.F32, ggml_blocks.BF16])
def test_a_row_s_bits_do_not_depend_on_the_others(ggml_type: int) -> None:
    raw = random_raw(ggml_type, 128, 256)
    if ggml_type in ggml_blocks.FLOAT_DTYPES:
        values = torch.randn(128, 256).to(ggml_blocks.FLOAT_DTYPES[ggml_type])
        weight = pack_float(values)
    else:
        weight = pack_gguf(raw, ggml_type)
    x = torch.randn(256, 256)
    whole = run(x, weight)
    for count in [*range(1, 18), 64]:
        assert torch.equal(run(x[:count].contiguous(), weight), whole[:count]), count
        assert torch.equal(run(x[-count:].contiguous(), weight), whole[-count:]), count


def test_bias_and_accumulate() -> None:
    weight = pack_gguf(random_raw(ggml_blocks.Q8_0, 96, 64), ggml_blocks.Q8_0)
    x, bias, before = torch.randn(6, 64), torch.randn(96), torch.randn(6, 96)
    plain = run(x, weight)
    assert torch.equal(run(x, weight, bias=bias), plain + bias)
    out = before.clone()
    linear(x, weight, out, accumulate=True)
    assert torch.equal(out, plain + before)


def test_concatenated_outputs_are_the_parts() -> None:
    parts = [pack_gguf(random_raw(ggml_blocks.Q4_1, n, 64), ggml_blocks.Q4_1) for n in (64, 128)]
    whole = concatenate(parts)
    assert whole is not None
    x = torch.randn(4, 64)
    assert torch.equal(run(x, whole), torch.cat([run(x, part) for part in parts], dim=1))


def test_different_formats_are_not_joined() -> None:
    first = pack_gguf(random_raw(ggml_blocks.Q4_1, 64, 64), ggml_blocks.Q4_1)
    second = pack_gguf(random_raw(ggml_blocks.Q8_0, 64, 64), ggml_blocks.Q8_0)
    assert concatenate([first, second]) is None


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_a_graph_replays_on_the_same_buffers_with_any_number_of_threads(num_threads: int) -> None:
    weight = pack_gguf(random_raw(ggml_blocks.Q4_1, 512, 256), ggml_blocks.Q4_1)
    x, out = torch.zeros(9, 256), torch.zeros(9, 512)
    with graph.capture() as captured:
        linear(x, weight, out)
    assert not out.any(), "nothing runs while a graph is recorded"
    graph.set_num_threads(num_threads)
    for _ in range(20):
        x.copy_(torch.randn(9, 256))
        captured.replay()
        assert torch.equal(out, run(x, weight))
    graph.set_num_threads(graph.usable_cores())
