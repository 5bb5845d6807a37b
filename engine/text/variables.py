"""What a chat template is told besides the messages: thinking and tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hearth.engine.errors import UserError

if TYPE_CHECKING:
    from hearth.engine.protocol import Prompt


def template_variables(prompt: Prompt) -> dict[str, Any]:
    """Only what was chosen: a variable that is not there leaves the template its own default.

    Raises UserError for a tool that is no JSON object.
    """
    result: dict[str, Any] = {}
    if prompt.thinking is not None:
        chosen = {
            "enable_thinking": prompt.thinking.enabled,
            "reasoning_effort": prompt.thinking.effort,
            "preserve_thinking": prompt.thinking.preserve,
        }
        result |= {name: value for name, value in chosen.items() if value is not None}
    if prompt.tools:
        result["tools"] = [_tool(text) for text in prompt.tools]
    return result


def _tool(text: str) -> dict[str, Any]:
    try:
        tool = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"A tool is no JSON: {error}.", action="Correct its description."
        ) from error
    if not isinstance(tool, dict):
        raise UserError("A tool is no JSON object.", action="Correct its description.")
    return tool
