"""Goodput: requests that meet every latency limit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vtwin
from observe.result.goodput import goodput
from tests.observe.servers import serving_in_thread
from tests.observe.workloads import every, workload
from traces import ConfigError
from traces.slo import parse_slo


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tfft=1s", "--slo: got 'tfft', expected one of ttft"),
        ("ttft=fast", "--slo ttft: got 'fast'"),
        ("ttft=0", "--slo ttft: got '0', expected a time > 0"),
        ("ttft=500", "--slo ttft: got '500' without a unit, expected 500ms or 500s"),
    ],
)
def test_a_promise_that_is_none_is_a_configuration_error(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        parse_slo(text)


def test_goodput_counts_requests_that_keep_every_promise() -> None:
    columns = {
        "status": ["ok", "ok", "ok", "error"],
        "send_time_us": [0, 0, 0, 0],
        "content_first_time_us": [100, 300, 100, None],
        "last_token_time_us": [500, 700, 2000, None],
    }
    trace = workload(every(0, 4), **columns)  # type: ignore[arg-type]
    promises = parse_slo("ttft=200us, e2e=1ms")
    assert promises == pytest.approx({"ttft": 200, "e2e": 1000})
    good = goodput(trace, promises, duration_us=500_000)
    assert (good["num_good"], good["good_frac"], good["good_per_s"]) == (1, 0.25, 2.0)
    assert goodput(trace, {"ttft": 200}, duration_us=0)["good_per_s"] is None


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
