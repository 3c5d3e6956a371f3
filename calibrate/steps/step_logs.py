"""The files of ``calibrate --steps``, read as the steps of engines of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass
from pathlib import Path

from calibrate.steps.step_series import StepSeries, series_of
from traces import ConfigError, companion_file, stem_of
from traces.steps import read_logged_steps

BESIDE = Path("auto")
"""``--steps auto``: the steps beside each observed trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLogs:
    """The steps of all engines, the files' ``names``, and ``remarks`` on what is left out."""

    series: tuple[StepSeries, ...]
    names: tuple[str, ...]
    remarks: tuple[str, ...]

    def told(self, how: str) -> str:
        """Return why requests are new to a fit, and which steps it has seen, if any."""
        return f"{how}; its steps are from {', '.join(self.names)}" if self.names else how


NO_STEPS = StepLogs(series=(), names=(), remarks=())


def read_step_logs(asked: Sequence[Path], *, traces: Sequence[Path], is_async: bool) -> StepLogs:
    """Return the steps in the files that ``--steps`` names, ``auto`` being those beside the ``traces``.

    ``is_async``: whether the server prepares a step while one runs. Raises TraceError, one line, for a file whose times
    are no steps'; ConfigError for ``auto`` where there are none.
    """
    paths = [path for each in asked for path in (_beside(traces) if each == BESIDE else [each])]
    series, remarks = list[StepSeries](), list[str]()
    for path in paths:
        found, said = series_of(read_logged_steps(path), name=path.name, is_async=is_async)
        series += found
        remarks += said
    return StepLogs(
        series=tuple(series), names=tuple(path.name for path in paths), remarks=tuple(dict.fromkeys(remarks))
    )


def _beside(traces: Sequence[Path]) -> list[Path]:
    """Return the steps beside traces. Raises ConfigError where one has none."""
    if not traces:
        raise ConfigError("--steps auto: got no trace, expected one with its steps beside it, or a file")
    paths = [companion_file(stem_of(trace), ".steps.csv") for trace in traces]
    for path in paths:
        if not path.exists():
            raise ConfigError(
                f"--steps auto: got no {path.name}, expected the steps beside the trace ({path})"
            )
    return paths
