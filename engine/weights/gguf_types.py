"""Which tensor types of the GGUF specification Hearth reads, and the names of those it refuses."""

from __future__ import annotations

from hearth.kernels.ggml_blocks import LAYOUTS

__all__ = ["LAYOUTS", "UNREADABLE_TYPES"]

# Grids and ternary types need large codebooks, integers and doubles hold no weights, and Q8_1 and
# Q8_K are run-time formats of activations.
UNREADABLE_TYPES = {
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    21: "IQ3_S",
    22: "IQ2_S",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    41: "Q1_0",
    42: "Q2_0",
}
