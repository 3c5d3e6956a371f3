"""Lists of loads: what a sweep and a plan send, how long they say it takes, and how they go on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import vtwin
from observe.plan.loads import (
    IdlePace,
    ListedLoad,
    calibration_loads,
    estimate_s,
    pace_of_probe,
    probing_load,
    sweep_loads,
)
from tests.observe.servers import Behaviour, serving_in_thread
from tests.observe.workloads import every, workload
from traces import ConfigError, prompt_tokens, read_trace
from traces.header import ClosedLoop
from traces.workload import WorkloadOptions
from traces.workload.sweep import parse_sweep

SHORT = [
    "--prompt-tokens",
    "20",
    "--prompt-tokens-stdev",
    "4",
    "--output-tokens",
    "4",
    "--output-tokens-stdev",
    "0",
]


def options(**given: object) -> WorkloadOptions:
    lengths = {"prompt_tokens": 200, "prompt_tokens_stdev": 50, "output_tokens": 20, "output_tokens_stdev": 0}
    return WorkloadOptions(**{"num_requests": 50, **lengths, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "1,x", "0", "users=3", "concurrency=1.5", "rate=inf", "-1"])
def test_a_sweep_that_is_none_is_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigError, match="--sweep: got"):
        parse_sweep(text)


def test_a_sweep_sends_the_same_lengths_at_every_value() -> None:
    loads = sweep_loads(options(), "2,4.5")
    assert [load.name for load in loads] == ["rate-2", "rate-4.5"]
    assert np.array_equal(prompt_tokens(loads[0].requests), prompt_tokens(loads[1].requests))
    last = [float(load.requests.column("arrival_time_us").max()) for load in loads]
    assert last[0] / last[1] == pytest.approx(4.5 / 2, rel=0.01)
    users = sweep_loads(options(), "concurrency=3")[0]
    assert users.name == "concurrency-3"
    assert users.requests.header.closed_loop == ClosedLoop(concurrency=3)


def test_a_calibration_has_the_loads_that_a_fit_needs_and_none_outgrows_the_model() -> None:
    loads = {load.name: load for load in calibration_loads(options(rate=6.0), max_model_len=300)}
    assert list(loads) == [
        *("singles", "prefill-heavy", "decode-heavy", "low", "middle", "high", "saturated", "repeat")
    ]
    singles = loads["singles"].requests
    assert singles.header.closed_loop == ClosedLoop(concurrency=1, is_probe=True)
    lengths = prompt_tokens(singles)
    assert (lengths.min(), lengths.max()) == (16, 284)
    assert (np.bincount(lengths)[lengths] == 2).all()
    for name in ("singles", "prefill-heavy", "decode-heavy"):
        requests = loads[name].requests
        assert (prompt_tokens(requests) + requests.column("output_tokens") <= 300).all()
    assert loads["repeat"].requests.requests.equals(loads["middle"].requests.requests)
    assert (loads["saturated"].requests.column("arrival_time_us") == 0).all()
    with pytest.raises(ConfigError, match="--plan calibrate: needs --rate"):
        calibration_loads(options(concurrency=3), max_model_len=None)


def test_users_of_a_plan_have_unequal_lengths_so_that_they_do_not_move_in_step() -> None:
    loads = {load.name: load.requests for load in calibration_loads(options(rate=6.0), max_model_len=None)}
    for name, column, middle in (
        ("prefill-heavy", "input_tokens", 264),
        ("decode-heavy", "output_tokens", 128),
    ):
        lengths = loads[name].column(column).to_numpy(dtype=np.float64)
        assert len(np.unique(lengths)) > 0.9 * len(lengths)
        assert lengths.mean() == pytest.approx(middle, rel=0.05)
        assert np.abs(np.diff(lengths)).min() > 0.2 * middle
        loop = loads[name].header.closed_loop
        assert loop is not None
        assert loop.is_probe
    assert loads["high"].header.closed_loop is None


def test_the_probe_tells_the_pace_of_an_idle_server_and_from_it_how_long_loads_take() -> None:
    known = IdlePace(constant_us=5000, prompt_us=10, output_us=2000)
    loads = calibration_loads(options(rate=6.0), max_model_len=None)
    probe = probing_load(loads)
    pace = pace_of_probe(known.alone_us(probe).tolist(), probe)
    assert (pace.prompt_us, pace.output_us) == pytest.approx((10, 2000))
    assert pace.constant_us == pytest.approx(5000)
    users = ListedLoad(
        name="u",
        requests=workload([0, 0, None, None], header={"closed_loop": ClosedLoop(concurrency=2)}),
        purpose="",
    )
    assert estimate_s(users, known, rate_per_s=None) == pytest.approx(2 * (5000 + 80 + 10_000) / 1e6)
    paced = ListedLoad(name="p", requests=workload(every(1_000_000, 3)), purpose="")
    assert estimate_s(paced, known, rate_per_s=1.0) == pytest.approx(2.01508)
    flood = ListedLoad(name="f", requests=workload(every(0, 30)), purpose="")
    assert estimate_s(flood, known, rate_per_s=3.0) == pytest.approx(10)


def test_a_sweep_fills_a_folder_and_goes_on_where_it_broke_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "sweep"
    with serving_in_thread(Behaviour()) as server:
        command = ["observe", "--url", server.url, *SHORT, "--num-requests", "5", "--output", str(folder)]
        assert vtwin.main([*command, "--sweep", "50,100", "--json"]) == 0
        sent = len(server.requests)
        assert sent == 10
        out, err = capsys.readouterr()
        document = json.loads(out)
        assert "TTFT p50" in err
        assert [each["num_by_status"] for each in document["loads"].values()] == [{"ok": 5}] * 2
        assert "in SLO" not in err
        assert vtwin.main([*command, "--sweep", "50,100,200", "--resume", "--slo", "e2e=1h"]) == 0
        assert len(server.requests) == sent + 5
        rows = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert rows[0][-2:] == ["in", "SLO"]
        assert [row[-1] for row in rows[1:4]] == ["100.0%"] * 3
        assert vtwin.main([*command, "--sweep", "50,100,200", "--resume"]) == 0
        assert "rate-50: already there" in capsys.readouterr().err
        another = [*command, "--sweep", "50", "--resume", "--seed", "7"]
        assert vtwin.main(another) == 2
        assert "rate-50.yaml is a measured trace" in capsys.readouterr().err
        assert len(server.requests) == sent + 5
        assert vtwin.main([*another, "--overwrite"]) == 0
        assert len(server.requests) == sent + 10
        header = folder / "rate-200.yaml"
        header.write_text(header.read_text().replace("interrupted: false", "interrupted: true"))
        assert vtwin.main([*command, "--sweep", "200", "--resume"]) == 0
        assert len(server.requests) == sent + 15
    assert len(read_trace(folder / "rate-200")) == 5


def test_a_sweep_of_sessions_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    with serving_in_thread(Behaviour(fewer_tokens=1)) as server:
        command = ["observe", "--url", server.url, *SHORT, "--rounds", "3", "--output", str(tmp_path / "s")]
        command += ["--sweep", "50", "--resume"]
        assert vtwin.main([*command, "--num-requests", "6"]) == 0
        sent = len(server.requests)
        assert sent == 6 + 1
        assert vtwin.main([*command, "--num-requests", "6"]) == 0
        assert len(server.requests) == sent
        assert vtwin.main([*command, "--num-requests", "6", "--seed", "8", "--overwrite"]) == 0
        assert len(server.requests) == 2 * sent


def test_a_plan_asks_says_how_long_it_takes_and_leaves_a_trace_per_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "plan"
    with serving_in_thread(Behaviour()) as server:
        command = ["observe", "--url", server.url, *SHORT, "--num-requests", "6", "--output", str(folder)]
        command += ["--rate", "100", "--plan", "calibrate"]
        assert vtwin.main(command) == 2
        assert "got no terminal to confirm on, expected --yes" in capsys.readouterr().err
        assert server.requests == []
        assert vtwin.main([*command, "--yes"]) == 0
    out, err = capsys.readouterr()
    assert "minutes for these loads" in err
    assert out.startswith("load, times in ms")
    assert "decode-heavy" in out
    assert sorted(path.stem for path in folder.glob("*.yaml")) == sorted(
        ["singles", "prefill-heavy", "decode-heavy", "low", "middle", "high", "saturated", "repeat"]
    )
    assert all(str(status) == "ok" for status in read_trace(folder / "decode-heavy").column("status"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rate", "1", "--resume"], "need --plan, --sweep or --repeat"),
        (["--sweep", "1", "--plan", "calibrate"], "--plan: cannot be combined with --sweep"),
        (["--sweep", "1,2", "--rate", "3"], "--sweep: cannot be combined with --rate"),
    ],
)
def test_lists_that_make_no_sense_are_usage_errors(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["observe", "--url", "http://127.0.0.1:1", "--output", str(tmp_path / "x"), *arguments]
    assert vtwin.main(command) == 2
    assert said in capsys.readouterr().err
