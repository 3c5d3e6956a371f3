"""A fleet as a function: what ``vtwin fleet size`` answers, from a trace, from lengths, or from their file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import replay
import vtwin
from replay.fleet.inputs.fleet_workload import read_workload
from traces import ConfigError
from traces.workload import WorkloadOptions, trace_from_options

CDF = "[[256, 0.1], [1024, 0.6], [4096, 1.0]]"
SLO = "ttft_p99=500ms"


@pytest.fixture
def cdf(tmp_path: Path) -> Path:
    path = tmp_path / "cdf.json"
    path.write_text(CDF)
    return path


@pytest.mark.parametrize("split", [None, 1024])
def test_it_answers_as_the_command_does(
    cdf: Path, split: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--workload", str(cdf), "--rate", "100", "--slo", SLO, "--profile", "A100", "--no-verify"]
    asked += [] if split is None else ["--split", str(split)]
    assert vtwin.main(["fleet", "size", *asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    fleet = replay.plan_fleet(cdf, 100, SLO, "A100", split=split, verify=False)
    assert fleet.gpus == told["gpus"]
    assert fleet.cost_per_hour == told["cost_per_hour"]
    assert fleet.is_met is None
    for key in ("engines", "gpus", "slots", "p99_ttft_us"):
        assert fleet.pools[key].tolist() == [pool[key] for pool in told["pools"]]
    assert list(fleet.pools.index) == [pool["name"] for pool in told["pools"]]
    assert f"{told['gpus']:,} GPUs for 100 requests/s" in str(fleet)
    assert repr(fleet) == f"<SizedFleet: {told['gpus']:,} GPUs for 100 requests/s>"


def test_lengths_and_their_file_are_one_workload(cdf: Path) -> None:
    of_file = replay.plan_fleet(cdf, 50, SLO, "A100", verify=False)
    of_lengths = replay.plan_fleet(read_workload(cdf).lengths, 50, SLO, "A100", verify=False)
    assert of_file.pools.equals(of_lengths.pools)


def test_a_trace_is_a_workload_and_longer_requests_than_the_context_are_left_out() -> None:
    trace = trace_from_options(
        WorkloadOptions(rate=5, num_requests=200, prompt_tokens=600, prompt_tokens_stdev=300, seed=1)
    )
    whole = replay.plan_fleet(trace, 50, SLO, "A100", verify=False)
    short = replay.plan_fleet(trace, 50, SLO, "A100", context=1024, verify=False)
    assert int(short.plan.pools[0].need.lengths.total_tokens.max()) <= 1024
    assert int(whole.plan.pools[0].need.lengths.total_tokens.max()) > 1024
    with pytest.raises(ConfigError, match="context: got 16"):
        replay.plan_fleet(trace, 50, SLO, "A100", context=16, verify=False)
    with pytest.raises(ConfigError, match="expected ttft_p99"):
        replay.plan_fleet(trace, 50, "tpot_p99=50ms", "A100", verify=False)


def test_more_load_never_takes_fewer_engines(cdf: Path) -> None:
    engines = [
        int(replay.plan_fleet(cdf, rate, SLO, "A100", verify=False).pools["engines"].sum())
        for rate in (20, 80, 320)
    ]
    assert np.diff(engines).min() > 0


def test_a_fleet_that_was_simulated_says_whether_it_meets_its_limits(cdf: Path) -> None:
    fleet = replay.plan_fleet(cdf, 10, "ttft_p99=2s", "A100", num_requests=1000)
    assert fleet.is_met is True
