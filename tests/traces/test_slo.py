"""Which requests meet their latency limits: of ``--slo``, of the request itself, of its service class."""

from __future__ import annotations

import pytest

from tests.traces.made import small_trace
from traces.header import SLOTarget
from traces.slo import goodput, limits_of

# small_trace: TTFT 400, 490, 600 µs and E2E 900, 490, 1000 µs


def test_without_a_limit_there_is_no_goodput() -> None:
    assert goodput(small_trace(), duration_us=1e6) is None


def test_limits_of_an_option_hold_for_every_request() -> None:
    good = goodput(small_trace(), {"ttft": 500.0, "e2e": 600.0}, duration_us=2e6)
    assert good is not None
    assert (good["num_requests"], good["num_good"], good["good_per_s"]) == (3, 1, 0.5)
    assert good["met_frac"] == pytest.approx({"ttft": 2 / 3, "e2e": 1 / 3})
    assert good["by_class"] == {}


def test_targets_of_the_header_hold_for_their_class_and_each_class_is_counted() -> None:
    trace = small_trace(slo_class=["critical", "batch", None]).with_header(
        goodput_slo_targets={"critical": SLOTarget(ttft_ms=0.3), "batch": SLOTarget(ttft_ms=0.5, e2e_ms=1.0)}
    )
    good = goodput(trace, duration_us=1e6)
    assert good is not None
    assert (good["num_requests"], good["num_without_target"], good["num_good"]) == (2, 1, 1)
    assert {name: each["num_good"] for name, each in good["by_class"].items()} == {"batch": 1, "critical": 0}
    assert good["by_class"]["batch"]["met_frac"] == {"ttft": 1.0, "e2e": 1.0}


def test_a_requests_own_target_goes_before_its_classs_and_an_option_before_both() -> None:
    trace = small_trace(slo_class="batch", slo_target_us=[450, None, 550]).with_header(
        goodput_slo_targets={"batch": SLOTarget(ttft_ms=0.2)}
    )
    assert limits_of(trace)["ttft"].tolist() == [450, 200, 550]
    assert limits_of(trace, {"ttft": 700.0})["ttft"].tolist() == [700, 700, 700]
    good = goodput(trace, duration_us=1e6)
    assert good is not None
    assert good["num_good"] == 1


def test_a_failed_request_meets_no_limit() -> None:
    good = goodput(small_trace(status=["ok", "error", "ok"]), {"ttft": 1e9}, duration_us=1e6)
    assert good is not None
    assert (good["num_good"], good["num_requests"]) == (2, 3)
    assert good["met_frac"] == pytest.approx({"ttft": 2 / 3})
