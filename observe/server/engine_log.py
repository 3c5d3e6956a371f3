"""The server's own log while it is observed: the steps that vLLM writes to it, beside the trace."""

from __future__ import annotations

from dataclasses import astuple, fields
from pathlib import Path

from traces import ConfigError, TraceError, companion_file, stem_of, write_text
from traces.steps import EngineStep, parse_engine_log


class EngineLog:
    """A log that a server writes while it is observed: only lines added from now on count."""

    def __init__(self, path: Path) -> None:
        """Begin at the log's present end. Raises ConfigError where there is no such file."""
        self._path = path
        try:
            self._start = path.stat().st_size
        except OSError as fault:
            raise ConfigError(
                f"--engine-log: got {fault.strerror}, expected the server's log ({path})"
            ) from fault

    def write_steps(self, stem: str | Path) -> str | None:
        """Write the steps since then to ``STEM.steps.csv``; return a remark where there were none.

        Raises TraceError where they cannot be written.
        """
        with self._path.open("rb") as log:
            log.seek(self._start if self._path.stat().st_size >= self._start else 0)  # else it was rotated
            steps = parse_engine_log(log.read().decode("utf-8", "replace").splitlines())
        if not steps:
            return "--engine-log: no engine steps in it (vllm: --enable-logging-iteration-details)"
        target = companion_file(stem_of(stem), ".steps.csv")
        lines = [",".join(field.name for field in fields(EngineStep))]
        lines += [",".join("" if cell is None else str(cell) for cell in astuple(step)) for step in steps]
        write_text(target, "\n".join(lines) + "\n", option="--engine-log", error=TraceError)
        return None
