"""What grammars cost, and the CPU's time, is found from a pair of runs, whatever else the twin gets wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import vtwin
from calibrate.commands.pair_costs import table_of
from calibrate.fit.paired_runs import Changes, GuidedCost, _other_pairs, fit_guided, fit_host
from replay import TwinConfig, dump_config, load_config, simulate_trace
from sim import EngineConfig
from sim.latency import Extended
from traces import Header, Trace, TraceError, make_trace, write_trace
from traces.statistics.bootstrap import Estimate

COMPILE_US, MASK_US = 40_000, 250.0
TRUTH = TwinConfig(
    engine=EngineConfig(max_num_seqs=64, num_gpu_blocks=20_000),
    latency=Extended(alpha0=2000, beta0=6000, beta1=30, beta2=150, sigma=0.03, seed=1),
)
WRONG = replace(TRUTH, latency=Extended(alpha0=4000, beta0=6600, beta1=27, beta2=140))


def workload(n: int = 400) -> Trace:
    rng = np.random.default_rng(5)
    columns = {
        "request_id": [str(i) for i in range(n)],
        "arrival_time_us": np.cumsum(rng.exponential(90_000, n)).astype(np.int64),
        "input_tokens": rng.integers(50, 900, n),
        "output_tokens": rng.integers(20, 250, n),
    }
    return make_trace(Header(mode="generated"), columns)


def observed(trace: Trace, *, seed: int) -> Trace:
    """Return a run of the true server, its steps scattered anew."""
    engine = replace(TRUTH.engine, guided_compile_us=COMPILE_US, guided_mask_us=MASK_US)
    latency = replace(TRUTH.latency, seed=seed)
    simulated, _ = simulate_trace(trace, replace(TRUTH, engine=engine, latency=latency))
    return simulated.with_header(mode="real")


@pytest.fixture(scope="module")
def runs() -> tuple[Trace, Trace]:
    """Return (without, with) guided requests, half of all."""
    plain = workload()
    half = np.random.default_rng(6).random(len(plain)) < 0.5
    return observed(plain, seed=11), observed(plain.with_columns(guided=half), seed=12)


@pytest.fixture(scope="module")
def changes(runs: tuple[Trace, Trace]) -> Changes:
    """Return the changes between the two as the right twin without scatter sees them."""

    def with_costs(costs: NDArray[np.float64]) -> TwinConfig:
        engine = replace(TRUTH.engine, guided_compile_us=round(costs[0]), guided_mask_us=float(costs[1]))
        return replace(TRUTH, engine=engine)

    twin = replace(TRUTH, latency=replace(TRUTH.latency, sigma=0.0))
    return Changes.of(*runs, twin, with_costs=with_costs)


def test_both_costs_lie_in_their_intervals_though_the_twin_is_wrong(runs: tuple[Trace, Trace]) -> None:
    cost = fit_guided(*runs, WRONG)
    assert cost.twin_off_frac == pytest.approx(0.043, abs=0.003)
    for found, truth in ((cost.compile_us, COMPILE_US), (cost.mask_us, MASK_US)):
        assert found.value == pytest.approx(truth, rel=0.15)
        assert found.low is not None
        assert found.high is not None
        assert found.low <= truth <= found.high
        assert found.high - found.low > 1.9 * cost.twin_off_frac * found.value
    assert abs(cost.unexplained_us["tpot_us"]) < 100
    assert 150 < cost.num_guided < 250


def test_how_much_steps_scatter_is_told_from_both_runs(changes: Changes) -> None:
    assert changes.step_sigma(np.array([COMPILE_US, MASK_US])) == pytest.approx(0.03, abs=0.012)


def test_pairs_of_runs_of_the_twin_differ_as_the_servers_do(
    runs: tuple[Trace, Trace], changes: Changes
) -> None:
    pairs = np.array(list(_other_pairs(changes, np.array([COMPILE_US, MASK_US]), 0)))
    assert pairs.shape == (32, 2 * changes.num_pairs)
    again = [observed(trace, seed=100 + i) for i in range(6) for trace in runs]
    servers = np.array(
        [
            Changes.of(*pair, changes.plain_config, with_costs=changes.with_costs).observed
            for pair in zip(again[::2], again[1::2], strict=True)
        ]
    )
    of_twin = pairs.reshape(32, 2, -1).mean(axis=2).std(axis=0, ddof=1) * changes.scales
    of_servers = servers.mean(axis=2).std(axis=0, ddof=1)
    assert 0.7 < of_twin[1] / of_servers[1] < 1.6, "of the mean TPOT, which all requests share"


@pytest.mark.parametrize(("off_frac", "says_so"), [(0.04, True), (0.001, False), (-0.04, True)])
def test_an_interval_that_is_mostly_the_twins_error_is_told(*, off_frac: float, says_so: bool) -> None:
    cost = GuidedCost(
        compile_us=Estimate(value=40_000.0, low=37_000.0, high=43_000.0),
        mask_us=Estimate(value=250.0, low=239.0, high=261.0),
        num_pairs=400,
        num_guided=200,
        unexplained_us={"ttft_us": 1.0, "tpot_us": 1.0},
        twin_off_frac=off_frac,
    )
    shown = table_of(cost)
    assert (f"mean E2E of the run without is off by {off_frac:+.1%}" in shown) == says_so


@pytest.mark.parametrize(("step_us", "prefill_us"), [(1900.0, 10_000.0), (0.0, 0.0)])
def test_the_time_that_async_scheduling_hides_lies_in_its_interval(step_us: float, prefill_us: float) -> None:
    hidden = observed(workload(300), seed=21)
    engine = replace(TRUTH.engine, async_scheduling=False, host_step_us=step_us, host_prefill_us=prefill_us)
    server = replace(TRUTH, engine=engine, latency=replace(TRUTH.latency, seed=22))
    shown = simulate_trace(workload(300), server)[0].with_header(mode="real")
    cost = fit_host(hidden, shown, TRUTH)
    for found, truth, near in ((cost.step_us, step_us, 100), (cost.prefill_us, prefill_us, 1000)):
        assert found.value == pytest.approx(truth, abs=near)
        assert found.low is not None
        assert found.high is not None
        assert found.low - 0.3 * near <= truth <= found.high + 0.3 * near
    other = shown.with_columns(request_id=[f"x{i}" for i in range(len(shown))])
    with pytest.raises(TraceError, match="two traces of different requests"):
        fit_host(hidden, other, TRUTH)


def test_where_grammars_cost_nothing_almost_nothing_is_found() -> None:
    plain = workload(200)
    free = simulate_trace(plain, TRUTH)[0]
    again = simulate_trace(plain, replace(TRUTH, latency=replace(TRUTH.latency, seed=3)))[0]
    cost = fit_guided(free, again.with_columns(guided=[True] * len(plain)), TRUTH)
    assert cost.compile_us.value is not None
    assert cost.mask_us.value is not None
    assert cost.compile_us.value < 3000
    assert cost.mask_us.value < 15


def test_runs_that_are_not_equal_but_for_grammars_are_refused(runs: tuple[Trace, Trace]) -> None:
    plain, guided = runs
    with pytest.raises(TraceError, match="without guided requests"):
        fit_guided(plain, plain, WRONG)
    with pytest.raises(TraceError, match="a plain run with guided requests"):
        fit_guided(guided, guided, WRONG)
    other = guided.with_columns(request_id=[f"x{i}" for i in range(len(guided))])
    with pytest.raises(TraceError, match="two traces of different requests"):
        fit_guided(plain, other, WRONG)


def test_the_command_shows_the_costs_and_writes_the_twin(
    runs: tuple[Trace, Trace],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, trace in zip(("plain", "guided"), runs, strict=True):
        write_trace(trace, tmp_path / name)
    (tmp_path / "twin.yaml").write_text(dump_config(WRONG))
    command = ["calibrate", "guided", "guided", "plain", "--config", "twin.yaml", "--report", "report"]
    assert vtwin.main([*command, "--write-config", "new.yaml", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == json.loads((tmp_path / "report" / "guided.json").read_text())
    engine = load_config(tmp_path / "new.yaml").engine
    assert engine.guided_compile_us == round(shown["compile_us"]["value"])
    assert engine.guided_mask_us == pytest.approx(shown["mask_us"]["value"], abs=1e-3)
    assert vtwin.main(command) == 0
    first = capsys.readouterr()
    assert "guided_mask_us" in first.out
    # as it was written before, with a trace that is called like the subcommand
    old = ["calibrate", "guided", "--fit-guided", "plain", "--config", "twin.yaml", "--report", "report"]
    assert vtwin.main(old) == 0
    second = capsys.readouterr()
    assert second.out == first.out
    assert second.err == first.err + (
        "note: --fit-guided is `vtwin calibrate guided guided plain --config twin.yaml …` now; the option goes with "
        "the next release\n"
    )
    for option in ("--report", "--write-config"):
        assert vtwin.main([*command, option, "/sys/kernel/no"]) == 2
        assert ", expected a place that can be" in capsys.readouterr().err
    assert vtwin.main([*old, "--fit"]) == 2
    assert "--fit-guided: cannot be combined with --fit, expected one trace" in capsys.readouterr().err
    assert vtwin.main([*old[:4], "--report", "report"]) == 2
    assert "--fit-guided: needs --config, the twin whose engine has the cost" in capsys.readouterr().err
