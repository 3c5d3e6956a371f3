"""How busy a trace keeps the part of a GPU that slows down under load."""

from __future__ import annotations

import numpy as np

from calibrate.fit.objective.fit_trace import FitTrace
from sim import Extended


def duty(model: Extended, trace: FitTrace) -> float:
    """Return the share of a trace's time that its computing takes, without any slowdown."""
    timeline = trace.observed_timeline
    new, prompt = timeline.prefill_tokens, trace.requests.prompt_tokens.astype(np.float64)
    pairs = float(np.nansum(new * (prompt - new) + new * (new + 1) / 2))
    tokens = float(np.nansum(new)) + (float(np.nansum(timeline.output_tokens)) if model.floor > 0 else 0.0)
    span = float(np.nanmax(timeline.last) - np.nanmin(timeline.joined))
    return (float(model.beta1) * tokens + model.beta4 * pairs) / max(span, 1.0)
