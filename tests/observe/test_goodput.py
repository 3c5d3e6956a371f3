"""Attainment and goodput in the result of an observation, by service class."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import vtwin
from observe.result.json_document import summarize_observed
from observe.result.summary_table import table
from tests.observe.servers import observed, serving, serving_in_thread
from tests.observe.workloads import workload
from traces import ConfigError
from traces.header import SLOTarget
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
        arguments = ["--rate", "100", "--num-requests", "4", "--slo", "ttft=10s"]
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
        ("ttft_p99=1s", "--slo: got 'ttft_p99', a limit over the whole run, expected one of each request"),
        ("ttft=fast", "--slo ttft: got 'fast'"),
        ("ttft=0", "--slo ttft: got '0', expected a time > 0"),
        ("ttft=500", "--slo ttft: got '500' without a unit, expected 500ms or 500s"),
    ],
)
def test_a_limit_that_is_none_is_a_configuration_error(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        parse_slo(text)
