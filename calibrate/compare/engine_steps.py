"""The engine's own log of its steps, and what the latency model makes of the same steps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calibrate.compare.bootstrap import Floats, finite
from traces.errors import TraceError

if TYPE_CHECKING:
    from replay import TwinConfig
    from sim import Step

NEAREST = 5
"""Simulated steps that tell what one of a model with more terms than blackbox's takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSteps:
    """Logged steps: tokens prefilled, sequences that decoded, and how long each took (µs); one value a step."""

    prefill_tokens: Floats
    decode_tokens: Floats
    duration_us: Floats

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.duration_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepErrors:
    """Logged and predicted durations (µs) of the same steps; ``mape`` and ``bias`` of single steps.

    ``time_error``: all the predicted time over all the logged time, minus 1.
    """

    steps: EngineSteps
    predicted_us: Floats
    mape: float | None
    bias: float | None
    pearson_r: float | None
    time_error: float | None


def read_steps(path: Path) -> EngineSteps | None:
    """Return the steps that ``observe --engine-log`` left in STEM.steps.csv, None where there is no such file.

    Raises TraceError for a file that is not one.
    """
    import pandas as pd

    if not path.exists():
        return None
    columns = ("num_prefill_tokens", "num_decode_tokens", "duration_us")
    try:
        table = pd.read_csv(path)
        prefill, decode, duration = (table[name].to_numpy(dtype=np.float64) for name in columns)
    except (KeyError, ValueError) as error:
        raise TraceError(f"{path.name}: got {error}, expected columns {', '.join(columns)}") from error
    return EngineSteps(prefill_tokens=prefill, decode_tokens=decode, duration_us=duration)


def step_errors(logged: EngineSteps, config: TwinConfig, *, simulated: list[Step]) -> StepErrors | None:
    """Return how far the twin's step times are from the log; None where no step took any time.

    Blackbox is computed for the very steps of the log. A model that also goes by contexts, which the log does not
    tell, is asked through the simulated steps of about as many prefill and decode tokens.
    """
    kept = logged.duration_us > 0
    if not kept.any():
        return None
    steps = EngineSteps(
        prefill_tokens=logged.prefill_tokens[kept],
        decode_tokens=logged.decode_tokens[kept],
        duration_us=logged.duration_us[kept],
    )
    latency = config.latency
    if latency.is_blackbox:
        beta = [float(getattr(latency, name)) for name in ("beta0", "beta1", "beta2")]
        predicted = beta[0] + beta[1] * steps.prefill_tokens + beta[2] * steps.decode_tokens
    elif simulated:
        predicted = _like_simulated(steps, simulated)
    else:
        return None
    relative = predicted / steps.duration_us - 1
    varies = len(steps) > 2 and np.ptp(predicted) > 0 and np.ptp(steps.duration_us) > 0
    return StepErrors(
        steps=steps,
        predicted_us=predicted,
        mape=finite(float(np.abs(relative).mean())),
        bias=finite(float(relative.mean())),
        pearson_r=finite(float(np.corrcoef(predicted, steps.duration_us)[0, 1])) if varies else None,
        time_error=finite(float(predicted.sum() / steps.duration_us.sum() - 1)),
    )


def _like_simulated(steps: EngineSteps, simulated: list[Step]) -> Floats:
    """Return the mean duration of the simulated steps nearest in prefill and decode tokens, each on a log scale."""
    from scipy.spatial import KDTree

    there = np.log1p([[step.P, step.D] for step in simulated])
    durations = np.array([step.dur for step in simulated], dtype=np.float64)
    here = np.log1p(np.column_stack([steps.prefill_tokens, steps.decode_tokens]))
    near = min(NEAREST, len(simulated))
    _, rows = KDTree(there).query(here, k=near)
    return np.asarray(durations[rows.reshape(len(here), near)].mean(axis=1))
