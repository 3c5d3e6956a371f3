"""What runs show of flags that no server says: the seats, by gauges and by traces, and a step's tokens."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import vtwin
from calibrate.calibration_run import calibrate, compare_with_twin
from calibrate.findings import Options
from calibrate.flags.evidence import check_shown, contradictions_of
from calibrate.flags.shown import SEATS, TOKENS, Shown, seats_of_trace, shown_by
from calibrate.misfit import missed_load, without_missed
from calibrate.report.warnings import warnings_of
from calibrate.verdict_text import verdict_text
from replay import TwinConfig, load_config
from replay.twin.fitted.fitted_range import FittedRange, range_of
from sim import Blackbox, EngineConfig, KVCacheGroup
from tests.calibrate.known_servers import ENGINE, GUESS, SERVER, TRUTH, observed, source, workload
from tests.recorded_vllm import FOLDER
from traces import ConfigError, Trace, write_trace


def overloaded(*, seed: int = 1, output: tuple[float, float] = (40, 0.5), **engine: int) -> Trace:
    """Return a run of a load that the server cannot serve, so that requests wait."""
    settings = EngineConfig(async_scheduling=False, **{"max_num_seqs": 256, **engine})  # type: ignore[arg-type]
    server = TwinConfig(engine=settings, latency=Blackbox(**TRUTH))
    return observed(workload(300, rate=60, seed=seed, output=output), server)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("seats", [8, 32])
def test_seats_show_themselves_in_a_trace(seats: int, seed: int) -> None:
    shown = seats_of_trace(overloaded(seed=seed, max_num_seqs=seats))
    assert shown is not None
    assert (shown.name, shown.most, shown.is_limit, shown.is_servers) == (SEATS, seats, True, False)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("output", "engine"),
    [
        ((40, 0.5), {"num_gpu_blocks": 600}),
        ((40, 0.5), {"max_num_batched_tokens": 512}),
        ((40, 0.0), {"max_num_batched_tokens": 512}),
        ((40, 0.5), {"num_gpu_blocks": 200}),
    ],
)
def test_a_full_kv_cache_and_full_steps_are_not_taken_for_seats(
    output: tuple[float, float], engine: dict[str, int], seed: int
) -> None:
    shown = seats_of_trace(overloaded(seed=seed, output=output, **engine))
    assert shown is not None
    assert not shown.is_limit


def test_requests_that_are_all_alike_and_fill_the_kv_cache_show_no_seats() -> None:
    requests = workload(300, rate=60, seed=1, prompt=(250, 0), output=(40, 0))
    engine = replace(ENGINE, max_num_seqs=256, num_gpu_blocks=600)
    trace = observed(requests, replace(SERVER, engine=engine))
    told = trace.with_header(server=trace.header.server.learn("/metrics", num_gpu_blocks=600, block_size=16))
    assert not any(shown.is_limit for each in (trace, told) if (shown := seats_of_trace(each)) is not None)


@pytest.mark.parametrize(
    ("num_blocks", "groups", "is_limit"),
    [
        (1000, 1, True),
        (1000, 4, False),  # 16 requests of some 290 tokens: 19 blocks in each group
        (4000, 4, True),
        (100, 1, False),
        (100, 0, True),  # a window of 32 tokens alone: 3 blocks each
    ],
)
def test_whether_there_was_room_is_asked_of_the_twins_groups(
    num_blocks: int, groups: int, is_limit: bool
) -> None:
    trace = overloaded(max_num_seqs=16)
    told = trace.with_header(
        server=trace.header.server.learn("/metrics", num_gpu_blocks=num_blocks, block_size=16)
    )
    kinds = (KVCacheGroup(kind="full"),) * groups or (KVCacheGroup(kind="sliding", window=32),)
    engine = EngineConfig(max_num_seqs=256, kv_cache_groups=kinds, num_gpu_blocks=num_blocks)
    twin = TwinConfig(engine=engine, latency=Blackbox(**TRUTH))
    shown = seats_of_trace(told)
    assert shown is not None
    run = SimpleNamespace(name="over", trace=told, shown=(shown,))
    said = contradictions_of([run], twin)
    assert [each.is_limit for each, _ in said] == ([True] if is_limit else [])


def test_a_load_that_is_served_shows_no_limit() -> None:
    shown = seats_of_trace(observed(workload(200, rate=5, seed=1)))
    assert shown is not None
    assert not shown.is_limit


def test_the_gauges_of_a_vllm_show_its_seats(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "over.gauges.csv", tmp_path / "over.gauges.csv")
    gauges, _ = shown_by(tmp_path / "over", observed(workload(20, rate=1, seed=1)))
    assert (gauges.name, gauges.most, gauges.is_limit, gauges.is_servers) == (SEATS, 16, True, True)
    assert (
        gauges.how
        == "its gauges show at most 16 running, also in the 23 of 26 scrapes in which others waited"
    )


@pytest.mark.parametrize(
    ("steps", "most", "is_limit"),
    [
        (["1,500,12,12", "1,505,7,7", "1,512,0,0", "1,20,3,3"], 512, True),
        (["1,500,12,12", "1,500,12,12", "1,500,12,12"], 512, False),
        (["1,500,12,12", "1,400,7,7", "0,0,9,9"], 512, False),
    ],
)
def test_the_tokens_of_a_step_are_a_limit_where_different_steps_have_as_many(
    tmp_path: Path, steps: list[str], most: int, is_limit: bool
) -> None:
    head = "num_prefill_requests,num_prefill_tokens,num_decode_requests,num_decode_tokens"
    (tmp_path / "run.steps.csv").write_text("\n".join([head, *steps]) + "\n")
    (tokens,) = (
        each
        for each in shown_by(tmp_path / "run", observed(workload(5, rate=1, seed=1)))
        if each.name == TOKENS
    )
    assert (tokens.most, tokens.is_limit) == (most, is_limit)


OPEN = """\
engine: {{async_scheduling: false{more}}}
latency: {{model: blackbox, coefficients: {{alpha0: 4000, alpha1: 5, alpha2: 0, beta0: 12000, beta1: 60, beta2: 500}}}}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run in which 16 requests ran and others waited."""
    monkeypatch.chdir(tmp_path)
    write_trace(overloaded(max_num_seqs=16), tmp_path / "over")
    return tmp_path


def compared(*more: str, seats: int | None = None) -> int:
    said = "" if seats is None else f", max_num_seqs: {seats}"
    Path("twin.yaml").write_text(OPEN.format(more=said))
    return vtwin.main(["calibrate", "over", "--config", "twin.yaml", "--report", "report", *more])


def test_a_default_that_nobody_wrote_is_as_the_run_shows(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compared("--fit", "--latency-model", "blackbox", "--write-config", "fitted.yaml") == 0
    said = capsys.readouterr().err
    assert (
        "note: engine.max_num_seqs is not in the configuration: 16, as over shows: at most 16 requests"
        in said
    )
    assert load_config(here / "fitted.yaml").engine.max_num_seqs == 16


@pytest.mark.parametrize(("seats", "expected"), [(256, "expected 16"), (8, "expected 16")])
def test_a_value_that_was_written_and_the_gauges_deny_is_an_error(
    here: Path, seats: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(FOLDER / "over.gauges.csv", here / "over.gauges.csv")
    assert compared(seats=seats) == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "ConfigError" in line)
    assert (
        f"engine.max_num_seqs: got {seats}, {expected}, by over: its gauges show at most 16 running" in line
    )
    assert compared("--accept-flags", seats=seats) == 0
    shown = capsys.readouterr()
    assert f"warning: engine.max_num_seqs: got {seats}, {expected}" in shown.err
    assert "Do not trust it: its engine.max_num_seqs cannot be the server's." in shown.out


@pytest.mark.usefixtures("here")
def test_what_only_the_client_saw_takes_the_trust_away(capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(seats=256) == 0
    shown = capsys.readouterr()
    assert "Do not trust it: its engine.max_num_seqs cannot be the server's." in shown.out
    assert (
        "warning: engine.max_num_seqs: got 256, expected 16, by over: at most 16 requests were answered"
        in shown.err
    )
    assert compared(seats=16) == 0
    shown = capsys.readouterr()
    assert "cannot be the server's" not in shown.out
    assert "engine.max_num_seqs" not in shown.err


def test_a_gate_on_a_twin_of_another_server_is_inconclusive(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "gate.yaml").write_text("require_kv_capacity: false\nmetrics: {e2e_us: {mape: {fail: 0.9}}}\n")
    assert compared("--thresholds", "gate.yaml", seats=256) == 5
    assert "not comparable: engine.max_num_seqs: got 256" in capsys.readouterr().out


def test_a_load_that_the_twin_misses_is_no_load_to_trust_it_at() -> None:
    low, high = (observed(workload(80, rate=rate, seed=seed), noise=0.02) for rate, seed in ((3, 1), (9, 2)))
    slow = replace(SERVER, latency=Blackbox(**{**TRUTH, "beta0": 20_000.0}))
    missed = observed(workload(80, rate=12, seed=3), slow)
    options = Options(replicates=20, latency_model="blackbox")
    found = calibrate(
        [source("low", low), source("high", high)], GUESS, options, holdout=[source("missed", missed)]
    )
    assert [missed_load(each) is not None for each in found.traces] == [False, False, True]
    assert any("missed: the twin misses this load: mean" in line for line in warnings_of(found))
    assert found.config is not None
    assert found.config.fitted is not None
    assert found.config.fitted.rate_per_s == pytest.approx((3, 9), rel=0.3)

    twin = compare_with_twin([source("low", low), source("missed", missed)], SERVER, options)
    assert twin.config is not None
    claimed = replace(
        twin, config=replace(twin.config, fitted=replace(found.config.fitted, rate_per_s=(1, 12)))
    )
    assert "12" not in verdict_text(claimed, has_warnings=False).split("(")[0]


def test_a_fitted_range_ends_below_the_lowest_load_that_is_missed() -> None:
    slow = replace(SERVER, latency=Blackbox(**{**TRUTH, "beta0": 30_000.0}))
    runs = [
        source(str(rate), observed(workload(40, rate=rate, seed=rate), slow if rate == 6 else SERVER))
        for rate in (3, 6, 9)
    ]
    compared = compare_with_twin(runs, SERVER, Options(replicates=2)).traces
    assert [missed_load(each) is not None for each in compared] == [False, True, False]
    whole = FittedRange(rate_per_s=(2.0, 9.0), concurrency=(1.0, 40.0), prompt_tokens=(1.0, 9.0))
    kept = without_missed(whole, compared)
    (low,) = (range_of([each.source.trace], [None]) for each in compared[:1])
    assert low.rate_per_s is not None
    assert kept == replace(whole, rate_per_s=(2.0, low.rate_per_s[1]), concurrency=kept.concurrency)
    assert without_missed(whole, compared[:1]) == whole
    assert without_missed(whole, compared[1:]).rate_per_s is None


@pytest.mark.parametrize(("assumed", "is_proposed"), [(("max_num_batched_tokens",), True), ((), False)])
def test_a_default_that_the_log_denies_may_be_that_of_a_gpu_that_is_not_named(
    assumed: tuple[str, ...], is_proposed: bool
) -> None:
    log = Shown(
        name="max_num_batched_tokens",
        most=4096,
        is_limit=False,
        is_servers=True,
        how="its log has such a step",
    )
    run = replace(source("a", observed(workload(5, rate=1, seed=1))), shown=(log,))
    with pytest.raises(ConfigError, match="expected at least 4096, by a: its log has such a step") as refused:
        check_shown([run], replace(GUESS, assumed=assumed))
    assert ("name the GPU whose default it may be (--gpu)" in str(refused.value)) is is_proposed
