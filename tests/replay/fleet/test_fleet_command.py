"""The planner: workloads, profiles, sizes against simulated engines, and the commands as a user calls them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import vtwin
from replay.fleet.check.drawn_requests import Stream, drawn
from replay.fleet.check.pool import verify
from replay.fleet.check.steady import RunLength, batch_means
from replay.fleet.inputs.fleet_workload import fitting_context, lengths_of_cdf, mean_tokens, read_workload
from replay.fleet.inputs.need import Need
from replay.fleet.inputs.profiles import from_twin, read_source, shipped_profiles
from replay.fleet.plans.size import SizeCheck, plan_pool, sized_fleet
from replay.fleet.told.page import swings_of
from replay.twin.config_read import load_config
from sim import simulate
from sim.fleet import Lengths
from sim.fleet.sizing import Objective, pool_at
from traces import ConfigError

CDF = [[128, 0.1], [512, 0.4], [1024, 0.7], [2048, 0.9], [8192, 1.0]]
TWIN = """\
engine:
  {max_num_seqs: 32, max_num_batched_tokens: 2048, num_gpu_blocks: 3000, max_model_len: 8192, async_scheduling: false}
latency:
  model: blackbox
  coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 8000, beta1: 40, beta2: 60}
"""


@pytest.fixture
def cdf(tmp_path: Path) -> Path:
    (tmp_path / "cdf.json").write_text(json.dumps(CDF))
    return tmp_path / "cdf.json"


@pytest.fixture
def twin(tmp_path: Path) -> Path:
    (tmp_path / "twin.yaml").write_text(TWIN)
    return tmp_path / "twin.yaml"


def test_lengths_follow_the_distribution_they_are_from(cdf: Path) -> None:
    lengths = read_workload(cdf).lengths
    for tokens, share in CDF:
        assert (lengths.total_tokens <= tokens).mean() == pytest.approx(share, abs=0.002)
    assert lengths.output_tokens.sum() / lengths.total_tokens.sum() == pytest.approx(0.2, abs=0.002)
    assert fitting_context(lengths) == 8192
    wrapped = cdf.with_name("wrapped.json")
    wrapped.write_text(json.dumps({"cdf": CDF, "source": "made up"}))
    assert np.array_equal(read_workload(wrapped).lengths.input_tokens, lengths.input_tokens)


def test_a_production_trace_gives_its_own_lengths(tmp_path: Path) -> None:
    """Azure's time stamps have seven digits of a second; no row may be lost for that."""
    (tmp_path / "azure.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n2023-11-16 18:15:51.2224670,879,55\n"
    )
    lengths = read_workload(tmp_path / "azure.csv").lengths
    assert lengths.input_tokens.tolist() == [374, 396, 879]
    assert lengths.output_tokens.tolist() == [44, 109, 55]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[10, 0.5], [5, 1.0]]", "expected tokens and shares that rise"),
        ("[[10, 0.5]]", "the last share being 1"),
        ("[[10]]", r"expected \[tokens, share"),
        ("[", "expected JSON"),
        ("[]", "expected tokens and shares that rise"),
    ],
)
def test_what_is_no_distribution_is_told(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "cdf.json").write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        read_workload(tmp_path / "cdf.json")


# -- profiles -------------------------------------------------------------------------------------------------


def test_a_twins_profile_is_its_own_step_times(twin: Path) -> None:
    """Blackbox steps know no context: at every context W + n·h is the step, so the misfit is context's alone."""
    lengths = Lengths(input_tokens=np.array([800.0]), output_tokens=np.array([200.0]))
    found = from_twin(load_config(twin), lengths, context=8192, name="twin")
    profile = found.profile
    assert profile.w_s == pytest.approx(0.008, rel=1e-6)
    assert profile.iteration_s(20.0, mean_tokens(lengths)) == pytest.approx(0.008 + 20 * 60e-6, rel=1e-6)
    assert profile.prefill_token_s == pytest.approx(40e-6, rel=0.01)
    assert profile.chunk_tokens == 2048
    assert profile.num_blocks == 2999
    assert found.misfit is not None
    assert found.misfit.largest < 0.25


def test_a_derived_profiles_capacity_is_near_its_engines(twin: Path, cdf: Path) -> None:
    """The engine with work at all times serves what the formula says of a full one, within 10 %."""
    lengths = read_workload(cdf).lengths
    source = from_twin(load_config(twin), lengths, context=8192, name="twin")
    size = pool_at(source.profile, lengths, 1.0, context=8192, engines=1)
    done = np.sort(
        simulate(
            drawn(Stream(lengths=lengths, rate_per_s=1e5), 4000, seed=1), source.engine, source.latency
        ).outcomes.last_token_us
    )
    served = 2400 / (done[3200] - done[800]) * 1e6
    assert size.throughput == pytest.approx(served, rel=0.1)


def test_a_profile_goes_through_its_file(cdf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["fleet", "profile", "--from", "A100"]) == 0
    cdf.with_name("own.yaml").write_text(capsys.readouterr().out)
    again = read_source(str(cdf.with_name("own.yaml")), read_workload(cdf).lengths, context=8192)
    assert again.profile == shipped_profiles()["A100"]


# -- sizes ----------------------------------------------------------------------------------------------------


def test_the_recommended_fleet_keeps_the_objective_in_simulation(cdf: Path) -> None:
    lengths, objective = read_workload(cdf).lengths, Objective(ttft_p99_s=0.5)
    source = read_source("A100", lengths, context=8192)
    plan = plan_pool(
        source,
        Need(lengths=lengths, rate_per_s=20.0, objective=objective, context=8192),
        check=SizeCheck(asked=RunLength(num_requests=3000)),
    )
    assert plan.verified is not None
    assert plan.verified.ttft_p99.value <= 0.5
    assert plan.verified.window.is_steady
    assert plan.verified.rate_per_s == pytest.approx(20, rel=0.05)
    assert plan.verified.ttft_p99.value == pytest.approx(plan.at.ttft_p99_s, rel=0.3)


def test_where_the_formula_is_too_hopeful_engines_are_added_and_both_numbers_told(
    twin: Path, cdf: Path
) -> None:
    """Prompts wait for each other's compute in an engine, which no formula of slots knows."""
    lengths, objective = read_workload(cdf).lengths, Objective(ttft_p99_s=0.42, utilization_cap=0.95)
    source = read_source(str(twin), lengths, context=8192)
    plan = plan_pool(
        source,
        Need(lengths=lengths, rate_per_s=40.0, objective=objective, context=8192),
        check=SizeCheck(asked=RunLength(num_requests=6000)),
    )
    assert plan.engines > plan.analytic.engines
    assert plan.tried[0].ttft_p99.value > 0.42
    assert plan.verified is not None
    assert plan.verified.ttft_p99.value <= 0.42


def test_smallest_takes_engines_away_as_long_as_the_simulation_allows(cdf: Path) -> None:
    lengths, objective = read_workload(cdf).lengths, Objective(ttft_p99_s=2.0, utilization_cap=0.5)
    source = read_source("A100", lengths, context=8192)
    check = SizeCheck(asked=RunLength(num_requests=3000), smallest=True)
    plan = plan_pool(
        source, Need(lengths=lengths, rate_per_s=20.0, objective=objective, context=8192), check=check
    )
    assert plan.engines < plan.analytic.engines
    assert plan.verified is not None
    assert plan.verified.ttft_p99.value <= 2.0


def test_two_pools_get_each_its_requests(cdf: Path) -> None:
    lengths = read_workload(cdf).lengths
    source = read_source("A100", lengths, context=8192)
    plan = sized_fleet(
        [source],
        Need(lengths=lengths, rate_per_s=100.0, objective=Objective(ttft_p99_s=1.0), context=8192),
        split=1024,
        check=None,
    )
    assert [pool.name for pool in plan.pools] == ["short", "long"]
    assert [pool.need.rate_per_s for pool in plan.pools] == pytest.approx([70, 30], abs=0.5)
    assert plan.pools[0].at.slots == 1024
    assert plan.is_met is None


def test_a_large_fleet_is_simulated_as_a_cell_of_it() -> None:
    lengths = Lengths(input_tokens=np.array([100.0]), output_tokens=np.array([10.0]))
    source = read_source("A100", lengths, context=512)
    seen = verify(
        source, lengths, 600.0, engines=600, service_s=0.1, seed=1, asked=RunLength(num_requests=2000)
    )
    assert (seen.engines, seen.cells) == (600, 3)
    assert seen.window.last_s == pytest.approx(10, rel=0.1)


def test_batch_means_hold_the_truth_about_as_often_as_they_say() -> None:
    """Autocorrelated values of known mean: an AR(1) of 0.9, 200 runs; 90 % intervals."""
    held = 0
    for seed in range(200):
        noise = np.random.default_rng(seed).normal(size=2000)
        values = np.empty(2000)
        values[0] = noise[0]
        for i in range(1, 2000):
            values[i] = 0.9 * values[i - 1] + noise[i]
        found = batch_means(values, lambda part: float(part.mean()), num_batches=10)
        held += found.low <= 0 <= found.high
    assert 165 <= held <= 195


def test_each_assumption_moves_the_size_in_its_direction(cdf: Path) -> None:
    lengths = read_workload(cdf).lengths
    source = read_source("A100", lengths, context=8192)
    plan = sized_fleet(
        [source],
        Need(lengths=lengths, rate_per_s=100.0, objective=Objective(ttft_p99_s=1.0), context=8192),
        split=None,
        check=None,
    )
    swings = {each.name: each for each in swings_of(plan)}
    base = plan.pools[0].analytic.provisioned
    for name in ("requests per second", "output tokens", "H, per request"):
        assert swings[name].less is not None
        assert swings[name].more is not None
        assert swings[name].less < base < swings[name].more


# -- commands -------------------------------------------------------------------------------------------------


def called(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, object]:
    assert vtwin.main(["fleet", *arguments, "--json"]) == code
    told: dict[str, object] = json.loads(capsys.readouterr().out)
    return told


def test_size_says_what_the_contract_has(cdf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = cdf.with_name("page.html")
    told = called(
        capsys,
        *("size", "--workload", str(cdf), "--rate", "20", "--slo", "ttft_p99=500ms", "--profile", "A100"),
        *("--availability", "0.95", "--num-requests", "3000", "--report", str(page), "--no-smallest"),
    )
    assert {"pools", "gpus", "cost_per_year", "verified"} <= set(told)
    (pool,) = told["pools"]  # type: ignore[misc]
    assert {"name", "profile", "gpus", "slots", "utilization", "p99_ttft_us"} <= set(pool)
    assert told["gpus"] == pool["gpus"] == math.ceil(pool["engines"] / 0.95)
    assert told["cost_per_year"] == pytest.approx(told["gpus"] * 2.21 * 8766)  # type: ignore[operator]
    assert told["verified"]["ttft_p99_us"] <= 500_000  # type: ignore[index]
    assert "Sensitivity" in page.read_text()
    alone = called(
        capsys,
        *(
            "size",
            "--workload",
            str(cdf),
            "--rate",
            "60",
            "--slo",
            "ttft_p99=500ms",
            "--profile",
            "A100",
            "--no-verify",
        ),
    )
    assert alone["verified"] is None


def test_the_other_questions_are_answered(cdf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = ("--workload", str(cdf), "--slo", "ttft_p99=2s")
    splits = called(
        capsys,
        "size",
        "--layout",
        "split",
        *load,
        "--rate",
        "100",
        "--profile",
        "A100",
        "--compress",
        "1,1.5",
    )["splits"]
    assert len(splits) > 200  # type: ignore[arg-type]
    fleets = called(
        capsys, "size", "--layout", "disagg", *load, "--rate", "100", "--profile", "A100,H100", "--no-verify"
    )["fleets"]
    assert fleets[0]["is_best"]  # type: ignore[index]
    answers = called(capsys, "size", "--compare", *load, "--rate", "50,500", "--profile", "A100,H100")[
        "answers"
    ]
    assert [(each["profile"], each["rate_per_s"]) for each in answers] == [  # type: ignore[union-attr]
        ("A100", 50),
        ("A100", 500),
        ("H100", 50),
        ("H100", 500),
    ]
    routed = called(
        capsys,
        "routers",
        *load,
        "--rate",
        "100",
        "--profile",
        "A100",
        "--split",
        "1024",
        "--num-requests",
        "1000",
        "--no-verify",
    )["routers"]
    assert [each["router"] for each in routed][:2] == ["length", "spillover"]  # type: ignore[union-attr]
    cuts = called(capsys, "flex", *load, "--rate", "100", "--profile", "A100")["cuts"]
    assert cuts[0]["lasts_s"] is None  # type: ignore[index]
    for command in (["size", "--layout", "split"], ["flex"]):
        assert vtwin.main(["fleet", *command, *load, "--rate", "100", "--profile", "A100"]) == 0
    assert vtwin.main(["fleet", "size", "--compare", *load, "--rate", "50", "--profile", "A100"]) == 0
    assert "by formula" in capsys.readouterr().out
    words = [
        "fleet",
        "size",
        "--compare",
        *load[:2],
        "--slo",
        "ttft_p99=1ms",
        "--rate",
        "50",
        "--profile",
        "A100",
    ]
    assert vtwin.main(words) == 1  # nothing keeps it
    assert "none: ttft_p99" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--slo", "ttft_p99=1ms", "--profile", "A100"], "the longest prompts take so long on an idle GPU"),
        (["--slo", "e2e_p99=1s", "--profile", "A100"], "expected ttft_p99"),
        (
            ["--slo", "ttft_p99=1s", "--profile", "Z9"],
            "--profile: got 'Z9', expected A100, H100, MODEL@GPU:TP, or a file",
        ),
        (
            ["--slo", "ttft_p99=1s", "--split", "999", "--profile", "A100,H100,A100"],
            "--profile: got 3, expected one, or two",
        ),
    ],
)
def test_a_mistake_is_one_line(
    cdf: Path, capsys: pytest.CaptureFixture[str], options: list[str], complaint: str
) -> None:
    assert vtwin.main(["fleet", "size", "--workload", str(cdf), "--rate", "10", *options]) == 2
    assert complaint in capsys.readouterr().err.strip().splitlines()[-1]


def test_longer_requests_than_the_context_are_left_out_and_told(
    cdf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = called(
        capsys,
        *("size", "--workload", str(cdf), "--rate", "60", "--slo", "ttft_p99=500ms", "--profile", "A100"),
        *("--no-verify", "--context", "2048"),
    )
    assert any("10.00% of the requests are longer than 2,048 tokens" in note for note in told["notes"])  # type: ignore[union-attr]


def test_lengths_spread_evenly_between_two_points() -> None:
    lengths = lengths_of_cdf([(1000.0, 1.0)], output_frac=0.5, num_rows=1000)
    assert lengths.total_tokens.mean() == pytest.approx(500, abs=2)
