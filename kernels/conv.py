"""Causal depthwise convolution over time with SiLU, and the few raw rows it remembers.

c_t = silu(sum over taps j of W[j] * u_{t - K + 1 + j}), the last tap at the current row; rows
before the beginning are zero (Gated DeltaNet, Yang et al., 2024). Raw rows are remembered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hearth.kernels.graph import KernelLaunch, Thunk, backend, submit
from hearth.kernels.segments import (
    FIRST_ROW,
    NUM_REPLAYED,
    NUM_ROWS,
    SegmentReader,
    Segments,
    StateView,
    strides,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from llvmlite import ir


def causal_conv(
    u: torch.Tensor,
    weight: torch.Tensor,
    segments: Segments,
    state: StateView,
    out: torch.Tensor,
) -> None:
    """out [M, C] = silu(conv(u [M, C])); weight [K, C], taps first; float32.

    Rows of a segment see the kept rows before it. Raw rows that are not kept for certain go to the
    window; the remembered rows move on to what is kept. ``u`` may be a column slice.
    """
    if backend() == "reference":
        submit(Thunk(lambda: _reference(u, weight, segments, state, out)))
        return
    from hearth.kernels import jit

    rows, channels = out.shape
    num_taps = weight.shape[0]
    assert channels % 16 == 0, f"{channels} channels are not a multiple of 16"
    arguments = (
        u.data_ptr(),
        weight.data_ptr(),
        segments.table.data_ptr(),
        segments.row_segment.data_ptr(),
        state.conv.data_ptr(),
        state.raw.data_ptr(),
        out.data_ptr(),
        channels,
        u.stride(0),
        *strides(state.conv),
        *strides(state.raw),
    )
    tensors = (u, weight, segments.table, segments.row_segment, state.conv, state.raw, out)
    if rows:
        address = jit.compiler().address(f"conv_{num_taps}", _emitter(num_taps))
        submit(KernelLaunch(address, arguments, rows, tensors))
    address = jit.compiler().address(f"conv_state_{num_taps}", _state_emitter(num_taps))
    submit(KernelLaunch(address, arguments, segments.count, tensors))


# --------------------------------------------------------------------------------------- reference


def _reference(
    u: torch.Tensor,
    weight: torch.Tensor,
    segments: Segments,
    state: StateView,
    out: torch.Tensor,
) -> None:
    kept_rows = weight.shape[0] - 1
    for index in range(segments.count):
        first, count, slot, side, replayed, commits = segments.read(index)[:6]
        if slot < 0:
            continue
        new = u[first : first + count]
        before = torch.cat((state.conv[side, slot], state.raw[side, slot, :replayed]))
        history = torch.cat((before[len(before) - kept_rows :], new))
        for row in range(count):
            window = history[row : row + kept_rows + 1]
            total = (window * weight).sum(0)
            out[first + row] = total / (1.0 + (-total).exp())
        kept = torch.cat((before, new)) if commits else before
        state.conv[1 - side, slot] = kept[len(kept) - kept_rows :]
        if not commits:
            state.raw[1 - side, slot, :count] = new


# ----------------------------------------------------------------------------------------- kernels

U, WEIGHT, TABLE, ROW_SEGMENT, CONV, RAW, OUT, CHANNELS, U_STRIDE = range(9)
CONV_SIDE, CONV_SLOT, RAW_SIDE, RAW_SLOT = range(9, 13)


class _History:
    """The rows before and inside a segment, addressed by their place relative to its first row."""

    def __init__(self, kernel: Any, segment: SegmentReader, num_taps: int) -> None:
        from hearth.kernels.emit import F32

        self.kernel = kernel
        self.channels = kernel.integer(CHANNELS)
        self.u_stride = kernel.integer(U_STRIDE)
        self.replayed = segment.field(NUM_REPLAYED)
        self.rows = kernel.at(
            kernel.pointer(U, F32), kernel.b.mul(segment.field(FIRST_ROW), self.u_stride)
        )
        self._kept_rows = num_taps - 1
        self._conv = self._part(segment, CONV, written=False)
        self._raw = self._part(segment, RAW, written=False)
        self.conv_written = self._part(segment, CONV, written=True)
        self.raw_written = self._part(segment, RAW, written=True)

    def _part(self, segment: SegmentReader, slot: int, *, written: bool) -> Any:
        from hearth.kernels.emit import F32

        kernel = self.kernel
        side_stride = kernel.integer(CONV_SIDE if slot == CONV else RAW_SIDE)
        slot_stride = kernel.integer(CONV_SLOT if slot == CONV else RAW_SLOT)
        return segment.at(kernel.pointer(slot, F32), side_stride, slot_stride, written=written)

    def row(self, place: Any) -> Any:
        """The raw row at ``place``: 0 is the segment's first, -1 the last one kept before it."""
        from hearth.kernels.emit import i64

        kernel, b = self.kernel, self.kernel.b
        in_window = b.add(place, self.replayed)
        in_state = b.add(in_window, i64(self._kept_rows))
        stored = b.select(
            b.icmp_signed(">=", in_window, i64(0)),
            kernel.at(self._raw, b.mul(in_window, self.channels)),
            kernel.at(self._conv, b.mul(in_state, self.channels)),
        )
        own = kernel.at(self.rows, b.mul(place, self.u_stride))
        return b.select(b.icmp_signed(">=", place, i64(0)), own, stored)


def _emitter(num_taps: int) -> Callable[[str], ir.Module]:
    """A chunk is a row: one chain over the taps, ascending."""

    def emit(name: str) -> ir.Module:
        from hearth.kernels.emit import F32, I32, I64, LANES, VF, Kernel, const, i64

        kernel = Kernel(name)
        b, row = kernel.b, kernel.chunk
        index = b.sext(kernel.load(kernel.pointer(ROW_SEGMENT, I32), row), I64)
        with b.if_then(b.icmp_signed(">=", index, i64(0))):
            segment = SegmentReader(kernel, kernel.pointer(TABLE, I32), index)
            history = _History(kernel, segment, num_taps)
            place = b.sub(row, segment.field(FIRST_ROW))
            sources = [
                history.row(b.add(place, i64(tap - num_taps + 1))) for tap in range(num_taps)
            ]
            channels = history.channels
            weight = kernel.pointer(WEIGHT, F32)
            out = kernel.at(kernel.pointer(OUT, F32), b.mul(row, channels))
            with kernel.loop(channels, step=LANES) as channel:
                total = const(VF, 0.0)
                for tap, source in enumerate(sources):
                    factor = b.add(b.mul(i64(tap), channels), channel)
                    value = kernel.load_vector(source, channel)
                    total = kernel.fma(kernel.load_vector(weight, factor), value, total)
                kernel.store_vector(kernel.silu(total), out, channel)
            with b.if_then(b.not_(segment.commits())):
                target = kernel.at(history.raw_written, b.mul(place, channels))
                _copy_row(kernel, sources[-1], target, channels)
        return kernel.finish()

    return emit


def _state_emitter(num_taps: int) -> Callable[[str], ir.Module]:
    """A chunk is a segment: the last raw rows that are kept, to the side that is written."""

    def emit(name: str) -> ir.Module:
        from hearth.kernels.emit import I32, Kernel, i64

        kernel = Kernel(name)
        b = kernel.b
        segment = SegmentReader(kernel, kernel.pointer(TABLE, I32), kernel.chunk)
        with b.if_then(segment.is_live()):
            history = _History(kernel, segment, num_taps)
            kept = b.select(segment.commits(), segment.field(NUM_ROWS), i64(0))
            for index in range(num_taps - 1):
                source = history.row(b.add(kept, i64(index - num_taps + 1)))
                target = kernel.at(history.conv_written, b.mul(i64(index), history.channels))
                _copy_row(kernel, source, target, history.channels)
        return kernel.finish()

    return emit


def _copy_row(kernel: Any, source: Any, target: Any, size: Any) -> None:
    from hearth.kernels.emit import LANES

    with kernel.loop(size, step=LANES) as index:
        kernel.store_vector(kernel.load_vector(source, index), target, index)
