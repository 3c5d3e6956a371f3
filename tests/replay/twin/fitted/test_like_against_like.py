"""A fitted range holds like against like: draws of the same load are not beyond it, and a queue is no concurrency."""

from __future__ import annotations

import numpy as np
import pytest

from replay.twin.fitted.fitted_range import extrapolation_note, range_of
from traces import Header, Trace, make_trace


def measured(n: int, *, seed: int, queued_us: int = 0) -> Trace:
    """Return answered requests of one load: a second apart, of 1.5 s each behind a wait."""
    rng = np.random.default_rng(seed)
    sent = np.arange(n) * 1_000_000
    last = sent + queued_us + 1_500_000
    return make_trace(
        Header(tool="vtwin", mode="simulated"),
        {
            "request_id": [str(i) for i in range(n)],
            "arrival_time_us": sent,
            "send_time_us": sent,
            "scheduled_time_us": sent + queued_us,
            "first_token_time_us": sent + queued_us + 500_000,
            "last_token_time_us": last,
            "input_tokens": np.maximum(1, rng.lognormal(6, 1, n)).astype(int),
            "output_tokens": np.full(n, 10),
            "status": np.full(n, "ok"),
        },
    )


def test_many_draws_of_the_fitted_load_are_seldom_beyond_the_fit() -> None:
    beyond = {True: 0, False: 0}
    for seed in range(40):
        run = range_of([measured(5000, seed=1000 + seed)], [None])
        for is_fitted in beyond:
            fitted = range_of([measured(90, seed=seed)], [None], is_fitted=is_fitted)
            beyond[is_fitted] += extrapolation_note(fitted, run) is not None
    assert beyond[True] < 0.7 * beyond[False]


@pytest.mark.parametrize("queued_us", [0, 300_000_000])
def test_concurrency_is_what_runs_not_what_queues(queued_us: int) -> None:
    found = range_of([measured(600, seed=1, queued_us=queued_us)], [None]).concurrency
    assert found is not None
    assert found[1] == 2
