"""Every step of a simulation as JSON lines, with the keys of the recordings of vLLM's own scheduler."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from sim import Step
from traces import atomic_file

_KEYS = (
    *("step", "t", "dur", "P", "D", "sched", "preempted", "hits", "finished", "running", "waiting", "free"),
    *("block_ids", "free_queue", "exec_start", "exec_end", "t_end", "free_end"),
)


def step_line(step: Step, more: Mapping[str, object] | None = None) -> str:
    """Return a step as one line of JSON, ``more`` in front; what was not recorded is left out."""
    values = {key: getattr(step, key) for key in _KEYS}
    known = {key: value for key, value in values.items() if value is not None}
    return json.dumps({**(more or {}), **known}, separators=(",", ":"))


def write_steps(path: str | Path, lines: Iterable[str]) -> None:
    """Write one line per step; atomic. Raises ConfigError where the file cannot be written."""
    with (
        atomic_file(Path(path), option="--steps", is_durable=False) as temporary,
        temporary.open("w", encoding="utf-8") as file,
    ):
        file.writelines(line + "\n" for line in lines)
