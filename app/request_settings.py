"""The user's settings in the engine's words."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from hearth.engine.protocol import SamplingParams, Thinking

if TYPE_CHECKING:
    from hearth.app.settings import Sampling, ThinkingChoice


def sampling_params(chosen: Sampling) -> SamplingParams:
    """The settings as the engine wants them; without a seed every reply gets one of its own."""
    return SamplingParams(
        temperature=chosen.temperature,
        top_k=chosen.top_k,
        top_p=chosen.top_p,
        min_p=chosen.min_p,
        repetition_penalty=chosen.repetition_penalty,
        seed=secrets.randbits(32) if chosen.seed is None else chosen.seed,
    )


def thinking(chosen: ThinkingChoice) -> Thinking | None:
    """None leaves everything to the model's template. An effort alone asks for thinking."""
    if chosen.mode == "auto" and chosen.effort == "auto":
        return None
    effort = None if chosen.effort == "auto" else chosen.effort
    return Thinking(enabled=chosen.mode != "off", effort=effort)
