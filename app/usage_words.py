"""What a reply cost, in short phrases: the same in the window and in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

READS = (("computed_tokens", "read"), ("reused_tokens", "reused"), ("restored_tokens", "restored"))


def usage_words(usage: Mapping[str, float]) -> list[str]:
    """Speed, length, time to the first token, and where the prompt came from. ``usage`` holds the
    fields of engine.protocol.Usage; an empty one gives no words."""
    if not usage:
        return []
    words = []
    if usage["output_tokens"] > 1 and usage["decode_s"] > 0:
        words.append(f"{(usage['output_tokens'] - 1) / usage['decode_s']:.0f} tok/s")
    words.append(f"{usage['output_tokens']:.0f} tokens")
    words.append(f"first after {usage['time_to_first_token_s']:.2f} s")
    reads = [f"{usage[name]:,.0f} {word}" for name, word in READS if usage[name]]
    if reads:
        words.append(" + ".join(reads))
    if usage["drafted_tokens"]:
        share = usage["accepted_tokens"] / usage["drafted_tokens"]
        words.append(f"drafts {share:.0%} right")
    return words
