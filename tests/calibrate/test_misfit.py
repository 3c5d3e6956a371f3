"""What is a load to trust a twin at, and what only shows what a step takes: probes, users in step, short answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calibrate.calibration_run import calibrate, compare_with_twin
from calibrate.findings import Options
from calibrate.misfit import missed_load, moves_in_step
from calibrate.report.warnings import warnings_of
from calibrate.verdict_text import verdict_text
from replay.twin.fitted.fitted_range import range_of
from sim import Blackbox
from tests.calibrate.known_servers import GUESS, SERVER, TRUTH, observed, source, with_latency, workload
from traces import Trace
from traces.header import ClosedLoop

QUICK = Options(replicates=20, latency_model="blackbox")


def users(
    number: int,
    *,
    seed: int,
    is_probe: bool = False,
    prompt: float = 250,
    spread: float = 0.5,
    output: float = 40,
) -> Trace:
    """Return a closed loop's requests."""
    drawn = workload(60, rate=1, seed=seed, prompt=(prompt, spread), output=(output, spread))
    due = [0] * number + [None] * (60 - number)
    loop = ClosedLoop(concurrency=number, is_probe=is_probe or None)
    drawn = drawn.with_columns(arrival_time_us=due)
    return drawn.with_header(closed_loop=loop)


SLOW = replace(SERVER, latency=Blackbox(**{**TRUTH, "beta0": 30_000.0}))


def test_a_probe_neither_narrows_nor_widens_the_range_that_a_twin_is_trusted_in() -> None:
    low, high = (observed(workload(80, rate=rate, seed=rate), noise=0.02) for rate in (3, 9))
    probes = [
        source("singles", observed(users(1, seed=3, prompt=2000))),
        source("long", observed(users(20, seed=4, is_probe=True, output=400), SLOW)),
    ]
    loads = [source("low", low), source("high", high)]
    found = calibrate([*loads, *probes], GUESS, QUICK, holdout=[source("unseen", high)])
    assert found.config is not None
    assert found.config.fitted is not None
    assert replace(found.config.fitted, lasting=None) == range_of([low, high], [None, None], is_fitted=True)
    assert not [line for line in warnings_of(found) if "misses this load" in line or "extrapolated" in line]


def test_a_fit_of_probes_alone_trusts_itself_where_they_were() -> None:
    alone = observed(users(1, seed=3))
    found = calibrate([source("singles", alone)], GUESS, QUICK, holdout=[source("again", alone)])
    assert found.config is not None
    assert found.config.fitted == range_of([alone], [None], is_fitted=True)


def test_a_loop_of_users_is_a_load_like_any_other_unless_it_says_that_it_is_a_probe() -> None:
    for is_probe in (False, True):
        run = source("users", observed(users(8, seed=5, is_probe=is_probe), SLOW))
        (compared,) = compare_with_twin([run], SERVER, QUICK).traces
        assert (missed_load(compared) is not None) is not is_probe


def test_users_with_equal_lengths_move_in_step_and_their_ttft_is_not_judged() -> None:
    slow_to_start = with_latency(SERVER, alpha0=150_000.0)
    for spread, is_judged in ((0.0, False), (0.5, True)):
        trace = observed(users(8, seed=6, spread=spread), slow_to_start)
        assert moves_in_step(trace) is not is_judged
        (compared,) = compare_with_twin([source("users", trace)], SERVER, QUICK).traces
        missed = missed_load(compared)
        assert (missed is not None and missed.metric == "ttft_us") is is_judged


@pytest.mark.parametrize(("tokens", "is_judged"), [(6, False), (16, True)])
def test_tpot_of_answers_under_ten_tokens_is_not_judged(tokens: int, is_judged: bool) -> None:
    slow = with_latency(SERVER, beta0=20_000.0, alpha0=0.0)
    run = observed(workload(60, rate=1, seed=7, prompt=(3000, 0.1), output=(tokens, 0.0)), slow)
    (compared,) = compare_with_twin([source("short", run)], SERVER, QUICK).traces
    missed = missed_load(compared)
    assert (missed is not None and missed.metric == "tpot_us") is is_judged


def test_the_verdict_names_the_highest_rate_that_the_server_kept_up_with() -> None:
    low, high = (source(str(rate), observed(workload(80, rate=rate, seed=rate))) for rate in (3, 6))
    flood = source("flood", observed(workload(300, rate=60, seed=3)))
    found = calibrate([low, high, flood], GUESS, QUICK, holdout=[low])
    assert found.config is not None
    assert found.config.fitted is not None
    assert found.config.fitted.rate_per_s is not None
    served = range_of([high.trace], [None]).rate_per_s
    assert served is not None
    said = verdict_text(found, has_warnings=False).replace("\u00a0", " ")
    assert f"up to {served[1]:.3g} req/s" in said
