"""Metrics and limits where the usual trace never goes: rates, statuses that are absent, single values, the words."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.traces.made import events_of, small_trace
from traces import Header, Trace
from traces.errors import ConfigError
from traces.header import ClientInfo, SLOTarget
from traces.metrics import (
    MetricNotes,
    cut_short_note,
    has_failed,
    is_from_start,
    latencies_us,
    mean_rate_per_s,
    metric_notes,
    pooled_itl_us,
    served_output,
    token_gaps,
)
from traces.slo import goodput, limits_of, meets_slo, parse_slo

# -- rates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times_us", "drawn_per_s", "rate"),
    [
        ([0, 1_000_000], None, 1.0),
        ([5_000_000, 6_000_000, 9_000_000], None, 0.5),
        ([500_000, 1_000_000], 2.0, 2.0),  # two gaps from the start in a second
        ([500_000, 1_000_000], 2.0 / 1.002, 2.0),  # two thousandths off are the same rate
        ([500_000, 1_000_000], 2.0 / 1.003, 2.0),  # one gap in half a second: the same by chance
        ([400_000, 1_000_000], 2.0, 2.0),
        ([400_000, 1_000_000], 2.0 / 1.0019, 2.0),
        ([400_000, 1_000_000], 2.0 / 1.0021, 1 / 0.6),
        ([400_000, 1_000_000], 0.0, 1 / 0.6),
        ([-600_000, 0], 2.0, 1 / 0.6),
        ([0, 2], 1_000_000.0, 1_000_000.0),
        ([7, 7, 7], None, None),
        ([7], None, None),
        ([], None, None),
    ],
)
def test_the_mean_rate_of_requests(
    times_us: list[int], drawn_per_s: float | None, rate: float | None
) -> None:
    found = mean_rate_per_s(np.array(times_us), drawn_per_s)
    assert found == (None if rate is None else pytest.approx(rate))


def test_a_run_ends_after_its_start_or_was_not_drawn_from_it() -> None:
    assert is_from_start(np.array([1]), 1e6)
    assert not is_from_start(np.array([0]), 1e6)
    assert not is_from_start(np.array([], np.int64), 1e6)
    assert not is_from_start(np.array([1]), None)


# -- statuses and tokens -------------------------------------------------------------------------------------


def test_a_request_has_failed_that_has_another_status_than_ok() -> None:
    assert has_failed(small_trace(status=["ok", None, "error"])).tolist() == [False, False, True]


def test_the_tokens_that_came_or_were_asked_for() -> None:
    trace = small_trace(status=["ok", "error", "error"], max_tokens=[9, 8, None])
    assert served_output(trace).values.tolist() == [5, 8, 4]
    assert served_output(small_trace(output_tokens=[None, 1, 4], max_tokens=[7, 7, 7])).values.tolist() == [
        7,
        1,
        4,
    ]


def test_latencies_of_one_two_and_no_tokens() -> None:
    times = (np.full(4, 10.0), np.full(4, 30.0), np.full(4, 90.0))
    ttft, e2e, tpot = latencies_us(*times, output_tokens=np.array([1.0, 2.0, 0.0, 4.0]))
    assert ttft.tolist() == [20] * 4
    assert e2e.tolist() == [80] * 4
    assert tpot == pytest.approx([math.nan, 60, math.nan, 20], nan_ok=True)


# -- gaps ----------------------------------------------------------------------------------------------------


def test_gaps_of_events_by_hand() -> None:
    """Of b there is one event; of c's second nobody counted the tokens, and its third brought two."""
    events = events_of(
        [
            ("a", 0, 100, 1),
            ("a", 1, 130, 1),
            ("b", 0, 50, 1),
            ("c", 0, 10, 1),
            ("c", 1, 20, 1),
            ("c", 2, 50, 2),
        ]
    )
    events["num_tokens"] = events["num_tokens"].astype("Int64")
    events.loc[4, "num_tokens"] = pd.NA
    trace = replace(small_trace(), events=events)
    gaps = token_gaps(trace)
    assert (gaps.request.tolist(), gaps.gap_us.tolist()) == ([0, 2, 2], [30, 10, 15])
    assert gaps.num_tokens.tolist() == [1, 1, 2]
    assert pooled_itl_us(trace).tolist() == [30, 10, 15, 15]
    notes = metric_notes(trace)
    assert (notes.num_events_divided, notes.num_events_uncounted) == (1, 1)
    assert (notes.num_ttft_from_first_chunk, notes.num_e2e_from_last_chunk) == (3, 3)


def test_stated_means_count_as_often_as_there_are_gaps() -> None:
    trace = small_trace(itl_mean_us=[7.0, 8.0, None])
    assert pooled_itl_us(trace).tolist() == [7.0] * 4
    assert (
        pooled_itl_us(small_trace(itl_mean_us=[7.0, 8.0, 9.0], status=["ok", "ok", "error"])).tolist()
        == [7.0] * 4
    )


def test_every_substitution_has_its_sentence() -> None:
    notes = MetricNotes(
        num_ttft_from_first_chunk=1, num_e2e_from_last_chunk=0, num_events_divided=3, num_events_uncounted=4
    )
    assert notes.lines() == (
        "1 requests: TTFT runs to the first event, which may carry no text",
        "3 stream chunks held several tokens; ITL was split evenly",
        "4 events with an unknown number of tokens were taken as one token each",
    )


@pytest.mark.parametrize(
    ("mode", "client", "said"),
    [
        ("real", None, None),
        ("real", {"finished": True}, None),
        ("real", {"finished": None}, None),
        (
            "real",
            {"finished": False},
            "the run did not come to its end: the trace has the 3 requests that were sent by then",
        ),
        (
            "real",
            {"interrupted": True, "finished": False, "num_planned": 1234},
            "the run was interrupted: the trace has the 3 requests of 1,234 planned that were sent by then",
        ),
        (
            "real",
            {"interrupted": True, "finished": True},
            "the run was interrupted: the trace has the 3 requests that were sent by then",
        ),
        ("replayed", {"finished": False}, None),
    ],
)
def test_a_run_that_did_not_end_is_told(mode: Any, client: dict[str, Any] | None, said: str | None) -> None:  # noqa: ANN401
    header = Header(mode=mode, client=None if client is None else ClientInfo(**client))
    assert cut_short_note(replace(small_trace(), header=header)) == said


# -- limits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "limits", "told"),
    [
        ("ttft=500ms,tpot=30ms", {"ttft": 500_000, "tpot": 30_000}, 0),
        ("ttft_p99=500ms", {"ttft": 500_000}, 1),
        ("ttft_from_due=1s", {"ttft_from_due": 1_000_000}, 0),
        ("itl_p99.9=1s,e2e=2s", {"itl": 1_000_000, "e2e": 2_000_000}, 1),
    ],
)
def test_limits_of_an_option(given: str, limits: dict[str, float], told: int) -> None:
    said: list[str] = []
    assert parse_slo(given, tell=said.append) == limits
    assert parse_slo(given) == limits
    assert len(said) == told
    if given.startswith("ttft_p99"):
        assert said[0].endswith("it is kept where 99 % of them meet it")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("ttft_mean=5ms", "a limit that no single request has"),
        ("sum_mean=5ms", "expected one of ttft"),
        ("ttft_most=5ms", "expected one of ttft"),
        ("sum_p99=5ms", "expected one of ttft"),
        ("ttft=5ms,ttft_p99=6ms", "a second limit of ttft"),
    ],
)
def test_what_is_no_limit_of_a_request(given: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_slo(given)


def test_a_limit_is_met_at_its_value_and_by_what_does_not_exist() -> None:
    table = pd.DataFrame({"ttft_us": [5.0, 5.1, 4.0], "tpot_us": [1.0, 1.0, math.nan]})
    assert meets_slo(table, {"ttft": 5.0, "tpot": 1.0}).tolist() == [True, False, True]
    assert meets_slo(table, {"tpot": 0.9}).tolist() == [False, False, True]
    assert meets_slo(table, {}).tolist() == [True] * 3


def graded(trace: Trace) -> Trace:
    """Return a trace whose header limits class x to a TTFT of 0.4 ms and an E2E of 0.9 ms."""
    targets = {"x": SLOTarget(ttft_ms=0.4, e2e_ms=0.9), "unseen": SLOTarget(itl_ms=1.0)}
    return trace.with_header(goodput_slo_targets=targets)


def test_limits_by_option_request_and_class() -> None:
    """TTFT: 400, 490, 600 us; E2E: 900, 490, 1000. The last has a limit of its own and no class, the second none."""
    trace = graded(small_trace(slo_class=["x", "y", None], slo_target_us=[None, None, 600]))
    limits = limits_of(trace)
    assert set(limits) == {"ttft", "e2e"}
    assert limits["ttft"] == pytest.approx([400, math.nan, 600], nan_ok=True)
    assert limits["e2e"] == pytest.approx([900, math.nan, math.nan], nan_ok=True)
    found = goodput(trace, duration_us=2e6)
    assert found is not None
    assert (found["num_requests"], found["num_good"], found["num_without_target"]) == (2, 2, 1)
    assert (found["good_frac"], found["good_per_s"]) == (1.0, 1.0)
    assert found["met_frac"] == {"ttft": 1.0, "e2e": 1.0}
    assert {name: each["num_requests"] for name, each in found["by_class"].items()} == {"none": 1, "x": 1}


def test_an_option_counts_all_and_a_run_of_no_length_has_no_rate() -> None:
    found = goodput(small_trace(slo_class=["x", "y", None]), {"ttft": 490.0}, duration_us=0)
    assert found is not None
    assert (found["num_requests"], found["num_good"], found["good_per_s"]) == (3, 2, None)
    assert found["good_frac"] == pytest.approx(2 / 3)
    assert sorted(found["by_class"]) == ["none", "x", "y"]
    alone = goodput(small_trace(), {"ttft": 490.0}, duration_us=1)
    assert alone is not None
    assert alone["by_class"] == {}
    assert goodput(small_trace(), duration_us=1) is None
