"""Attainment and goodput in the result of an observation, by service class."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vtwin
from observe.result.json_document import summarize_observed
from observe.result.summary_table import table
from tests.observe.servers import observed, serving, serving_in_thread
from tests.observe.workloads import workload
from traces import ConfigError
from traces.header import SLOTarget
from traces.run_slo import RunLimit
from traces.slo import parse_slo


async def test_targets_of_header_and_rows_count_by_class_without_the_option() -> None:
    targets = {"critical": SLOTarget(e2e_ms=10_000), "batch": SLOTarget(e2e_ms=0.001)}
    requests = workload(
        [0] * 4,
        header={"goodput_slo_targets": targets},
        slo_class=["critical", "batch", "mine", "mine"],
        slo_target_us=[None, None, 1, None],
    )
    async with serving() as server:
        seen = await observed(server, requests)
    summary = summarize_observed(seen.trace)
    good = summary["goodput"]
    assert good is not None
    assert {name: each["num_good"] for name, each in good["by_class"].items()} == {
        "batch": 0,
        "critical": 1,
        "mine": 0,
    }
    assert (good["num_requests"], good["num_without_target"]) == (3, 1)
    assert good["by_class"]["mine"]["met_frac"] == {"ttft": 0.0}
    shown = table(summary)
    assert "33.3% of 3 met all limits" in shown
    assert "critical: " in shown
    assert "1 requests have no latency limit and are not counted" in shown


async def test_without_limits_there_is_no_goodput() -> None:
    async with serving() as server:
        seen = await observed(server, workload([0]))
    summary = summarize_observed(seen.trace)
    assert summary["goodput"] is None
    assert "goodput" not in table(summary)


def test_the_summary_shows_goodput(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving_in_thread() as server:
        arguments = ["--rate", "100", "--num-requests", "4", "--output-tokens", "3", "--slo", "ttft=10s"]
        assert not vtwin.main(
            ["observe", "--url", server.url, *arguments, "--output", str(tmp_path / "run"), "--json"]
        )
    out, err = capsys.readouterr()
    assert json.loads(out)["goodput"]["good_frac"] == 1
    assert "goodput" in err
    assert "(ttft ≤ 10000 ms)" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tfft=1s", "--slo: got 'tfft', expected one of ttft"),
        ("ttft_mean=1s", "--slo: got 'ttft_mean', a limit that no single request has, expected ttft=…"),
        ("ttft_p100=1s", "--slo: got 'ttft_p100', expected one of ttft"),
        ("ttft_p99=1s,ttft=2s", "--slo ttft: got a second limit of ttft, expected one"),
        ("ttft_p99=500", "--slo ttft_p99: got '500' without a unit"),
        ("ttft=fast", "--slo ttft: got 'fast'"),
        ("ttft=0", "--slo ttft: got '0', expected a time > 0"),
        ("ttft=500", "--slo ttft: got '500' without a unit, expected 500ms or 500s"),
    ],
)
def test_a_limit_that_is_none_is_a_configuration_error(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        parse_slo(text)


def test_a_limit_over_the_run_is_taken_as_one_of_each_request_and_told() -> None:
    told: list[str] = []
    assert parse_slo("ttft_p99.5=500ms,tpot=30ms", tell=told.append) == {"ttft": 5e5, "tpot": 3e4}
    assert told == [
        "--slo ttft_p99.5=500ms is a limit over the run: taken as ttft=500ms of each request; it is kept where 99.5 % "
        "of them meet it"
    ]


@pytest.mark.parametrize("percent", [50.0, 90.0, 99.0])
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=200), st.integers(1, 1000))
def test_where_so_many_requests_meet_it_the_percentile_keeps_it(
    percent: float, values: list[int], limit: int
) -> None:
    """The two dialects agree but for the one request that a percentile is read between."""
    share = float(np.mean(np.array(values) <= limit))
    over_run = RunLimit(metric="ttft", percent=percent, limit_us=float(limit))
    kept = over_run.of(np.array(values, np.float64)) <= limit
    if share >= percent / 100 + 1 / len(values):
        assert kept
    if share < percent / 100 - 1 / len(values):
        assert not kept
