"""A run is ended when its server surely falls behind, and no run is whose server keeps up."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vtwin
from observe import Settings, observe_with, parse_endpoint
from observe.campaign import Outcome, finished_trace, over_saturated_below
from observe.judged.over_saturation import over_saturation_watch
from observe.plan.loads import sweep_loads
from replay import run
from tests.observe.servers import Behaviour, serving_in_thread
from tests.observe.workloads import workload
from tests.twins import SIXTY_FOUR_SEATS
from traces import ClientInfo, ClosedLoop, ConfigError, Trace, read_trace, select_rows, write_trace
from traces.workload import WorkloadOptions, trace_from_options

LENGTHS = {"prompt_tokens": 200, "output_tokens": 40}


def ended(trace: Trace) -> str | None:
    """Return why a run that went as ``trace`` says would have been ended, None: it would not."""
    said: list[str] = []
    watch = over_saturation_watch(trace)
    watch.begin(said.append)
    columns = ("send_time_us", "content_first_time_us", "last_token_time_us", "output_tokens")
    values = {name: trace.cells(name).floats() for name in columns}
    for row in np.argsort(values["last_token_time_us"], kind="stable"):
        cells = {name: float(column[row]) for name, column in values.items()}
        watch.note(int(row), {**cells, "dispatch_lag_us": 0, "status": "ok"})
    assert watch.has_ended == bool(said)
    assert len(said) < 2
    return said[0] if said else None


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("twin") / "twin.yaml"
    path.write_text(SIXTY_FOUR_SEATS)
    return path


def simulated(twin: Path, rate_per_s: float, seed: int, **options: object) -> Trace:
    """Return a run of a twin that answers at most some 66 of these requests a second."""
    load = WorkloadOptions(rate=rate_per_s, num_requests=3000, seed=seed, **LENGTHS, **options)  # type: ignore[arg-type]
    return run(trace_from_options(load), twin).trace


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_twin_that_falls_behind_is_seen_and_one_that_keeps_up_is_left_alone(twin: Path, seed: int) -> None:
    most = 1e6 * 3000 / np.ptp(simulated(twin, 1000.0, 1).cells("last_token_time_us").floats())
    for share in (0.3, 0.8, 0.95):
        assert ended(simulated(twin, share * most, seed)) is None
    for share in (1.15, 2.0):
        said = ended(simulated(twin, share * most, seed))
        assert said is not None and "over-saturated" in said


def test_bursts_are_no_over_saturation(twin: Path) -> None:
    assert ended(simulated(twin, 20.0, 3, arrival="gamma", burstiness=0.2)) is None


SLOW = Behaviour(num_at_once=2, itl_s=0.005)
"""Answers some 180 requests of three tokens a second, at most."""
LOAD = "--num-requests 1500 --prompt-tokens 8 --output-tokens 3 --stop-over-saturated"


def test_a_run_is_ended_and_a_sweep_leaves_out_what_is_above(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "swept"
    with serving_in_thread(SLOW) as server:
        words = f"observe --url {server.url} --sweep 250,500 {LOAD} --output {folder}".split()
        assert vtwin.main(words) == 1
        said = " ".join(capsys.readouterr().err.split())
        num_sent = len(server.requests)
        assert vtwin.main([*words, "--resume"]) == 0
        again = " ".join(capsys.readouterr().err.split())
        assert len(server.requests) == num_sent
    left_out = "load 2 of 2, rate-500: left out, rate-250 was over-saturated"
    assert left_out in said
    assert left_out in again
    assert "rate-250: already there" in again
    assert not (folder / "rate-500.yaml").exists()
    trace = read_trace(folder / "rate-250")
    client = trace.header.client
    assert client is not None
    assert (client.over_saturated, client.finished, client.interrupted) == (True, True, False)
    assert any("answers: over-saturated: " in note for note in client.notes)
    assert 125 < len(trace) < client.num_planned == 1500  # type: ignore[operator]  # it is known


def test_one_run_says_so_and_exits_as_one_that_ended_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving_in_thread(SLOW) as server:
        words = f"observe --url {server.url} --rate 250 {LOAD} --json --output {tmp_path / 'run'}"
        assert vtwin.main(words.split()) == 1
    told = capsys.readouterr()
    client = json.loads(told.out)["client"]
    assert client["over_saturated"] is True
    assert "were answered (--stop-over-saturated)" in " ".join(told.err.split())
    assert "requests failed" not in told.err


def test_a_lower_rate_is_sent_and_a_load_of_other_requests_is_not_taken_for_it(tmp_path: Path) -> None:
    high, low = sweep_loads(WorkloadOptions(num_requests=50), "8,2")
    client = ClientInfo(finished=True, interrupted=False, over_saturated=True, num_planned=50)
    part = as_observed(high.requests, 30).with_header(client=client)
    outcomes = [Outcome(load=high, trace=part, observation=None)]
    assert over_saturated_below(low, outcomes) is None
    assert over_saturated_below(replace(high, name="more", rate_per_s=9.0), outcomes) == "rate-8"
    write_trace(part, tmp_path / "run")
    assert finished_trace(tmp_path / "run", high) is not None
    assert finished_trace(tmp_path / "run", low) is None
    write_trace(part.with_header(client=replace(client, over_saturated=False)), tmp_path / "broken")
    assert finished_trace(tmp_path / "broken", high) is None


def as_observed(planned: Trace, number: int) -> Trace:
    """Return the first requests as a run has them."""
    rows = select_rows(planned, np.arange(len(planned)) < number)
    return rows.with_columns(max_tokens=rows.column("output_tokens"))


REFUSED = {
    "--concurrency, expected one rate": "--concurrency 2",
    "--batch, expected one rate": "--batch 2 --waves 2",
    "--stages, expected one rate": "--stages 1-5:10s",
    "--rate inf, expected one rate": "--rate inf --num-requests 9",
    "--repeat, --plan and --find-capacity": "--rate 5 --repeat 2",
    "judge their runs themselves, expected": "--sweep concurrency=2,4 --num-requests 9",
    "with --processes, --dask, --ray": "--rate 5 --num-requests 9 --processes 2",
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_has_no_one_rate_is_refused(
    said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        f"observe --url http://127.0.0.1:9 --stop-over-saturated --output {tmp_path / 'o'} {REFUSED[said]}"
    )
    assert vtwin.main(words.split()) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_the_function_refuses_a_load_that_waits_for_answers_and_a_second_watch() -> None:
    settings = Settings(endpoint=parse_endpoint("http://127.0.0.1:9"), stop_over_saturated=True)
    waiting = workload([0, None], header={"closed_loop": ClosedLoop(concurrency=1)})
    with pytest.raises(ConfigError, match="got a load that waits for answers"):
        asyncio.run(observe_with(waiting, settings))
    open_load = workload([0, 1000])
    with pytest.raises(ConfigError, match="got a watch beside it"):
        asyncio.run(observe_with(open_load, settings, watch=over_saturation_watch(open_load)))
