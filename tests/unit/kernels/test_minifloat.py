"""Small floats: every code against its definition, packed products, gathering, independence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from hearth.kernels import minifloat, packing
from hearth.kernels.embed import embed
from hearth.kernels.ggml_blocks import Blocks
from hearth.kernels.linear import linear
from hearth.kernels.packing_gguf import pack_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def blocks(kind: str, shape: tuple[int, int], group: int, *, half: bool = True) -> Blocks:
    torch.manual_seed(group)
    bits = minifloat.MINIFLOATS[kind].bits
    codes = torch.randint(0, 1 << bits, shape, dtype=torch.uint8)
    codes[(codes & 0x7F) == 0x7F] = 0
    scales = torch.randn(shape[0], shape[1] // group) * 0.01
    return Blocks(codes, scales.half().float() if half else scales, None, group, kind)


def packed(rows: Blocks) -> packing.PackedLinear:
    def slabs() -> Iterator[Blocks]:
        yield rows

    return pack_blocks((rows.codes.shape[0], rows.codes.shape[1]), slabs)


def run(x: torch.Tensor, weight: packing.PackedLinear) -> torch.Tensor:
    out = torch.empty(x.shape[0], weight.shape[0])
    linear(x, weight, out)
    return out


def test_every_code_of_e4m3() -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    expected = codes.view(torch.float8_e4m3fn).float()
    found = minifloat.values(codes, "e4m3")
    numbers = ~expected.isnan()
    assert torch.equal(found[numbers], expected[numbers])
    assert found[~numbers].abs().tolist() == [480.0, 480.0]


def test_every_code_of_e2m1() -> None:
    found = minifloat.values(torch.arange(16), "e2m1")
    assert found.tolist() == [*E2M1, *(-value for value in E2M1)]


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize(("kind", "group"), [("e4m3", 128), ("e2m1", 16), ("e2m1", 32)])
def test_products_and_gathering(kind: str, group: int, half: bool) -> None:
    rows = blocks(kind, (150, 384), group, half=half)
    weight = packed(rows)
    assert weight.format.half_scales is half
    values = packing.dequantise(weight)
    assert torch.equal(values, rows.values())
    x = torch.randn(9, 384)
    expected = x.double() @ values.double().T
    assert (run(x, weight) - expected).norm() <= 2e-6 * expected.norm()
    ids, out = torch.tensor([0, 149, 16], dtype=torch.int32), torch.empty(3, 384)
    embed(ids, weight, out)
    assert torch.equal(out, values[ids.long()])


@pytest.mark.parametrize(("kind", "group"), [("e4m3", 128), ("e2m1", 16)])
def test_a_row_s_bits_do_not_depend_on_others(kind: str, group: int) -> None:
    weight = packed(blocks(kind, (128, 256), group))
    x = torch.randn(256, 256)
    whole = run(x, weight)
    for count in [*range(1, 18), 64]:
        assert torch.equal(run(x[:count].contiguous(), weight), whole[:count]), count


def test_four_bits_stay_four_bits() -> None:
    weight = packed(blocks("e2m1", (64, 256), 16))
    assert weight.num_bytes == 64 * 256 // 2 + 64 * 16 * 2
