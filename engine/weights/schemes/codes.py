"""Integer codes out of 32-bit words, in the orders in which published formats pack them."""

from __future__ import annotations

import torch

AWQ_COLUMN_OF_NIBBLE = (0, 2, 4, 6, 1, 3, 5, 7)


def along_row(words: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """uint8 [R, count] from int32 [R, words]: code k of a row at bit k * bits, lowest first."""
    bytes_ = words.contiguous().view(torch.uint8).view(words.shape[0], -1)
    if bits == 8:
        return bytes_[:, :count]
    return torch.stack((bytes_ & 15, bytes_ >> 4), dim=2).flatten(1)[:, :count]


def down_column(words: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """uint8 [C, count] from int32 [words, C]: the same along columns, transposed."""
    return along_row(words.t().contiguous(), bits, count)


def awq(words: torch.Tensor) -> torch.Tensor:
    """uint8 [R, 8 * words] from int32 [R, words]: nibble i of a word is column [0 2 4 6 1 3 5 7][i]
    of its eight."""
    nibbles = along_row(words, 4, words.shape[1] * 8).view(words.shape[0], -1, 8)
    columns = torch.empty_like(nibbles)
    columns[..., list(AWQ_COLUMN_OF_NIBBLE)] = nibbles
    return columns.flatten(1)


def nibble_pairs(packed: torch.Tensor) -> torch.Tensor:
    """uint8 [R, 2 * B] from uint8 [R, B]: the low nibble of a byte is the even column."""
    return torch.stack((packed & 15, packed >> 4), dim=2).flatten(1)
