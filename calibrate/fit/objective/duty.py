"""How busy a trace keeps the part of a GPU that slows down under load."""

from __future__ import annotations

import numpy as np

from calibrate.fit.objective.fit_trace import FitTrace
from sim import Extended

MICROSECONDS_PER_SECOND = 1e6
LONG = 0.9
"""The quantile of a trace's prompts that counts as a long one."""


def duty(model: Extended, trace: FitTrace) -> float:
    """Return the share of recent time spent computing that a trace reaches: on average, or within a long prompt.

    The average is of the whole trace, without any slowdown; a prompt that computes for X after an idle time reaches
    1 - exp(-X / tau).
    """
    timeline = trace.observed_timeline
    new, prompt = timeline.prefill_tokens, trace.requests.prompt_tokens.astype(np.float64)
    pairs = new * (prompt - new) + new * (new + 1) / 2
    took_us = float(model.beta1) * new + model.beta4 * pairs
    decoded = float(np.nansum(timeline.output_tokens)) if model.floor > 0 else 0.0
    span = float(np.nanmax(timeline.last) - np.nanmin(timeline.joined))
    average = (float(np.nansum(took_us)) + float(model.beta1) * decoded) / max(span, 1.0)
    tau_us = model.tau_s * MICROSECONDS_PER_SECOND
    if tau_us <= 0:
        return average
    return max(average, float(-np.expm1(-np.nanquantile(took_us, LONG) / tau_us)))
