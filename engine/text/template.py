"""Chat templates: untrusted Jinja from a model file, rendered in a sandbox with bounds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn

import jinja2
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hearth.engine.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_RANGE = 100_000  # steps of all ranges of one rendering together
MAX_PIECES = 200_000  # emitted fragments: bounds loops that a template may nest
MAX_CHARS = 4_000_000
MAX_PADDING = 16  # characters that JSON may put between values
MAX_REASON_CHARS = 300
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PLAIN = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


class _TooMuchError(Exception):
    """A template asked for more than any chat needs."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """Bounds what the language can multiply: ranges, repeated strings, powers."""

    intercepted_binops = frozenset(("*", "**", "%"))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" or (operator == "*" and _is_repetition(left, right)):
            raise _TooMuchError
        return super().call_binop(context, operator, left, right)


def _is_repetition(left: Any, right: Any) -> bool:
    return not (isinstance(left, int | float) and isinstance(right, int | float))


class _Range:
    """``range`` with a budget for a whole rendering: nested loops add up, also silent ones."""

    def __init__(self) -> None:
        self._left = MAX_RANGE

    def __call__(self, *bounds: int) -> range:
        result = range(*bounds)
        self._left -= len(result)
        if self._left < 0:
            raise _TooMuchError
        return result


class ChatTemplate:
    """A compiled template. Thread-safe; holds no clock and no randomness, so that the same chat
    always gives the same prompt."""

    def __init__(self, source: str) -> None:
        environment = _Sandbox(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], autoescape=False
        )
        environment.globals = {
            "raise_exception": _raise_exception,
            "namespace": jinja2.utils.Namespace,
        }
        environment.filters["tojson"] = _tojson
        try:
            self._template = environment.from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise UserError(
                f"The model's chat template cannot be read: {error}.",
                action="Choose another version of the model.",
            ) from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        **variables: object,
    ) -> str:
        """The prompt as text, with the opening of the reply. ``variables`` are what the template
        knows beside the messages (tools, enable_thinking, …); one that is left out is undefined.
        Raises UserError with the reason."""
        pieces: list[str] = []
        num_chars = 0
        try:
            stream = self._template.generate(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                range=_Range(),
                **variables,
            )
            for piece in stream:
                pieces.append(piece)
                num_chars += len(piece)
                if len(pieces) > MAX_PIECES or num_chars > MAX_CHARS:
                    raise _TooMuchError
        except _TooMuchError as error:
            raise UserError("The model's chat template asks for too much work.") from error
        except (jinja2.TemplateError, SecurityError, RecursionError) as error:
            reason = _reason(error)
            raise UserError(f"The model's chat template refuses this chat: {reason}.") from error
        except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
            raise UserError(f"The model's chat template fails: {_reason(error)}.") from error
        return "".join(pieces)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _reason(error: Exception) -> str:
    """What a template says, as the end of a sentence: one printable line without its full stop."""
    line = "".join(char if char.isprintable() else " " for char in str(error)[:MAX_REASON_CHARS])
    return line.strip().removesuffix(".")


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as the models were trained on: nothing escaped for HTML, non-ASCII kept, json's own
    separators. The arguments are those of the library that templates are written for."""
    if max(indent or 0, *map(len, separators or ("",))) > MAX_PADDING:
        raise _TooMuchError
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
