"""The user's settings in the engine's words, by what the open model can do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hearth.app.request_settings import drafting, longest_reply
from hearth.app.settings import Settings
from hearth.engine.protocol import Drafting, ModelInfo

PLAIN = ModelInfo(
    name="m",
    path="/m",
    architecture="qwen3_5",
    num_parameters=1,
    weight_bytes=1,
    context_length=1000,
    vocab_size=10,
    device="CPU",
    kernels="llvm",
    fingerprint="f",
    has_chat_template=True,
)


@pytest.mark.parametrize(
    ("can_think", "by_default", "mode", "wanted"),
    [
        (False, False, "on", 100),
        (False, True, "off", 1100),
        (True, True, "auto", 1100),
        (True, False, "auto", 100),
        (True, False, "on", 1100),
        (True, True, "off", 100),
    ],
)
def test_thinking_has_tokens_of_its_own(
    can_think: bool, by_default: bool, mode: str, wanted: int
) -> None:
    settings = Settings.model_validate(
        {"sampling": {"max_tokens": 100}, "thinking": {"mode": mode, "max_tokens": 1000}}
    )
    model = replace(PLAIN, can_think=can_think, thinks_by_default=by_default)
    assert longest_reply(settings, model) == wanted


def test_no_limit_stays_no_limit() -> None:
    thinks = replace(PLAIN, can_think=True, thinks_by_default=True)
    settings = Settings()
    settings.thinking.max_tokens = 0
    assert longest_reply(settings, thinks) is None
    settings.sampling.max_tokens = 0
    assert longest_reply(settings, PLAIN) is None


def test_mtp_is_for_models_that_have_it() -> None:
    settings = Settings.model_validate({"speed": {"drafting": "mtp"}})
    assert drafting(settings, replace(PLAIN, has_mtp=True)) is Drafting.MTP
    assert drafting(settings, PLAIN) is Drafting.AUTO
