"""Templates are untrusted: they end quickly, with a sentence, whatever they try."""

from __future__ import annotations

import json
import time

import pytest

from hearth.engine.errors import UserError
from hearth.engine.text.template import ChatTemplate

MESSAGES = [{"role": "user", "content": "hello"}]
HOSTILE = {
    "endless range": "{% for i in range(10**9) %}x{% endfor %}",
    "nested loops": "{% for i in range(9999) %}{% for j in range(9999) %}{% for k in range(9999) %}"
    "x{% endfor %}{% endfor %}{% endfor %}",
    "silent nested loops": "{% for i in range(9999) %}{% for j in range(9999) %}"
    "{% set x = 1 %}{% endfor %}{% endfor %}",
    "repeated text": "{{ 'x' * 10**9 }}",
    "repeated list": "{{ [0] * 10**9 }}",
    "power": "{{ 9 ** 9 ** 9 }}",
    "attributes": "{{ ''.__class__.__mro__ }}",
    "globals": "{{ cycler.__init__.__globals__ }}",
    "import": "{% import 'os' as os %}",
    "include": "{% include '/etc/passwd' %}",
    "format": "{{ '{0.__class__}'.format(1) }}",
    "syntax": "{% if %}",
    "raise": "{{ raise_exception('roles must alternate') }}",
    "padding": "{{ '%1000000000d' % 1 }}",
    "center": "{{ 'x'.center(1000000000) }}",
    "indented": "{{ [[1]]|tojson(indent=1000000000) }}",
    "separated": "{{ [1, 2]|tojson(separators=('x' ~ 'y'.ljust(100000), ':')) }}",
    "control characters": "{{ raise_exception('a\\n\\x1b[31mb.') }}",
    "long reason": "{{ raise_exception('b'.ljust(1000000)) }}",
    "type error": "{{ 1 + 'x' }}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_are_refused_quickly(name: str) -> None:
    started = time.process_time()
    answer = outcome(HOSTILE[name])
    assert time.process_time() - started < 5.0
    assert len(answer) < 1000, "nothing was gained"
    assert "class" not in answer or answer.endswith(".")


def outcome(source: str) -> str:
    """What a template gives, or the sentence that refuses it."""
    try:
        return ChatTemplate(source).render(MESSAGES)
    except UserError as error:
        return str(error)


def test_names_that_models_use_are_there() -> None:
    source = (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
        "{% if loop.first %}{% continue %}{% endif %}{% endfor %}{{ ns.n }}{{ {'ä': '<'}|tojson }}"
    )
    assert ChatTemplate(source).render(MESSAGES) == '1{"ä": "<"}'


def test_json_is_what_templates_are_written_for() -> None:
    source = (
        "{{ value|tojson }}\n{{ value|tojson(indent=1) }}\n{{ value|tojson(true) }}\n"
        "{{ value|tojson(separators=(',', ':'), sort_keys=true) }}"
    )
    value = {"b": "<é缓&'\u2028", "a": [1, 2.5, True, None]}
    rendered = ChatTemplate(source).render(MESSAGES, value=value).split("\n", 1)
    assert rendered[0] == '{"b": "<é缓&\'\u2028", "a": [1, 2.5, true, null]}'
    indented = json.dumps(value, ensure_ascii=False, indent=1)
    others = json.dumps(value) + "\n"
    others += json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    assert rendered[1] == f"{indented}\n{others}"


def test_a_refusal_is_one_sentence() -> None:
    with pytest.raises(UserError) as caught:
        ChatTemplate("{{ raise_exception('System first.') }}").render(MESSAGES)
    assert str(caught.value) == "The model's chat template refuses this chat: System first."
