"""The user's settings in the engine's words."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from hearth.engine.protocol import Drafting, SamplingParams, Thinking

if TYPE_CHECKING:
    from hearth.app.settings import Sampling, Settings, ThinkingChoice
    from hearth.engine.protocol import ModelInfo


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


def longest_reply(settings: Settings, model: ModelInfo) -> int | None:
    """Tokens of answer and reasoning together; None is no limit."""
    answer, extra = settings.sampling.max_tokens, settings.thinking.max_tokens
    chosen = thinking(settings.thinking) if model.can_think else None
    thinks = model.thinks_by_default if chosen is None else chosen.enabled
    if not thinks:
        return answer or None
    return answer + extra if answer and extra else None


def drafting(settings: Settings, model: ModelInfo) -> Drafting:
    """MTP is a wish for models that have the module; the others choose by themselves."""
    chosen = Drafting(settings.speed.drafting)
    return Drafting.AUTO if chosen is Drafting.MTP and not model.has_mtp else chosen
