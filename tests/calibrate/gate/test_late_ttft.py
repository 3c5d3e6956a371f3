"""A late client's TTFT may be too long: errors reach over both, and so does the fit's constant before a first token."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrate.compare.metric_errors import compare
from calibrate.compare.pair import pair
from calibrate.gate.checks import ErrorLimit, check_metric
from traces import ClientInfo, Header, Trace, make_trace

NUM = 60


def run(mode: str, ttft_us: float, *, early_us: int | None = None, late: bool = False) -> Trace:
    sent = np.arange(NUM) * 50_000
    first = sent + np.rint(ttft_us * np.linspace(0.98, 1.02, NUM)).astype(np.int64)
    trace = make_trace(
        Header(mode="real" if mode == "real" else "generated"),
        {
            "request_id": [str(row) for row in range(NUM)],
            "arrival_time_us": sent,
            "send_time_us": sent,
            "input_tokens": 30,
            "output_tokens": 5,
            "status": "ok",
            "content_first_time_us": first,
            "last_token_time_us": first + 40_000,
            "first_token_early_us": early_us,
        },
    )
    return replace(trace, header=replace(trace.header, client=ClientInfo(late=late, limited=False)))


@pytest.mark.parametrize("late", [True, False])
def test_an_error_that_lateness_explains_is_inconclusive_and_no_failure(late: bool) -> None:
    observed, simulated = run("real", 60_000, early_us=20_000, late=late), run("simulated", 40_000)
    found = compare(pair(observed, simulated))
    limit = ErrorLimit(metric="ttft_us", statistic="mape", warn=None, fail=0.1)
    assert found["ttft_us"].mape.value == pytest.approx(1 / 3, abs=0.01)
    assert check_metric(limit, found["ttft_us"], least=30).outcome == ("INCONCLUSIVE" if late else "FAIL")
    assert (found["ttft_us"].bias.high or 0) == pytest.approx(0 if late else -1 / 3, abs=0.02)
    assert found["e2e_us"].mape == compare(pair(replace_early(observed), simulated))["e2e_us"].mape


def replace_early(trace: Trace) -> Trace:
    return replace(trace, header=replace(trace.header, client=None))
