"""A text side that behaves like the family's: marks as single tokens, a template that thinks."""

from __future__ import annotations

import itertools
from pathlib import Path

from hearth.engine.text.data import GgufText
from hearth.engine.text.prompt import TextModel, load_text

EFFORTS = """\
{%- set on = enable_thinking is not defined or enable_thinking %}
{%- set effort = reasoning_effort | default('xhigh') %}
{%- set keep = preserve_thinking is not defined or preserve_thinking %}
{%- if effort not in ['xhigh', 'medium', 'low'] %}{{ raise_exception('no such effort') }}{% endif %}
{%- set words = {'xhigh': 'Think long.', 'low': 'Think little.'}.get(effort, '') if on else '' %}
"""
HEAD = """\
{%- set system = messages[0].content if messages[0].role == 'system' else '' %}
{%- if words or system or tools %}<|im_start|>system
{{ words }}{% if tools %}# Tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% endif %}{{ system }}<|im_end|>
{% endif %}
"""
BODY = """\
{%- set ns = namespace(last=0) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}
{%- endfor %}
{%- for m in messages %}
{%- if m.role == 'user' %}<|im_start|>user
{{ m.content | trim }}<|im_end|>
{% elif m.role == 'assistant' %}<|im_start|>assistant
{% if keep or loop.index0 > ns.last %}<think>
{{ (m.reasoning_content or '') | trim }}
</think>

{% endif %}{{ m.content | trim }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
<think>
{% if not on %}

</think>

{% endif %}{% endif %}
"""
FAMILY = EFFORTS + HEAD + BODY
WHOLE = (Path(__file__).parent / "qwen_template.jinja").read_text("utf-8")
CONTROL = ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]


def text_model(template: str) -> TextModel:
    """One token per byte, and the family's marks."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = itertools.count(256)
    names = [chr(b) if b in printable else chr(next(rest)) for b in range(256)]
    tokens = (*names, *CONTROL)
    types = (1,) * 256 + (3, 3) + (4,) * 4
    return load_text(GgufText("gpt2", "default", tokens, types, (), None, (257,), False, template))
