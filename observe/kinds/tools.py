"""The tools that a request offers, from a file."""

from __future__ import annotations

from pathlib import Path

from observe.plan.guided import read_json
from observe.settings import ToolUse
from traces import ConfigError, quoted

_WORDS = ("auto", "required", "none")


def read_tools(path: Path, *, choice: str) -> ToolUse:
    """Return the tools in ``path``. Raises ConfigError for a file, or a choice, that is none."""
    said = read_json(path, option="--tools", expected="a JSON array of tools")
    if not isinstance(said, list) or not said:
        raise ConfigError(f"--tools: got no array with tools in it, expected a JSON array of tools ({path})")
    names: list[str] = []
    for place, tool in enumerate(said):
        function = tool.get("function") if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            raise ConfigError(
                f'--tools: tool {place}: got no name, expected {{"type": "function", "function": {{"name": …}}}} '
                f"({path})"
            )
        names.append(name)
    if choice not in (*_WORDS, *names):
        raise ConfigError(
            f"--tool-choice: got {quoted(choice)}, expected one of {', '.join((*_WORDS, *names))}"
        )
    return ToolUse(name=path.name, tools=tuple(said), choice=choice)
