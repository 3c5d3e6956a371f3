"""Pictures as numbers: each axis of times says its unit, so that answers in several units share one axis."""

from __future__ import annotations

import numpy as np
import pytest

from replay.explore.shown_pictures import IN_US, documents_of
from traces.pages.request_figures import distribution_picture, throughput_picture, unit_of
from traces.pages.time_axis import UNITS, time_axis
from traces.workload import WorkloadOptions, trace_from_options


@pytest.mark.parametrize("typical_us", [300.0, 40_000.0, 22.7e6])
def test_a_curve_times_its_axis_unit_is_in_us(typical_us: float) -> None:
    values = np.linspace(0.5, 1.0, 200) * typical_us
    (shown,) = documents_of({"ttft": distribution_picture(values, "TTFT", None)})
    axis, (line,) = shown["x"], shown["marks"]  # type: ignore[misc]
    assert axis["in_us"] == unit_of(values)[0]  # type: ignore[index]
    last = line["x"][-1] * axis["in_us"]  # type: ignore[has-type, index]
    assert last == pytest.approx(np.quantile(values, 0.999), rel=1e-3)
    assert shown["y"]["in_us"] is None  # type: ignore[index]


def test_every_unit_of_time_is_known() -> None:
    for span_us in (1e6, *(each[0] for each in UNITS)):
        axis = time_axis(span_us)
        assert IN_US[axis.unit] == axis.divisor
    for size in (1.0, 1e4, 1e7):
        divisor, unit = unit_of(np.array([size]))
        assert IN_US[unit] == divisor
    trace = trace_from_options(WorkloadOptions(rate=5, num_requests=3, prompt_tokens=9))
    (shown,) = documents_of({"throughput": throughput_picture(trace, 2e9)})
    assert (shown["x"]["in_us"], shown["y"]["in_us"]) == (6e7, None)  # type: ignore[index]
