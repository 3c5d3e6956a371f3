"""The verdict on a run against the truth: servers of known capacity, and brute force where it is not known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vtwin
from replay import TwinConfig, dump_config, load_config, pacing_of, simulate_trace
from replay.cluster.simulate import simulate_fleet
from replay.simulation.run_verdict import judge_run
from replay.twin.twin_config import with_pools
from replay.verdict.growth import Customers, customers_of, growth_of, piles_up
from replay.verdict.judged import Judged
from sim import Blackbox, EngineConfig
from sim.cluster import Exit
from traces import Header, Trace, make_trace, write_trace

PROMPT, OUTPUT = 200, 50
LOADED = ("near saturation", "overloaded", "too short to tell")


def load(
    n: int, rate: float, *, seed: int = 1, prompt: int = PROMPT, output: int = OUTPUT, **more: object
) -> Trace:
    """Return Poisson arrivals of equal requests."""
    gaps = np.random.default_rng(seed).exponential(1e6 / rate, size=n)
    return make_trace(
        Header(tool="vtwin", mode="generated"),
        {
            "request_id": [str(i) for i in range(n)],
            "arrival_time_us": np.cumsum(gaps).astype(np.int64),
            "input_tokens": np.full(n, prompt),
            "output_tokens": np.full(n, output),
            **more,
        },
    )


def server(*, beta: tuple[float, float, float], **engine: int) -> TwinConfig:
    names = dict(zip(("beta0", "beta1", "beta2"), beta, strict=True))
    return TwinConfig(engine=EngineConfig(async_scheduling=False, **engine), latency=Blackbox(**names))


FEW_SEATS = server(beta=(10_000, 0, 500), max_num_seqs=16)
MANY_SEATS = server(beta=(10_000, 20, 500), max_num_seqs=1024)
FEW_BLOCKS = server(beta=(10_000, 0, 500), max_num_seqs=1024, num_gpu_blocks=321)
PREFILL = server(beta=(5_000, 50, 0), max_num_seqs=256, max_num_batched_tokens=2048)
"""Of 320 blocks each request takes 16 in the end; the prompts of ``PREFILL`` take 10 ms of its time each."""


def capacity(twin: TwinConfig) -> float:
    """Return what a server answers per second of a queue that never ends, by brute force."""
    outcomes = simulate_trace(load(12_000, 1e4), twin)[1].outcomes
    done = np.sort(outcomes.last_token_us)
    first, last = int(0.4 * len(done)), int(0.8 * len(done))
    return float((last - first) / (done[last] - done[first]) * 1e6)


def verdict(trace: Trace, twin: TwinConfig) -> Judged | None:
    pacing = pacing_of(trace, simulates_rounds=True)
    fleet = simulate_fleet(trace, twin.cluster, pacing)
    refused = fleet.result.exit == Exit.REFUSED
    return judge_run(fleet.simulation.outcomes, twin, pacing, work=fleet.work, refused=refused)


def is_true(found: Judged | None, share: float) -> bool:
    """Return whether a verdict agrees with a load of this share of the capacity, or says that it cannot tell."""
    assert found is not None
    allowed = {"stable", "near saturation"} if share < 1 else {"overloaded"}
    return found.verdict in allowed | {"too short to tell"}


@pytest.mark.parametrize(
    "twin", [FEW_SEATS, MANY_SEATS, FEW_BLOCKS, PREFILL], ids=["seats", "steps", "KV", "prefill"]
)
def test_no_verdict_on_a_server_of_known_capacity_is_wrong(twin: TwinConfig) -> None:
    most = capacity(twin)
    found = {
        (share, n): verdict(load(n, share * most, seed=n), twin)
        for share in (0.5, 0.75, 1.4, 2.5, 6)
        for n in (100, 300, 2000)
    }
    assert [case for case, each in found.items() if not is_true(each, case[0])] == []
    told = [each.verdict for (share, n), each in found.items() if n == 2000 and each is not None]
    assert told == ["stable", "stable", "overloaded", "overloaded", "overloaded"]


@pytest.mark.parametrize(
    "routing",
    [
        "round-robin",
        "least-loaded",
        "random",
        "power-of-two",
        "session",
        "vllm-dp",
        "cache-aware",
        "kv-cost",
        "weighted, scorers: {prefix-affinity: 3, queue-depth: 2, kv-utilization: 2}",
        "weighted, scorers: {precise-prefix-cache: 2, queue-depth: 1}",
    ],
)
def test_no_verdict_on_a_router_is_wrong(routing: str, tmp_path: Path) -> None:
    twin = clustered(f"{{instances: 4, routing: {{policy: {routing}}}}}", tmp_path)
    most = 4 * FEW_SEATS_PER_S
    for share in (0.5, 1.4, 6):
        for n in (100, 2000):
            found = verdict(load(n, share * most, seed=n), twin)
            assert is_true(found, share), (share, n, found)
            assert n == 100 or found is None or found.verdict != "too short to tell"


FEW_SEATS_PER_S = 16 / (50 * 0.018)
"""Sixteen requests of fifty steps of 10 + 16 · 0.5 ms."""


def clustered(cluster: str, folder: Path) -> TwinConfig:
    path = folder / "twin.yaml"
    path.write_text(f"{dump_config(FEW_SEATS)}\ncluster: {cluster}\n")
    return load_config(path)


def test_the_known_capacity_is_that_of_brute_force() -> None:
    assert capacity(FEW_SEATS) == pytest.approx(FEW_SEATS_PER_S, rel=0.02)


def test_no_verdict_on_prefill_and_decode_pools_is_wrong(tmp_path: Path) -> None:
    pools = "[{name: p, role: prefill, instances: 1}, {name: d, role: decode, instances: 2}]"
    moved = "{decider: always, kv_bandwidth_gbps: 25, kv_bytes_per_token: 131072}"
    twin = clustered(f"{{pools: {pools}, disaggregation: {moved}}}", tmp_path)
    for share in (0.5, 1.4, 6):
        for n in (300, 2000):
            assert is_true(verdict(load(n, share * 2 * FEW_SEATS_PER_S, seed=n), twin), share)


def conversations(n: int, rate: float) -> Trace:
    """Return sessions of four rounds that begin at this rate."""
    first = load(n // 4, rate).column("arrival_time_us").to_numpy(np.int64)
    rounds = np.tile(np.arange(4), n // 4)
    trace = load(n, 1.0)
    starts = trace.cells("arrival_time_us")
    starts = replace(starts, values=np.repeat(first, 4), is_known=rounds == 0)
    return trace.with_columns(
        arrival_time_us=starts,
        session_id=np.repeat([f"s{i}" for i in range(n // 4)], 4),
        round_index=rounds,
        think_time_us=np.full(n, 100_000),
    )


def test_no_verdict_on_sessions_is_wrong_and_it_counts_sessions(tmp_path: Path) -> None:
    twin = clustered("{instances: 1}", tmp_path)
    for share in (0.5, 1.4, 6):
        for n in (300, 2000):
            found = verdict(conversations(n, share * FEW_SEATS_PER_S / 4), twin)
            assert is_true(found, share), (share, n, found)
            assert found is not None
            assert found.facts["num_sent"] <= n


def test_a_handful_of_sessions_is_too_few_however_many_rounds_they_have(tmp_path: Path) -> None:
    """Nineteen sessions of four rounds, sent again and again, would be called overloaded."""
    twin = clustered("{instances: 1}", tmp_path)
    found = {n: verdict(conversations(4 * n, 6 * FEW_SEATS_PER_S / 4), twin) for n in (19, 20)}
    assert found[19] is not None
    assert found[20] is not None
    assert (found[19].verdict, found[20].verdict) == ("too short to tell", "overloaded")


def test_a_router_that_lives_from_caches_is_not_called_overloaded_where_it_serves_all(tmp_path: Path) -> None:
    """Were all to come at once, nobody would find a prompt cached, and the cluster would answer a third of this."""
    text = (
        "{instances: 4, routing: {policy: weighted, scorers: {prefix-affinity: 3, queue-depth: 2}}, "
        "snapshot_interval_us: 50000}"
    )
    twin = clustered(text, tmp_path)
    engine = replace(twin.engine, num_gpu_blocks=1500)
    pool = replace(twin.cluster.pools[0], engine=engine, latency=Blackbox(beta0=11_000, beta1=40, beta2=41))
    twin = with_pools(twin, [pool])
    n, rate = 4000, 60.0
    group = np.random.default_rng(3).integers(0, 16, size=n)
    trace = load(
        n,
        rate,
        prompt=100,
        prefix_group=[f"app{i}" for i in group],
        prefix_length=np.full(n, 3000),
    )
    found = verdict(trace, twin)
    assert found is not None
    pacing = pacing_of(trace)
    outcomes = simulate_fleet(trace, twin.cluster, pacing).simulation.outcomes
    served = len(trace) / (outcomes.last_token_us.max() - outcomes.arrival_us.min()) * 1e6
    assert served > 0.97 * rate
    assert found.verdict in ("stable", "near saturation", "metastable")


def test_requests_that_are_turned_away_are_no_sign_of_a_server_that_keeps_up(tmp_path: Path) -> None:
    twin = clustered(
        "{instances: 1, admission: {policy: token-bucket, capacity: 1000, refill_per_s: 500}}", tmp_path
    )
    found = verdict(load(300, 10), twin)
    assert found is not None
    assert found.verdict == "overloaded"
    assert "never answered" in (found.text() or "")
    assert verdict(load(300, 10, prompt=400_000), FEW_SEATS) is None  # too long: no load at all


def test_a_run_near_saturation_is_told_how_far_a_little_more_load_moves_ttft() -> None:
    found = verdict(load(3000, 0.97 * FEW_SEATS_PER_S), FEW_SEATS)
    assert found is not None
    assert found.verdict == "near saturation"
    own, more = found.facts["ttft_mean_us"], found.facts["ttft_mean_us_at_more"]
    assert own is not None
    assert more is not None
    assert more > 1.5 * own
    assert "do not trust TTFT" in (found.text() or "")


def test_two_instances_of_four_that_fall_behind_are_not_called_stable(tmp_path: Path) -> None:
    """The whole cluster hardly grows, and most of a request's time is its wait."""
    twin = clustered("{instances: 2, routing: {policy: session}}", tmp_path)
    found = verdict(load(3000, 1.05 * FEW_SEATS_PER_S, session_id=["a"] * 2900 + ["b"] * 100), twin)
    assert found is not None
    assert found.verdict in ("near saturation", "overloaded")


def test_a_short_run_says_how_many_requests_would_tell_and_they_do() -> None:
    most = 1024 / (50 * 0.522)
    found = verdict(load(100, 0.5 * most), MANY_SEATS)
    assert found is not None
    assert found.verdict == "too short to tell"
    asked = found.facts["num_requests_to_tell"]
    assert asked is not None
    longer = verdict(load(asked, 0.5 * most), MANY_SEATS)
    assert longer is not None
    assert longer.verdict == "stable"


def test_nothing_more_is_simulated_for_a_run_that_is_clear() -> None:
    pacing = pacing_of(load(20, 1.0))
    for n, share in ((300, 0.2), (5000, 3.0)):
        trace = load(n, share * FEW_SEATS_PER_S)
        done = simulate_fleet(trace, FEW_SEATS.cluster, pacing)
        unable = replace(FEW_SEATS, latency=None)  # type: ignore[arg-type] # whoever simulated with it would fail
        refused = np.zeros(n, bool)
        found = judge_run(done.result.outcomes, unable, pacing, work=done.work, refused=refused)
        assert found is not None
        assert found.facts["num_simulated"] == n


def test_growth_is_that_of_a_queue_counted_by_hand() -> None:
    """One comes each second, one leaves every two: half of them pile up."""
    came = np.arange(400) * 1_000_000
    customers = Customers(came_us=came, began_us=came, left_us=np.arange(1, 401) * 2_000_000)
    found = growth_of(customers)
    assert found is not None
    assert found.growth_frac == pytest.approx(0.5, abs=0.01)
    assert (found.in_system, found.num_sent) == (201, 400)
    assert found.sent_per_s == pytest.approx(1.0)
    assert found.waiting_frac == 0.0
    assert not found.falls_back
    assert (
        found.generations == 5
    )  # at 2 s, 6, 14, 30, 62 or a little later; the sixth passes half of the time, 199.5 s


def test_a_stay_that_grows_with_the_load_piles_up_as_the_formula_says() -> None:
    assert piles_up(0.5, 1) == pytest.approx(1 / 3)
    assert piles_up(2.0, 2) == pytest.approx(4 / 7)
    assert piles_up(1.0, 9) == pytest.approx(0.1)


def test_customers_of_sessions_stay_from_the_first_round_to_the_last() -> None:
    outcomes = simulate_trace(load(4, 1.0), FEW_SEATS)[1].outcomes
    found = customers_of(outcomes, np.array([5, 5, -1, 5]))
    assert found.came_us.tolist() == [outcomes.arrival_us[0], outcomes.arrival_us[2]]
    assert found.left_us.tolist() == [outcomes.last_token_us[3], outcomes.last_token_us[2]]


@pytest.mark.parametrize(("share", "said"), [(0.3, "stable"), (3.0, "overloaded")])
def test_run_prints_the_verdict_and_its_json_has_what_it_rests_on(
    share: float, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "twin.yaml").write_text(dump_config(FEW_SEATS))
    write_trace(load(300, share * FEW_SEATS_PER_S), tmp_path / "load")
    told = [
        "replay",
        str(tmp_path / "load"),
        "--config",
        str(tmp_path / "twin.yaml"),
        "--output",
        str(tmp_path / "out"),
    ]
    assert vtwin.main([*told, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == said
    assert document["load"]["sent_per_s"] == pytest.approx(share * FEW_SEATS_PER_S, rel=0.2)
    assert any(line.startswith("overloaded") for line in document["warnings"]) == (said == "overloaded")
