"""Matrices that a checkpoint stores quantised: which scheme a module has, by the parts it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearth.engine.weights.schemes import floats, integers
from hearth.engine.weights.schemes.module import Module
from hearth.engine.weights.schemes.quantisation import Quantisation, read_quantisation

if TYPE_CHECKING:
    from hearth.engine.weights.schemes.entry import SchemeEntry

__all__ = ["MAIN_PARTS", "PARTS", "Module", "Quantisation", "is_unused", "open_module",
           "read_quantisation"]  # fmt: skip

MAIN_PARTS = ("weight", "weight_packed", "qweight")
SIDE_PARTS = (
    "weight_scale", "weight_scale_inv", "weight_scale_2", "weight_zero_point", "weight_shape",
    "weight_g_idx", "weight_global_scale", "qzeros", "scales", "g_idx", "pre_quant_scale",
)  # fmt: skip
PARTS = MAIN_PARTS + SIDE_PARTS
# Scales of activations and of an 8-bit attention cache: both stay float32 on the CPU. A head for
# drafting with fewer words is made of the real one.
UNUSED_PARTS = (
    "input_scale", "input_global_scale", "input_zero_point", "output_scale", "k_scale", "v_scale",
    "q_scale", "k_zero_point", "v_zero_point", "q_global_scale", "k_global_scale",
    "v_global_scale", "output_global_scale", "weight_observer",
)  # fmt: skip
UNUSED_MODULES = ("mtp.draft_lm_head.",)


def is_unused(published: str) -> bool:
    """Whether a tensor is part of a scheme but not needed here."""
    last = published.rsplit(".", 1)[-1]
    return last in UNUSED_PARTS or any(module in published for module in UNUSED_MODULES)


def open_module(module: Module, how: Quantisation | None) -> SchemeEntry:
    """The entry of a quantised module. Raises UserError naming parts that are not understood."""
    if how is None:
        raise module.refused(f"in parts ({_listed(module)}) that config.json does not explain")
    entry = _opened(module, how)
    if entry.group is not None and how.group_sizes and entry.group not in how.group_sizes:
        # A last group that is not full would be spread over all inputs.
        stated = ", ".join(map(str, sorted(how.group_sizes)))
        raise module.refused(f"in groups of {stated} that do not divide its inputs")
    return entry


def _opened(module: Module, how: Quantisation) -> SchemeEntry:
    if module.has("pre_quant_scale"):
        raise module.refused("with scaled inputs (pre_quant_scale)")
    if module.has("qweight") and module.has("qzeros") and module.has("scales"):
        if how.layout == "awq":
            return integers.awq(module)
        return integers.gptq(module, adds_one=how.layout == "gptq")
    if module.has("weight_packed") and module.has("weight_scale"):
        return _packed(module)
    if module.has("weight", "F8_E4M3", "I8", "U8"):
        return _plain(module, how)
    raise module.refused(f"in parts that are not known together ({_listed(module)})")


def _packed(module: Module) -> SchemeEntry:
    """compressed-tensors' packed forms."""
    if module.has("weight_packed", "I32") and module.has("weight_shape"):
        return integers.pack_quantized(module)
    if module.has("weight_packed", "U8") and module.has("weight_global_scale"):
        return floats.nvfp4(module, "weight_packed", "weight_global_scale", divides=True)
    if module.has("weight_packed", "U8") and module.has("weight_scale", "U8"):
        bits = module.matrix("weight_packed").shape[1] // (
            4 * module.matrix("weight_scale").shape[1]
        )
        if bits != 4:
            raise module.refused(f"as MXFP{bits}")
        return floats.mxfp4(module)
    raise module.refused(f"in parts that are not known together ({_listed(module)})")


def _plain(module: Module, how: Quantisation) -> SchemeEntry:
    """A ``weight`` of small numbers with scales beside it."""
    if module.has("weight", "U8") and module.has("weight_scale") and module.has("weight_scale_2"):
        return floats.nvfp4(module, "weight", "weight_scale_2", divides=False)
    if module.has("weight", "I8") and module.has("weight_scale"):
        return integers.int_quantized(module)
    if module.has("weight", "F8_E4M3") and module.has("weight_scale_inv"):
        return floats.fp8(module, "weight_scale_inv", how.block)
    if module.has("weight", "F8_E4M3") and module.has("weight_scale", "U8"):
        return floats.mxfp8(module)
    if module.has("weight", "F8_E4M3") and module.has("weight_scale"):
        return floats.fp8(module, "weight_scale", how.block)
    raise module.refused(f"in parts that are not known together ({_listed(module)})")


def _listed(module: Module) -> str:
    return ", ".join(f"{part} {tensor.dtype}" for part, tensor in sorted(module.parts.items()))
