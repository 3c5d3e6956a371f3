"""When a run's requests were sent, began to be served and left: what a verdict counts a queue by."""

from __future__ import annotations

from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim import Outcomes, Status
from traces.statistics.percentiles import median_of

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]
NEVER = -1
NEAR = 50
"""Requests sent one after the other whose steps take about as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """When requests were sent, began to be served and left; µs, int64 [n].

    ``began_us``: when the wait was over, of one that never began when it left, or ``FOREVER``. ``left_us``: answered or
    lost. ``is_lost``: never answered. ``step_us``: about how long a step took then, ``num_steps``: tokens of
    the answer, 0 without one, float64.
    """

    came_us: Int64s
    began_us: Int64s
    left_us: Int64s
    is_lost: NDArray[np.bool_]
    step_us: Floats
    num_steps: Floats


FOREVER = 1 << 62


def queued_of(
    outcomes: Outcomes,
    *,
    refused: NDArray[np.bool_],
    gone_us: Int64s | None,
    handed_us: Int64s | None = None,
    compiled_us: Int64s | None = None,
) -> Queued:
    """Return the waits of a run's requests, those ``refused`` for their lengths left out.

    ``gone_us``: when each left, where that is known of the lost ones, too. ``handed_us``: when the KV of a prompt that
    another instance computed was there, -1 without; its wait for that instance is added in front. ``compiled_us``: how
    long a request's grammar compiled, which is no wait for others.
    """
    ok = outcomes.status == Status.OK
    left = np.where(ok, outcomes.last_token_us, NEVER)
    lost_at = outcomes.last_token_us if gone_us is None else gone_us
    waits_forever = (outcomes.status == Status.STUCK) | (outcomes.status == Status.UNFINISHED)
    left = np.where(ok, left, np.where(waits_forever | (lost_at < 0), FOREVER, lost_at))
    began = np.where(outcomes.scheduled_us >= 0, outcomes.scheduled_us, left)
    if handed_us is not None:
        began = began + np.where(ok & (handed_us >= 0), np.maximum(outcomes.first_token_us - handed_us, 0), 0)
    if compiled_us is not None:
        began = np.where(began < FOREVER, began - compiled_us, began)
    kept = np.flatnonzero((outcomes.arrival_us >= 0) & ~refused)
    kept = kept[np.argsort(outcomes.arrival_us[kept], kind="stable")]
    came = outcomes.arrival_us[kept]
    return Queued(
        came_us=came,
        began_us=np.maximum(began[kept], came),
        left_us=np.maximum(left[kept], came),
        is_lost=~ok[kept],
        step_us=_steps_near(outcomes, kept),
        num_steps=np.where(ok, outcomes.num_output_tokens, 0)[kept].astype(np.float64),
    )


def _steps_near(outcomes: Outcomes, rows: Int64s) -> Floats:
    """Return about how long a step took when each of some requests came, µs, float64 [n]; 0 where none tells.

    Of answers sent next to it: the median time per token, or the shortest time to compute a prompt, if that is longer.
    """
    ok, gaps = outcomes.status[rows] == Status.OK, outcomes.num_output_tokens[rows] - 1
    first, last, began = (
        each[rows] for each in (outcomes.first_token_us, outcomes.last_token_us, outcomes.scheduled_us)
    )
    tokens = np.where(ok & (gaps > 0), (last - first) / np.maximum(gaps, 1), np.nan)
    prompts = np.where(ok, first - began, np.nan)
    parts = np.array_split(np.arange(len(rows)), max(len(rows) // NEAR, 1))
    steps = []
    for part in parts:
        own, prompt = (each[part][~np.isnan(each[part])] for each in (tokens, prompts))
        steps.append(max(median_of(np.sort(own)) if len(own) else 0.0, prompt.min() if len(prompt) else 0.0))
    return np.repeat(np.array(steps, np.float64), [len(part) for part in parts])
