"""A TWIN.yaml that was just written, read once: whether it can be simulated is said at once, not at its first run."""

from __future__ import annotations

import tempfile
from pathlib import Path

from replay.twin.config_read import load_config
from traces import ConfigError


def why_not(text: str) -> str | None:
    """Return why what a TWIN.yaml says cannot be simulated, or would not start under vLLM; None where neither is so.

    None, too, where there is no place for a temporary file: what was written is printed all the same.
    """
    try:
        return _why_not(text)
    except OSError:
        return None


def _why_not(text: str) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "twin.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            found = load_config(path)
        except ConfigError as error:
            return str(error).replace(str(path), path.name)
    return next(iter(found.will_not_start), None)
