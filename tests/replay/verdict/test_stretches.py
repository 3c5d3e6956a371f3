"""Stretches in which more is sent than answered, against the truth: known capacities and the backlog counted."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import replay
from replay import load_config
from replay.simulation.simulated_run import Run, RunSettings
from replay.verdict.queued import queued_of
from replay.verdict.sentences import page_title, verdict_sentence
from replay.verdict.stretches import OverloadedStretch, overloaded_stretches
from sim import Status
from tests.examples import few_or_all
from traces import Header, Trace, make_trace
from traces.workload import WorkloadOptions, trace_from_options

Floats = NDArray[np.float64]

PER_S = 16 / (50 * 0.018)
"""The capacity of one server: sixteen requests of fifty steps of 10 + 16 · 0.5 ms."""
SERVER = """\
engine:
  {max_num_seqs: 16, async_scheduling: false, max_num_batched_tokens: 2048, num_gpu_blocks: 4000, max_model_len: 8192}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 10000, beta1: 0, beta2: 500}}
"""
WIDE = """\
engine:
  {max_num_seqs: 20000, async_scheduling: false, max_num_batched_tokens: 400000, num_gpu_blocks: 400000}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 10000, beta1: 0, beta2: 1125}}
"""
"""The same capacity without a limit of seats: fifty steps of 10 + n · 1.125 ms answer 16 / 0.9 per second at most."""
FOUR = "cluster:\n  instances: 4\n  routing: {policy: least-loaded}\n"
SCALED = """\
cluster:
  instances: 2
  startup: {loading_us: 90000000, warm_up_us: 60000000}
  routing: {policy: least-loaded}
  autoscaler: {policy: target, metric: in-flight, target: 10, min_instances: 2, max_instances: 10}
"""
FAILING = f"""{FOUR}  failures:
    schedule:
      - {{at_us: 600000000, instance: 0, down_us: 180000000}}
      - {{at_us: 600000000, instance: 1, down_us: 180000000}}
"""
ONE_FAILS = f"{FOUR}  failures: {{schedule: [{{at_us: 600000000, instance: 0, down_us: 400000000}}]}}\n"


def sent(parts: list[tuple[float, float]], *, seed: int = 1, cv: float = 1.0) -> NDArray[np.int64]:
    """Return arrivals, µs, of (seconds, load) in turn; a load of 1 is one server's capacity."""
    rng, start, found = np.random.default_rng(seed), 0.0, []
    for seconds, load in parts:
        at, rate = start, load * PER_S
        while rate > 0 and (at := at + rng.gamma(1 / cv**2, cv**2 / rate)) < start + seconds:
            found.append(at)
        start += seconds
    return (np.array(found) * 1e6).astype(np.int64)


def requests(came: NDArray[np.int64], **more: object) -> Trace:
    n = len(came)
    columns = {"input_tokens": np.full(n, 200), "output_tokens": np.full(n, 50), **more}
    return make_trace(
        Header(tool="vtwin", mode="generated"),
        {"request_id": [str(i) for i in range(n)], "arrival_time_us": came, **columns},
    )


def simulated(
    folder: Path,
    trace: Trace,
    *,
    text: str = "",
    slo_us: dict[str, float] | None = None,
    server: str = SERVER,
) -> Run:
    (folder / "twin.yaml").write_text(server + text)
    return replay.run(trace, load_config(folder / "twin.yaml"), RunSettings(slo_us=slo_us or {}))


DAY = [(60.0, 0.6 * (1 + 0.9 * float(np.sin(2 * np.pi * second / 3600)))) for second in range(0, 7200, 60)]
OVER = (180.0, 1.6)
TRUTH: dict[str, tuple[list[tuple[float, float]], str, str, list[tuple[float, float, float | None]]]] = {
    # loads in turn, the cluster, the verdict, and (from, until, recovered) of each stretch, in seconds
    "one stage": ([(600, 0.5), OVER, (1200, 0.5)], "", "overloaded", [(600, 780, 996)]),
    "two stages": (
        [(600, 0.5), (60, 1.5), (300, 0.4), (120, 1.4), (600, 0.5)],
        "",
        "overloaded",
        [(600, 660, 710), (960, 1080, 1176)],
    ),
    "a stage at the end": ([(600, 0.5), (180, 1.6)], "", "overloaded", [(600, 780, None)]),
    "a stage that stands": (
        [(300, 0.4), OVER, (900, 1.0), (600, 0.4)],
        "",
        "overloaded",
        [(300, 480, 1560)],
    ),
    "a ramp up": (
        [(60, load) for load in np.linspace(0.2, 1.6, 30)],
        "",
        "overloaded",
        [(1065, 1800, None)],
    ),
    "a ramp down": ([(60, load) for load in np.linspace(1.6, 0.2, 30)], "", "overloaded", [(0, 740, 1480)]),
    "always too much": ([(900, 1.4)], "", "overloaded", [(0, 900, None)]),
    "too much, far too much, too much": (
        [(600, 1.12), (180, 5.0), (1200, 1.12)],
        "",
        "overloaded",
        [(0, 1980, None)],
    ),
    "too much, far too much, little": (
        [(600, 1.12), (180, 5.0), (2400, 0.3)],
        "",
        "overloaded",
        [(0, 780, 1910)],
    ),
    "half of what it can": ([(900, 0.5)], "", "stable", []),
    "four fifths": ([(1200, 0.8)], "", "stable", []),
    "uneven arrivals": ([(1800, 0.6)], "", "stable", []),
    "a stage within the capacity": ([(600, 0.3), (180, 0.8), (600, 0.3)], "", "stable", []),
    "a day": (DAY, "", "overloaded", [(540, 1320, 1769), (4140, 4920, 5369)]),
    "a day within the capacity": ([(s, load / 1.4) for s, load in DAY], "", "stable", []),
    "scaling": ([(600, 1.0), (600, 3.2), (600, 1.0)], SCALED, "overloaded", [(600, 765, 860)]),
    "two of four fail": ([(1800, 3.2)], FAILING, "overloaded", [(600, 780, 1050)]),
    "one of four fails, and three are a little too few": (
        [(1800, 3.1)],
        ONE_FAILS,
        "overloaded",
        [(600, 1000, 1044)],
    ),
    "one of four fails, and three are just enough": ([(1800, 2.85)], ONE_FAILS, "stable", []),
    "two of four fail, and two are enough": ([(1800, 1.2)], FAILING, "stable", []),
}


@pytest.mark.parametrize("name", TRUTH)
def test_the_verdict_on_a_run_of_known_truth_is_right_and_its_times_are_within_a_tenth(
    name: str, tmp_path: Path
) -> None:
    parts, cluster, verdict, truth = TRUTH[name]
    came = sent(parts, cv=3.0 if name == "uneven arrivals" else 1.0)
    run = simulated(tmp_path, requests(came), text=cluster)
    assert_is_true(run, verdict, truth)
    downs = {ONE_FAILS: " while instance 0 was down", FAILING: " while instances 0 and 1 were down"}
    assert (downs.get(cluster, " while ") in str(run)) == (cluster in downs and bool(truth))


def assert_is_true(run: Run, verdict: str, truth: list[tuple[float, float, float | None]]) -> None:
    found = run.summary["verdict_stretches"]
    assert run.summary["verdict"] == verdict
    assert found is not None
    assert len(found) == len(truth)
    for each, (from_s, until_s, recovered_s) in zip(found, truth, strict=True):
        lasts = 0.1 * (until_s - from_s)
        assert each["from_us"] / 1e6 == pytest.approx(from_s, abs=lasts)
        assert each["until_us"] / 1e6 == pytest.approx(until_s, abs=lasts)
        assert (each["recovered_us"] is None) == (recovered_s is None)
        if recovered_s is not None and each["recovered_us"] is not None:
            assert each["recovered_us"] / 1e6 == pytest.approx(recovered_s, abs=0.1 * (recovered_s - from_s))
        assert each["sent_per_s"] > each["answered_per_s"]


BY_DECODING: dict[str, tuple[list[tuple[float, float]], str, list[tuple[float, float, float | None]]]] = {
    "a stage": ([(300, 0.4), (180, 1.6), (400, 0.4)], "overloaded", [(300, 480, 655)]),
    "a stage at the end": ([(300, 0.4), (180, 1.4)], "overloaded", [(300, 480, None)]),
    "always too much": ([(600, 1.4)], "overloaded", [(0, 600, None)]),
    "always a little too much": ([(1200, 1.15)], "overloaded", [(0, 1200, None)]),
    "a ramp up": ([(60, load) for load in np.linspace(0.1, 2.5, 20)], "overloaded", [(540, 1200, None)]),
    "two stages": (
        [(300, 0.4), (60, 1.8), (300, 0.3), (120, 1.6), (300, 0.3)],
        "overloaded",
        [(300, 360, 428), (660, 780, 883)],
    ),
    "half of what it can": ([(600, 0.5)], "stable", []),
    "nine tenths": ([(1200, 0.9)], "stable", []),
    "a stage within the capacity": ([(300, 0.3), (180, 0.9), (300, 0.3)], "stable", []),
    "a short stage within the capacity": ([(300, 0.2), (20, 0.9), (300, 0.2)], "stable", []),
    "a ramp within the capacity": ([(60, load) for load in np.linspace(0.1, 0.9, 20)], "stable", []),
    "uneven arrivals": ([(1200, 0.8)], "stable", []),
}


@pytest.mark.parametrize("name", BY_DECODING)
def test_the_verdict_on_a_server_bound_by_decoding_is_right_too(name: str, tmp_path: Path) -> None:
    parts, verdict, truth = BY_DECODING[name]
    came = sent(parts, cv=3.0 if name == "uneven arrivals" else 1.0)
    run = simulated(tmp_path, requests(came), server=WIDE)
    assert_is_true(run, verdict, truth)
    for each in run.summary["verdict_stretches"] or []:
        assert each["served_most"] == pytest.approx(
            backlog(run, np.array([each["until_us"]], np.float64))[0], rel=0.1
        )
        assert "were served at once, ever more slowly" in verdict_sentence("overloaded", [each])


GIVING_UP: dict[str, tuple[list[tuple[float, float]], float, list[tuple[float, float, float | None]]]] = {
    # loads in turn, the seconds that clients wait, and the stretches
    "at once": ([(600, 1.4)], 1.0, [(0, 600, None)]),
    "soon": ([(600, 2.0)], 1.2, [(0, 600, None)]),
    "after a while, uneven arrivals": ([(900, 1.5)], 3.0, [(0, 900, None)]),
    "late": ([(600, 1.4)], 30.0, [(0, 600, None)]),
    "in a stage": ([(600, 0.5), (180, 1.6), (600, 0.5)], 1.5, [(600, 780, 784)]),
    "in two stages": (
        [(300, 0.4), (120, 1.8), (300, 0.4), (120, 1.8), (300, 0.4)],
        2.0,
        [(300, 420, 424), (720, 840, 844)],
    ),
    "hardly ever: four fifths of the capacity": ([(900, 0.7)], 2.0, []),
    "hardly ever: a stage within the capacity": ([(300, 0.3), (180, 0.7), (300, 0.3)], 1.5, []),
}


@pytest.mark.parametrize("name", GIVING_UP)
def test_an_overload_whose_clients_give_up_is_one_stretch(name: str, tmp_path: Path) -> None:
    parts, seconds, truth = GIVING_UP[name]
    came = sent(parts, cv=3.0 if "uneven" in name else 1.0)
    run = simulated(tmp_path, requests(came, deadline_us=came + int(seconds * 1e6)))
    assert_is_true(run, "overloaded" if truth else "stable", truth)


def test_a_burst_is_told_as_one(tmp_path: Path) -> None:
    came = np.sort(np.concatenate([sent([(1200, 0.4)]), np.full(1500, 400_000_000)]))
    run = simulated(tmp_path, requests(came))
    assert run.summary["verdict"] == "overloaded"
    (burst,) = run.summary["verdict_stretches"] or []
    assert burst["from_us"] == pytest.approx(400e6, abs=2e6)
    assert burst["recovered_us"] == pytest.approx((400 + 1500 / (0.6 * PER_S)) * 1e6, rel=0.05)
    assert "a burst of 1,5" in str(run)


def bursts(*sizes: int, each_s: float, load: float) -> NDArray[np.int64]:
    """Return a load with bursts at equal distances, each of so many requests at once."""
    at = [np.full(n, int((i + 0.5) * each_s * 1e6)) for i, n in enumerate(sizes)]
    return np.sort(np.concatenate([sent([(each_s * len(sizes), load)]), *at]))


@pytest.mark.parametrize(
    ("sizes", "each_s", "said"),
    [
        ((250,), 3600.0, "; a burst of 2"),
        ((250,) * 6, 1000.0, "; 6 bursts, the longest: a burst of 2"),
    ],
)
def test_bursts_that_are_little_of_the_time_and_of_the_requests_are_no_overload(
    sizes: tuple[int, ...], each_s: float, said: str, tmp_path: Path
) -> None:
    run = simulated(tmp_path, requests(bursts(*sizes, each_s=each_s, load=0.5)))
    assert run.summary["verdict"] == "stable"
    assert len(run.summary["verdict_stretches"] or []) == len(sizes)
    assert f"stable: the server keeps up{said}" in str(run)
    assert "OVERLOADED" not in str(run)
    assert not any("overloaded" in note for note in run.notes)


@pytest.mark.parametrize("seed", range(3))
def test_a_queue_that_comes_and_goes_near_the_capacity_is_never_said_to_be_sent_no_more_than_answered(
    seed: int, tmp_path: Path
) -> None:
    """Rounds of a few minutes that pile up and drain again: long times over which nothing piles up."""
    rng = np.random.default_rng(seed)
    parts = [
        (float(rng.uniform(20, 60)) if i % 2 else 600.0, 3.0 if i % 2 else float(rng.uniform(0.9, 1.0)))
        for i in range(8)
    ]
    run = simulated(tmp_path, requests(sent(parts, seed=seed)))
    for each in run.summary["verdict_stretches"] or []:
        assert each["sent_per_s"] > 1.01 * each["answered_per_s"]
        told = verdict_sentence("overloaded", [each])
        shown = re.search(r"([0-9.]+) requests/s sent, ([0-9.]+) answered", told)
        assert shown is None or float(shown[1]) > float(shown[2])


def test_a_long_overload_by_less_than_a_hundredth_is_told_with_as_many_digits_as_it_takes() -> None:
    told = verdict_sentence(
        "overloaded",
        [
            OverloadedStretch(
                from_us=0,
                until_us=3_600_000_000,
                sent_per_s=59.94,
                answered_per_s=59.86,
                waiting_most=288,
                wait_p90_us=4e6,
                num_lost=0,
                recovered_us=3_700_000_000,
                served_most=None,
                down=[],
            )
        ],
        sending_us=36e9,
    )
    assert "59.94 requests/s sent, 59.86 answered" in told


@pytest.mark.parametrize("load", [0.93, 0.97])
def test_no_sentence_says_that_a_server_keeps_up_where_many_wait_for_long(
    load: float, tmp_path: Path
) -> None:
    """Long answers: a wait of seconds is a small part of a request's time, and yet a wait."""
    came = sent([(3000, load * 0.1)], seed=3)
    run = simulated(tmp_path, requests(came, output_tokens=np.full(len(came), 500)))
    waits = run.latencies()["queue_us"].to_numpy()
    assert (waits >= 1e6).mean() > 0.1
    assert run.summary["verdict"] in ("stable", "near saturation")
    assert "keeps up" not in str(run)
    assert f"but {(waits >= 1e6).mean():.0%} of the requests wait 1 s or more" in str(run)


def test_the_time_in_which_a_grammar_compiles_is_no_queue(tmp_path: Path) -> None:
    compiling = SERVER.replace("max_num_seqs: 16", "max_num_seqs: 16, guided_compile_us: 2000000")
    came = sent([(600, 0.25)])
    run = simulated(tmp_path, requests(came, guided=np.ones(len(came), bool)), server=compiling)
    assert run.summary["ttft_us"]["p50"] > 2e6  # type: ignore[operator]
    assert run.summary["verdict"] == "stable"
    assert "stable: the server keeps up" in str(run)
    assert (run.waiting or "").endswith("for their grammars to compile (engine.guided_compile_us)")


def test_clients_that_give_up_do_not_hide_an_overload(tmp_path: Path) -> None:
    """The queue is never longer than ten seconds, since whoever has waited that long leaves."""
    came = sent([(600, 0.5), (60, 1.6), (1800, 0.5)])
    run = simulated(tmp_path, requests(came, deadline_us=came + 10_000_000))
    (stretch,) = run.summary["verdict_stretches"] or []
    assert stretch["from_us"] == pytest.approx(600e6, abs=6e6)
    assert stretch["until_us"] == pytest.approx(660e6, abs=12e6)
    lost = run.summary["num_by_status"]["timeout"]
    assert stretch["num_lost"] == lost
    assert f"{lost:,} were never answered" in str(run)


def test_agents_that_wait_for_kv_blocks_are_said_to_wait_for_them(tmp_path: Path) -> None:
    """Blocks for two prompts and a bit: a third fits into no more than nine tenths of them, and yet waits."""
    few = SERVER.replace("num_gpu_blocks: 4000", "num_gpu_blocks: 1400").replace(
        "max_num_batched_tokens: 2048", "max_num_batched_tokens: 8192"
    )
    (tmp_path / "twin.yaml").write_text(few)
    came = np.sort(np.random.default_rng(1).uniform(0, 600e6, 250)).astype(np.int64)
    trace = requests(came).with_columns(input_tokens=np.full(250, 7800), output_tokens=np.full(250, 300))
    run = replay.run(trace, load_config(tmp_path / "twin.yaml"))
    assert run.summary["queue_us"]["mean"] > 0.2 * run.summary["e2e_us"]["mean"]  # type: ignore[operator]
    assert run.usage.waits_for == "KV blocks"
    assert "for KV blocks" in (run.waiting or "")


def test_a_closed_loop_has_no_verdict_and_says_what_its_users_wait_for(tmp_path: Path) -> None:
    trace = trace_from_options(
        WorkloadOptions(concurrency=40, num_requests=1000, prompt_tokens=200, output_tokens=50)
    )
    run = simulated(tmp_path, trace)
    assert run.summary["verdict"] is None
    assert run.summary["verdict_stretches"] is None
    assert (run.waiting or "").endswith("for seats")


def test_scaling_that_comes_too_late_is_told_with_its_times(tmp_path: Path) -> None:
    run = simulated(tmp_path, requests(sent(TRUTH["scaling"][0])), text=SCALED)
    assert run.of_cluster is not None
    (late,) = [each for each in run.of_cluster["pathologies"] if each["name"] == "scaling too late"]
    assert late["value"] == pytest.approx(150 + 15, abs=15)
    assert "from minute 10 on more was sent than the instances answered; more were asked for" in late["text"]
    calm = simulated(tmp_path, requests(sent([(900, 0.6)])), text=SCALED)
    assert calm.of_cluster is not None
    assert [each["name"] for each in calm.of_cluster["pathologies"]] == []


def test_the_slo_missed_while_instances_start_is_told_where_no_stretch_is(tmp_path: Path) -> None:
    """Two servers are enough for the rise, and yet requests wait until the third is ready."""
    came = sent([(600, 0.6), (300, 1.9), (300, 0.6)])
    run, missed_anyway, without = (
        simulated(tmp_path, requests(came), text=SCALED, slo_us=slo_us)
        for slo_us in ({"ttft": 100_000.0}, {"ttft": 1.0}, None)
    )
    assert run.summary["verdict_stretches"] == []
    assert run.of_cluster is not None
    (late,) = [each for each in run.of_cluster["pathologies"] if each["name"] == "scaling too late"]
    asked_us = min(each.ordered_us for each in run.fleet.result.infrastructure.lives if each.ordered_us > 0)
    arrival_us, ttft = run.simulation.outcomes.arrival_us, run.latencies()["ttft_us"].to_numpy()
    while_starting = (arrival_us >= asked_us) & (arrival_us < asked_us + 150e6)
    counted = f"{(ttft[while_starting] > 100_000).sum():,} of {while_starting.sum():,} requests"
    assert late["text"].startswith(counted)
    assert (
        f"more were asked for at minute {asked_us / 6e7:.3g}, and the first was ready 2.5 min" in late["text"]
    )
    for each in (missed_anyway, without):
        assert each.of_cluster is not None
        assert each.of_cluster["pathologies"] == []


def test_no_sentence_says_that_a_server_keeps_up_where_the_slo_is_missed(tmp_path: Path) -> None:
    run = simulated(tmp_path, requests(sent([(600, 0.5)])), slo_us={"e2e": 600_000.0})
    assert run.summary["verdict"] == "stable"
    good = run.summary["goodput"]
    assert good is not None
    assert good["good_frac"] is not None
    assert good["good_frac"] < 0.9
    assert "keeps up" not in str(run)
    assert "the SLO is missed" in str(run)
    for verdict in ("stable", "near saturation", "metastable"):
        for said in (
            verdict_sentence(verdict, good_frac=0.6),
            verdict_sentence(verdict, waits="requests wait longer than they are served"),
            page_title(verdict, subject="server", is_slo_missed=True, waits=None),
        ):
            assert "keeps up" not in said


# -- the backlog, counted directly --------------------------------------------------------------------------------


def backlog(run: Run, times: Floats) -> Floats:
    """Return how many requests had come and were not done at each time, by counting."""
    outcomes = run.simulation.outcomes
    done = np.where(outcomes.status == Status.OK, outcomes.last_token_us, np.inf)
    return np.array([((outcomes.arrival_us <= at) & (done > at)).sum() for at in times], np.float64)


def is_in(stretches: list[OverloadedStretch], at_us: float) -> bool:
    next_from = [*(each["from_us"] for each in stretches[1:]), np.inf]
    return any(
        each["from_us"] <= at_us <= (each["recovered_us"] or later)
        for each, later in zip(stretches, next_from, strict=True)
    )


@pytest.mark.parametrize("seed", range(few_or_all(10, 30)))
def test_on_random_loads_the_stretches_are_those_of_the_backlog(seed: int, tmp_path: Path) -> None:
    """Whenever more than three times the seats are there, a stretch says so; where one grows, so does the backlog."""
    rng = np.random.default_rng(seed)
    parts = [
        (float(rng.uniform(60, 400)), float(rng.choice([0.2, 0.5, 0.7, 1.3, 1.6, 2.0]))) for _ in range(8)
    ]
    run = simulated(tmp_path, requests(sent(parts, seed=seed)))
    stretches = run.summary["verdict_stretches"]
    assert stretches is not None
    last = float(run.simulation.outcomes.arrival_us.max())
    times = np.linspace(0, last, 400)
    counted = backlog(run, times)
    assert [at for at, n in zip(times, counted, strict=True) if n > 96 and not is_in(stretches, at)] == []
    for each in stretches:
        ends = backlog(run, np.array([each["from_us"], each["until_us"]], np.float64))
        seconds = (each["until_us"] - each["from_us"]) / 1e6
        assert (each["sent_per_s"] - PER_S) * seconds == pytest.approx(ends[1] - ends[0], rel=0.15, abs=25)
        assert each["answered_per_s"] == pytest.approx(PER_S, rel=0.05)
        assert each["waiting_most"] == pytest.approx(ends[1] - 16, rel=0.05, abs=20)
    assert (run.summary["verdict"] == "overloaded") == bool(stretches)


@pytest.mark.parametrize("cv", [1.0, 2.0, 3.0])
def test_chance_is_no_overload(cv: float, tmp_path: Path) -> None:
    """Hours of four fifths of the capacity, or six tenths where arrivals are uneven: no stretch."""
    load = {1.0: 0.85, 2.0: 0.7, 3.0: 0.6}[cv]
    for seed in range(few_or_all(3, 6)):
        run = simulated(tmp_path, requests(sent([(2400, load)], seed=seed, cv=cv)))
        outcomes = run.simulation.outcomes
        queued = queued_of(outcomes, refused=np.zeros(len(outcomes.status), bool), gone_us=None)
        assert overloaded_stretches(queued, step_us=18_000, served_us=900_000) == []
