"""Capacity: against queueing theory, against single runs at the rates around it, and as a user calls it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vtwin
from replay.capacity import capacity as capacity_module
from replay.capacity import text as capacity_text
from replay.capacity.binding import binding_of
from replay.capacity.capacity import Capacity, capacity_of_draws, num_drawn, short_run_note
from replay.capacity.text import facts_of
from replay.search.ceiling import ceiling_of
from replay.search.evaluation import Evaluator
from replay.search.highest import bisect
from replay.search.load import load_of
from replay.search.workload_draws import Drawing, drawing_of, searchable
from replay.twin.config_read import load_config
from replay.twin.twin_config import TwinConfig
from sim import Status, simulate
from tests.coverage_bounds import assert_covers
from tests.examples import few_or_all
from tests.twins import SIXTEEN_SEATS_SYNC
from traces import ConfigError, Trace
from traces.run_slo import parse_run_slo
from traces.workload import WorkloadOptions, trace_from_options

SERVICE_US = 10_000
ONE_AT_A_TIME = f"""\
engine: {{max_num_seqs: 1, max_num_batched_tokens: 2048, async_scheduling: false, enable_prefix_caching: false}}
latency:
  model: blackbox
  coefficients: {{alpha0: 0, alpha1: 0, alpha2: 0, beta0: {SERVICE_US}, beta1: 0, beta2: 0}}
"""

POOLS = """\
cluster:
  pools:
    - {name: prefill, role: prefill, instances: 1}
    - {name: decode, role: decode, instances: 1}
  disaggregation: {decider: always, kv_bandwidth_gbps: 25, kv_base_latency_us: 50, kv_bytes_per_token: 131072}
"""
PREFIXES = """\
version: "2"
aggregate_rate: 1
num_requests: 20
cohorts:
  - id: app
    population: 2
    rate_fraction: 1
    prefix_group: app
    prefix_length: 300
    prefix_sharing: per_member
    arrival: {process: poisson}
    input_distribution: {type: exponential, params: {mean: 100}}
    output_distribution: {type: exponential, params: {mean: 60}}
"""


def twin_of(text: str, folder: Path) -> TwinConfig:
    (folder / "twin.yaml").write_text(text)
    return load_config(folder / "twin.yaml")


def draws(number: int, **options: object) -> list[Trace]:
    """Return a workload of so many requests, drawn with seeds 1, 2, …"""
    given = {"rate": 1.0, "prompt_tokens": 100, "output_tokens": 1, **options}
    return [
        trace_from_options(WorkloadOptions(**given, seed=seed))  # type: ignore[arg-type]
        for seed in range(1, number + 1)
    ]


def found_in(
    folder: Path, text: str, slo: str, traces: list[Trace], *, with_binding: bool = False
) -> Capacity:
    return capacity_of_draws(traces, twin_of(text, folder), parse_run_slo(slo), with_binding=with_binding)


def test_evenly_spaced_arrivals_are_served_up_to_one_per_service_time(tmp_path: Path) -> None:
    """D/D/1: nobody waits up to the rate 1/S, and the queue grows without end above it."""
    traces = draws(2, num_requests=400, arrival="constant")
    found = found_in(tmp_path, ONE_AT_A_TIME, f"ttft_p99={SERVICE_US}us", traces)
    assert found.rate_per_s == pytest.approx(1e6 / SERVICE_US, rel=0.006)
    assert found.ceiling_per_s == pytest.approx(1e6 / SERVICE_US, rel=0.02)


@pytest.mark.parametrize("mean_ttft_ms", [12, 20, 50])
def test_poisson_arrivals_and_constant_service_obey_pollaczek_and_khinchine(
    tmp_path: Path, mean_ttft_ms: int
) -> None:
    """M/D/1: the mean wait is rho S / (2 (1 - rho)), so a limit on mean TTFT says which rho is allowed."""
    wait_us = mean_ttft_ms * 1000 - SERVICE_US
    rho = 2 * wait_us / (SERVICE_US + 2 * wait_us)
    found = found_in(tmp_path, ONE_AT_A_TIME, f"ttft_mean={mean_ttft_ms}ms", draws(8, num_requests=20_000))
    assert found.rate_per_s == pytest.approx(rho * 1e6 / SERVICE_US, rel=0.03)
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.rate_per_s < found.high
    assert (found.high - found.low) / found.rate_per_s < 0.06


def test_the_interval_holds_the_truth_about_as_often_as_stated(tmp_path: Path) -> None:
    """90 % intervals over independent draws of M/D/1. Two dozen cases see an interval of a third of its width."""
    wait_us = 10_000
    truth = 2 * wait_us / (SERVICE_US + 2 * wait_us) * 1e6 / SERVICE_US
    twin, limits = twin_of(ONE_AT_A_TIME, tmp_path), parse_run_slo("ttft_mean=20ms")
    held, number = 0, few_or_all(24, 200)
    for first in range(number):
        options = [
            WorkloadOptions(
                rate=1.0, prompt_tokens=100, output_tokens=1, num_requests=1000, seed=100 * first + i
            )
            for i in range(3)
        ]
        found = capacity_of_draws(
            [trace_from_options(each) for each in options], twin, limits, with_binding=False
        )
        assert found.low is not None
        assert found.high is not None
        held += found.low <= truth <= found.high
    assert_covers(held, number)


def test_a_rate_just_below_meets_the_limit_and_one_just_above_does_not(tmp_path: Path) -> None:
    twin, limits = twin_of(SIXTEEN_SEATS_SYNC, tmp_path), parse_run_slo("ttft_p95=400ms,tpot_p99=40ms")
    traces = draws(1, num_requests=3000, prompt_tokens=200, output_tokens=60)
    found = capacity_of_draws(traces, twin, limits, with_binding=False)
    assert found.rate_per_s is not None
    assert found.limiting == "ttft_p95"
    load = load_of(traces[0], twin)
    for factor, is_met in ((1.0, True), (1.01, False)):
        outcomes = simulate(load.at(factor * found.rate_per_s), twin.engine, twin.latency).outcomes
        measured = np.argsort(outcomes.arrival_us)[600:]
        ttft = (outcomes.first_token_us - outcomes.arrival_us)[measured]
        assert (outcomes.status == Status.OK).all()
        assert (np.percentile(ttft, 95) <= 400_000) == is_met


def test_a_load_at_its_own_rate_is_itself_and_lengths_never_change(tmp_path: Path) -> None:
    twin = twin_of(SIXTEEN_SEATS_SYNC, tmp_path)
    load = load_of(draws(1, num_requests=50)[0], twin)
    start = load.requests.arrival_us.min()
    assert (load.at(load.own_rate_per_s).arrival_us == load.requests.arrival_us - start).all()
    doubled = load.at(2 * load.own_rate_per_s)
    assert np.abs(2 * doubled.arrival_us - (load.requests.arrival_us - start)).max() <= 1
    assert (doubled.prompt_tokens == load.requests.prompt_tokens).all()


def test_who_gives_up_after_a_second_does_so_at_every_rate(tmp_path: Path) -> None:
    trace = draws(1, num_requests=50)[0]
    due = trace.column("arrival_time_us") + 1_000_000
    load = load_of(trace.with_columns(deadline_us=due), twin_of(SIXTEEN_SEATS_SYNC, tmp_path))
    faster = load.at(7 * load.own_rate_per_s)
    assert faster.deadline_us is not None
    assert (faster.deadline_us - faster.arrival_us == 1_000_000).all()


def test_without_a_limit_that_breaks_the_capacity_is_what_the_server_serves(tmp_path: Path) -> None:
    found = found_in(
        tmp_path, SIXTEEN_SEATS_SYNC, "ttft_p99=10h", draws(2, num_requests=6000, output_tokens=20)
    )
    assert found.limiting == "throughput"
    assert found.rate_per_s == pytest.approx(found.ceiling_per_s, rel=0.04)


@pytest.mark.parametrize(
    ("engine", "resource"),
    [
        ({"max_num_seqs": 4, "num_gpu_blocks": 4000}, "seats"),
        ({"max_num_seqs": 512, "num_gpu_blocks": 120}, "kv_blocks"),
        ({"max_num_seqs": 512, "num_gpu_blocks": 40_000}, "step_time"),
    ],
)
def test_the_resource_that_binds_is_the_one_that_is_scarce(
    tmp_path: Path, engine: dict[str, int], resource: str
) -> None:
    """A step costs per decode token alone in the third case: nothing but a faster step helps."""
    slope = 4000 if resource == "step_time" else 20
    text = SIXTEEN_SEATS_SYNC.replace("beta2: 20", f"beta2: {slope}").replace("beta0: 6000", "beta0: 2000")
    twin = twin_of(text, tmp_path)
    twin = replace(twin, engine=replace(twin.engine, **engine, max_num_batched_tokens=8192))  # type: ignore[arg-type]
    traces = draws(1, num_requests=1500, prompt_tokens=50, output_tokens=60)
    found = capacity_of_draws(traces, twin, parse_run_slo("ttft_p99=2s"))
    assert found.binding is not None
    assert found.binding.resource == resource
    if resource == "seats":
        assert found.binding.with_twice["seats"] > 1.3 * found.binding.base_per_s


OTHERS = {
    "adapters": ({"max_loras": 1}, {"adapter": "abcdef"}, "ttft_p90=2s"),
    "grammars": ({"guided_compile_us": 800_000, "max_num_seqs": 512}, {"guided": [True]}, "ttft_p90=815ms"),
    "host_time": (
        {"host_step_us": 40_000, "max_num_seqs": 512, "async_scheduling": False},
        {},
        "tpot_p90=50ms",
    ),
    "encoder": (
        {"max_num_encoder_input_tokens": 30, "encoder_cache_size": 8192, "max_num_seqs": 512},
        {"images": ["0:30"], "image_tokens": [30]},
        "ttft_p90=2s",
    ),
}


@pytest.mark.parametrize("resource", OTHERS)
def test_what_else_a_request_waits_for_binds_by_its_own_name(tmp_path: Path, resource: str) -> None:
    engine, columns, slo = OTHERS[resource]
    twin = twin_of(SIXTEEN_SEATS_SYNC, tmp_path)
    twin = replace(twin, engine=replace(twin.engine, **engine))  # type: ignore[arg-type]
    (trace,) = draws(1, num_requests=1500, prompt_tokens=50, output_tokens=60)
    rng = np.random.default_rng(1)
    trace = trace.with_columns(
        **{name: rng.choice(list(values), len(trace)) for name, values in columns.items()}  # type: ignore[call-overload]
    )
    found = binding_of(trace, twin, parse_run_slo(slo))
    assert found.resource == resource
    told = dict(capacity_text._bound(found, twin.engine))
    assert f"({next(iter(engine))} " in told["bound by"]


def test_links_bind_where_the_kv_of_prompts_takes_all_they_carry(tmp_path: Path) -> None:
    """Half a gigabyte per second into either decode server, and 6.5 MB a prompt: 153 prompts per second at most."""
    pools = "pools: [{name: p, role: prefill, instances: 2}, {name: d, role: decode, instances: 2}]"
    moves = "disaggregation: {decider: always, kv_bandwidth_gbps: 0.5, kv_bytes_per_token: 131072}"
    twin = twin_of(f"{SIXTEEN_SEATS_SYNC}cluster: {{{pools}, {moves}}}\n", tmp_path)
    (trace,) = draws(1, num_requests=3000, prompt_tokens=50, output_tokens=20)
    found = binding_of(trace, twin, parse_run_slo("ttft_p90=2s"))
    assert found.resource == "kv_links"
    assert found.with_twice["kv_links"] > 1.5 * found.base_per_s
    told = dict(capacity_text._bound(found, twin.engine))
    assert told["bound by"] == "the links that KV moves over (kv_bandwidth_gbps)"
    assert "KV links +" in told["if doubled"]


def test_nothing_binds_where_neither_more_of_anything_nor_faster_steps_raise_the_rate(tmp_path: Path) -> None:
    """A front end that takes longer than the limit allows more than one request in a hundred."""
    (trace,) = draws(1, num_requests=1500, prompt_tokens=50, output_tokens=60)
    trace = trace.with_columns(deadline_us=trace.column("arrival_time_us") + 1)
    assert (
        binding_of(trace, twin_of(SIXTEEN_SEATS_SYNC, tmp_path), parse_run_slo("ttft_p90=2s")).resource
        == "nothing"
    )


def test_a_cluster_of_two_servers_takes_about_twice_the_rate(tmp_path: Path) -> None:
    traces = draws(1, num_requests=2000, prompt_tokens=200, output_tokens=40)
    one = found_in(tmp_path, SIXTEEN_SEATS_SYNC, "ttft_p99=300ms", traces).rate_per_s
    text = SIXTEEN_SEATS_SYNC + "cluster: {instances: 2, routing: {policy: least-loaded}}\n"
    two = found_in(tmp_path, text, "ttft_p99=300ms", traces).rate_per_s
    assert one is not None
    assert two is not None
    assert 1.9 * one < two < 2.6 * one


def test_a_recorded_load_has_an_interval_from_its_stretches(tmp_path: Path) -> None:
    found = found_in(
        tmp_path, SIXTEEN_SEATS_SYNC, "ttft_p95=300ms", draws(1, num_requests=4000, output_tokens=30)
    )
    assert not found.is_by_seeds
    assert found.num_parts == 5
    assert found.low is not None
    assert found.rate_per_s is not None
    assert found.low < found.rate_per_s


def test_the_limit_on_itl_counts_gaps_between_tokens(tmp_path: Path) -> None:
    """With constant steps every gap is a step: a limit above it holds at any rate, one below at none."""
    text = ONE_AT_A_TIME.replace("max_num_seqs: 1,", "max_num_seqs: 8,")
    traces = draws(2, num_requests=300, output_tokens=20)
    assert found_in(tmp_path, text, "itl_p99=10001us", traces).limiting == "throughput"
    none = found_in(tmp_path, text, "itl_p99=9999us", traces)
    assert none.rate_per_s is None
    assert none.limiting == "itl_p99"


def test_a_percentile_is_of_all_seeds_requests_together(tmp_path: Path) -> None:
    """And each seed's own is a part, which the interval is taken over. The first fifth is not measured."""
    twin = twin_of(SIXTEEN_SEATS_SYNC, tmp_path)
    loads = [load_of(trace, twin) for trace in draws(2, num_requests=1000, prompt_tokens=50)]
    at = Evaluator(loads=loads, limits=parse_run_slo("ttft_p99=1s")).at(60.0)
    ttft = []
    for load in loads:
        outcomes, _, _ = load.serve(load.at(60.0), "none")
        order = np.argsort(outcomes.arrival_us, kind="stable")[200:]
        ttft.append((outcomes.first_token_us - outcomes.arrival_us)[order])
    assert at.values_us["ttft_p99"] == pytest.approx(np.percentile(np.concatenate(ttft), 99), rel=1e-12)
    assert at.parts_us["ttft_p99"] == pytest.approx([np.percentile(run, 99) for run in ttft], rel=1e-12)


@pytest.mark.parametrize("first_are", ["enough", "too few for all draws together"])
def test_a_search_draws_as_many_requests_as_it_takes(
    first_are: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SIXTEEN_SEATS_SYNC.replace("max_num_seqs: 16", "max_num_seqs: 64").replace(
        "num_gpu_blocks: 400", "num_gpu_blocks: 4000"
    )
    drawn: list[tuple[int, int]] = []

    def drawing(num_requests: int, seeds: int) -> list[Trace]:
        drawn.append((num_requests, seeds))
        return draws(seeds, num_requests=num_requests, output_tokens=60)

    def too_few_at_first(asks: int, *, seeds: int, least: int) -> int:
        found = num_drawn(asks, seeds=seeds, least=least)
        is_first = seeds == 3 and all(number != 3 for _, number in drawn)
        return found // 4 if is_first and first_are != "enough" else found

    monkeypatch.setattr(capacity_module, "num_drawn", too_few_at_first)

    found = capacity_of_draws(
        drawing(100, 1),
        twin_of(text, tmp_path),
        parse_run_slo("ttft_p99=300ms"),
        drawing=Drawing(draw=drawing, seeds=3, most_seeds=3),
        least=300,
        with_binding=False,
    )
    assert not found.is_too_short
    assert found.low is not None
    assert drawn[-1] == (found.num_requests, 3)
    assert found.num_requests >= found.requests_to_last > 100


def test_a_workload_with_several_clients_is_drawn_longer_as_well(tmp_path: Path) -> None:
    (tmp_path / "load.yaml").write_text(PREFIXES)
    drawing = drawing_of(searchable(WorkloadOptions(workload=tmp_path / "load.yaml")), seeds=2)
    first, second = drawing(3000, 2)
    assert len(first) == len(second) == 3000
    assert list(first.column("input_tokens")) != list(second.column("input_tokens"))


@pytest.mark.parametrize(
    ("cluster", "times"), [("", 1), ("cluster: {instances: 8, routing: {policy: least-loaded}}\n", 8)]
)
def test_the_most_that_is_answered_is_the_same_of_few_requests_and_of_many(
    tmp_path: Path, cluster: str, times: int
) -> None:
    """Of fewer requests than there are seats, too: they are sent again and again."""
    text = SIXTEEN_SEATS_SYNC.replace("max_num_seqs: 16", "max_num_seqs: 64").replace(
        "num_gpu_blocks: 400", "num_gpu_blocks: 4000"
    )
    twin = twin_of(text + cluster, tmp_path)
    few, many = (
        ceiling_of([load_of(trace, twin) for trace in draws(1, num_requests=number, output_tokens=60)])
        for number in (400, 8000 * times)
    )
    assert few == pytest.approx(many, rel=0.06)


def test_a_server_with_prefill_and_decode_pools_is_searched_like_any(tmp_path: Path) -> None:
    """Brute force: of rates 2 % apart, the first above the capacity is the first that breaks a limit."""
    text = SIXTEEN_SEATS_SYNC.replace("num_gpu_blocks: 400", "num_gpu_blocks: 4000") + POOLS
    (trace,) = draws(1, num_requests=3000, prompt_tokens=200, output_tokens=60)
    found = found_in(tmp_path, text, "ttft_p99=300ms", [trace])
    assert found.rate_per_s is not None
    load = load_of(trace, twin_of(text, tmp_path))
    kept = []
    for factor in (0.9, 0.96, 0.98, 1.0, 1.02, 1.04):
        outcomes, _, _ = load.serve(load.at(factor * found.rate_per_s), "none")
        order = np.argsort(outcomes.arrival_us, kind="stable")[600:]
        kept.append(np.percentile((outcomes.first_token_us - outcomes.arrival_us)[order], 99) <= 300_000)
    assert kept == [True, True, True, True, False, False]
    assert found.ceiling_per_s is not None
    assert found.ceiling_per_s > found.rate_per_s


def test_steps_that_take_no_time_are_no_fault(tmp_path: Path) -> None:
    text = ONE_AT_A_TIME.replace(f"beta0: {SERVICE_US}", "beta0: 0")
    found = found_in(tmp_path, text, "ttft_p99=1s", draws(2, num_requests=100), with_binding=True)
    assert found.low is None


def test_two_requests_are_too_few_rather_than_too_slow(tmp_path: Path) -> None:
    found = found_in(tmp_path, SIXTEEN_SEATS_SYNC, "ttft_p99=1s", draws(1, num_requests=2))
    assert found.is_too_short
    assert "before it could tell whether the server keeps up" in (short_run_note(found, 2) or "")
    facts = dict(facts_of(found, [], twin=twin_of(SIXTEEN_SEATS_SYNC, tmp_path), lengths=""))
    assert facts["capacity"] == "not found: the runs are too short"


@pytest.mark.parametrize(
    ("sigma", "said"), [("", "do not scatter, as a server's do"), (", sigma: 0.03", "scatter by 3.0%")]
)
def test_the_answer_says_whose_percentiles_it_has(tmp_path: Path, sigma: str, said: str) -> None:
    text = SIXTEEN_SEATS_SYNC.replace("blackbox", "extended").replace("beta2: 20", f"beta2: 20{sigma}")
    found = found_in(tmp_path, text, "ttft_p99=1s", draws(1, num_requests=200))
    facts = dict(facts_of(found, [], twin=twin_of(text, tmp_path), lengths=""))
    assert facts["percentiles"].startswith("the simulation's")
    assert facts["percentiles"].endswith(said)


def test_each_rate_is_simulated_once(tmp_path: Path) -> None:
    evaluator = Evaluator(
        loads=[load_of(draws(1, num_requests=20)[0], twin_of(SIXTEEN_SEATS_SYNC, tmp_path))],
        limits=parse_run_slo("e2e_p50=1s"),
    )
    assert evaluator.at(3.0) is evaluator.at(3.0)


def test_bisection_ends_with_the_edge_between_its_two_ends() -> None:
    low, high = bisect(lambda rate: rate <= math.pi, 1e-3, 1e3, tolerance=1e-6)
    assert low <= math.pi < high
    assert high - low <= 1e-6 * high


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ttft=500", "without a unit"),
        ("ttft=1s,ttft_p99=2s", "--slo ttft_p99: got ttft_p99 twice"),
        ("ttft_p99=500", "without a unit"),
        ("ttft_p99=0ms", "a time > 0"),
        ("ttft_p100=1s", "expected ttft"),
        ("latency_p99=1s", "expected ttft"),
        ("ttft_p99=1s,ttft_p99=2s", "twice"),
        ("", "expected ttft"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_run_slo(text)


def test_a_limit_of_each_request_is_taken_as_one_of_the_99th_percentile_and_told() -> None:
    told: list[str] = []
    limits = parse_run_slo("ttft=500ms,tpot_p90=30ms", tell=told.append)
    assert [(each.name, each.limit_us) for each in limits] == [("ttft_p99", 5e5), ("tpot_p90", 3e4)]
    assert told == ["--slo ttft=500ms is a limit of each request: taken as ttft_p99=500ms over the run"]


def test_limits_are_read_with_their_units() -> None:
    limits = parse_run_slo("ttft_p99.9=0.5s, tpot_mean=50ms")
    assert [(each.name, each.limit_us) for each in limits] == [("ttft_p99.9", 5e5), ("tpot_mean", 5e4)]


# -- the command ----------------------------------------------------------------------------------------------

CAPACITY = ("capacity", "--config", "twin.yaml", "--num-requests", "1500", "--seeds", "2")
LENGTHS = ("--prompt-tokens", "100", "--output-tokens", "20")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twin.yaml").write_text(SIXTEEN_SEATS_SYNC)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_the_document_has_the_contracts_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main([*CAPACITY, *LENGTHS, "--slo", "ttft_p99=300ms,tpot_p99=50ms", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["low"] <= found["rate"] <= found["high"]
    assert found["limiting"] in ("ttft_p99", "tpot_p99", "throughput")
    rates = [each["rate"] for each in found["evaluations"]]
    assert rates == sorted(rates)
    assert found["rate"] in rates
    met = [each["met"] for each in found["evaluations"]]
    assert met[rates.index(found["rate"])]
    assert met == sorted(met, reverse=True)
    assert set(found["binding"]["rate_with_twice"]) >= {"seats", "kv_blocks", "token_budget", "all"}


@pytest.mark.usefixtures("folder")
def test_limits_that_not_even_an_idle_server_meets_are_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main([*CAPACITY, *LENGTHS, "--slo", "ttft_p99=1ms"]) == 1
    out = capsys.readouterr().out
    assert "none: an idle server has ttft_p99 7.7 ms already" in out
    assert "✗" in out


@pytest.mark.usefixtures("folder")
def test_bursts_that_break_a_limit_at_any_rate_are_no_slow_server(capsys: pytest.CaptureFixture[str]) -> None:
    bursts = ["--arrival", "gamma", "--burstiness", "0.01", "--num-requests", "500", "--seeds", "1"]
    assert vtwin.main([*CAPACITY, *LENGTHS, *bursts, "--slo", "ttft_p99=12ms"]) == 1
    out = capsys.readouterr().out
    assert "none: the load's own bursts break ttft_p99 at any rate tried: " in out
    assert "requests that come alone have 7.7 ms" in out
    assert "idle server" not in out


@pytest.mark.usefixtures("folder")
def test_a_terminal_of_80_columns_shows_every_line_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main([*CAPACITY, *LENGTHS, "--slo", "ttft_p99=300ms,tpot_p99=50ms"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out.startswith("capacity")
    assert "◄" in out


def test_the_page_needs_no_other_file_and_shows_the_capacity(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        vtwin.main([*CAPACITY, *LENGTHS, "--slo", "ttft_p99=300ms", "--report", "page.html", "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    page = (folder / "page.html").read_text()
    assert f"{found['rate']:.4g} requests per second" in page
    assert page.count("<svg") == 4
    assert "://" not in page.replace("http://www.w3.org", "")


@pytest.mark.usefixtures("folder")
def test_lengths_come_from_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["trace", "synth", "--rate", "5", *LENGTHS, "--output", "w"]) == 0
    rates = []
    for given in (["--like", "w"], list(LENGTHS), ["--trace", "w"]):
        capsys.readouterr()
        assert vtwin.main([*CAPACITY, *given, "--slo", "e2e_p99=1s", "--json", "--no-binding"]) == 0
        rates.append(json.loads(capsys.readouterr().out)["rate"])
    assert rates[0] == pytest.approx(rates[1], rel=0.1)
    assert rates[2] > 0


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--rate", "3"], "--rate: cannot be combined with a search for a rate"),
        (["--concurrency", "3"], "--concurrency: cannot be combined with a search for a rate"),
        (
            ["--like", "a", "--lengths-from", "b"],
            "--lengths-from: got it beside --like, which is its new name",
        ),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_a_search_leaves_no_room_for_is_refused(
    capsys: pytest.CaptureFixture[str], given: list[str], complaint: str
) -> None:
    assert vtwin.main([*CAPACITY, *given, "--slo", "e2e_p99=1s"]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_recorded_closed_loop_has_no_rate(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["trace", "synth", "--concurrency", "5", *LENGTHS, "--output", "w"]) == 0
    assert vtwin.main(["capacity", "--config", "twin.yaml", "--trace", "w", "--slo", "e2e_p99=1s"]) == 2
    assert "closed loop" in capsys.readouterr().err


def test_a_router_that_lives_from_caches_is_searched_where_caches_are_in_place(tmp_path: Path) -> None:
    """All at once nobody finds a prompt cached; the capacity is what a run at that rate keeps up with, brute force."""
    text = """\
engine: {max_num_seqs: 64, max_num_batched_tokens: 2048, num_gpu_blocks: 1500, max_model_len: 8192}
latency:
  model: blackbox
  coefficients: {alpha0: 2000, alpha1: 0, alpha2: 0, beta0: 11000, beta1: 40, beta2: 41}
cluster:
  instances: 4
  routing: {policy: weighted, scorers: {prefix-affinity: 3, queue-depth: 2}}
  snapshot_interval_us: 50000
"""
    n = 3000
    apps = [f"app{i}" for i in np.random.default_rng(3).integers(0, 16, size=n)]
    (plain,) = draws(1, num_requests=n, prompt_tokens=100, output_tokens=60)
    trace = plain.with_columns(prefix_group=apps, prefix_length=np.full(n, 3000))
    found = found_in(tmp_path, text, "ttft_p99=400ms", [trace])
    load = load_of(trace, twin_of(text, tmp_path))
    flood = load.scale_per_s()
    assert found.rate_per_s is not None
    assert found.rate_per_s > 1.5 * flood
    outcomes = load.serve(load.at(found.rate_per_s), "none")[0]
    ttft = (outcomes.first_token_us - outcomes.arrival_us)[n // 5 :]
    assert np.percentile(ttft, 99) <= 400_000
    served = n / (outcomes.last_token_us.max() - outcomes.arrival_us.min()) * 1e6
    assert served > 0.95 * found.rate_per_s


def test_runs_with_fewer_requests_than_seats_give_no_interval_and_a_number_that_is_sane(
    tmp_path: Path,
) -> None:
    text = SIXTEEN_SEATS_SYNC.replace("max_num_seqs: 16", "max_num_seqs: 256").replace(
        "num_gpu_blocks: 400", "num_gpu_blocks: 9000"
    )
    text += "cluster: {instances: 8, routing: {policy: round-robin}}\n"  # 2,048 seats
    found = found_in(tmp_path, text, "ttft_p99=300ms", draws(2, num_requests=300, output_tokens=60))
    assert found.is_too_short
    assert found.low is None
    assert 300 < found.requests_to_last < 1_000_000
    assert "--num-requests" in (short_run_note(found, 300) or "")


def test_tune_ranks_nothing_by_runs_that_are_too_short(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder.is_dir()
    told = [
        "tune",
        "--config",
        "twin.yaml",
        "--max-num-seqs",
        "64,128",
        "--num-requests",
        "40",
        "--seeds",
        "1",
    ]
    assert vtwin.main([*told, *LENGTHS, "--slo", "ttft_p99=300ms"]) == 2
    assert "--num-requests: got runs of 40 requests, expected" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["physics", "blackbox"])
def test_the_error_of_an_unfitted_twin_stands_beside_its_interval(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    physics = "engine: {max_num_seqs: 8}\nhardware: {gpu: H100}\n"
    physics += "latency: {model: physics, model_config: meta-llama/Llama-3.1-8B}\n"
    Path("twin.yaml").write_text(physics if model == "physics" else ONE_AT_A_TIME)
    load = "--num-requests 200 --prompt-tokens 100 --output-tokens 10 --slo ttft_p99=900ms"
    assert vtwin.main(f"capacity --config twin.yaml {load} --seeds 1 --no-binding --json".split()) == 0
    warned = json.loads(capsys.readouterr().out)["warnings"]
    known = [each for each in warned if each.startswith("not in the interval: physics was off by")]
    assert len(known) == (model == "physics")
