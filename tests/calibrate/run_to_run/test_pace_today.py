"""A server that has become slower or faster than its good twin is told from a twin that is bad: a table of truth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from calibrate.calibration_run import calibrate, compare_with_twin
from calibrate.findings import Calibration, Options
from calibrate.report.document import document_of
from calibrate.verdict_text import verdict_text
from calibrate.written.save import write_config
from replay import TwinConfig, load_config
from replay.simulation.pace_band import paced
from replay.twin.fitted import HeldOut
from tests.calibrate.known_servers import GUESS, SERVER, observed, source, with_latency, workload
from traces import ConfigError

QUICK = Options(replicates=20, latency_model="blackbox")
GOOD = replace(SERVER, held_out=HeldOut(date="2026-11-22", ttft=0.06, tpot=0.02, e2e=0.03))
STEADY = "The twin predicts this server within"


def today(server: TwinConfig, twin: TwinConfig = GOOD) -> Calibration:
    """Return two loads of today's server, the second a busy one, against the twin."""
    runs = [
        source(name, observed(workload(150, rate=rate, seed=seed), server, noise=0.02))
        for name, rate, seed in (("calm", 3, 1), ("busy", 11, 2))
    ]
    return compare_with_twin(runs, twin, QUICK)


def said(found: Calibration) -> str:
    return verdict_text(found, has_warnings=False).replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("factor", "words"),
    [(1.15, "slower"), (1.4, "slower"), (0.9, "faster"), (0.75, "faster")],
)
def test_a_server_at_another_pace_is_told_with_the_pace_and_either_side_may_have_changed(
    factor: float, words: str
) -> None:
    found = today(paced(SERVER, factor))
    assert found.pace_today is not None
    assert found.pace_today.factor == pytest.approx(factor, abs=0.015)
    line = said(found)
    assert line.startswith(f"The server is {100 * abs(found.pace_today.factor - 1):.0f}")
    assert f"{words} than the twin of 2026-11-22: " in line
    assert "Either side may have changed" in line
    assert "Do not trust" not in line
    assert document_of(found, command="x")["verdict_text"] == verdict_text(found, has_warnings=False)


@pytest.mark.parametrize(
    ("server", "twin"),
    [
        (SERVER, GOOD),
        (paced(SERVER, 1.01), GOOD),
        (with_latency(SERVER, beta0=6_000.0, beta2=2_000.0), GOOD),
        (with_latency(SERVER, beta1=240.0, beta0=9_000.0), GOOD),
        (paced(SERVER, 1.15), SERVER),
        (paced(SERVER, 1.15), replace(SERVER, held_out=HeldOut(date="2026-11-22", e2e=0.4))),
    ],
    ids=["as before", "1 %", "batches cost more", "prompts cost more", "no record", "it was bad then, too"],
)
def test_a_server_as_before_and_a_bad_twin_are_not_told_as_another_pace(
    server: TwinConfig, twin: TwinConfig
) -> None:
    found = today(server, twin)
    assert found.pace_today is None
    assert said(found).startswith(STEADY)


def test_a_fit_writes_how_good_it_was_and_reads_it_again(tmp_path: Path) -> None:
    low, high, unseen = (
        source(str(rate), observed(workload(80, rate=rate, seed=rate), noise=0.02)) for rate in (3, 9, 6)
    )
    found = calibrate([low, high], GUESS, QUICK, holdout=[unseen])
    write_config(found, tmp_path / "twin.yaml")
    held_out = load_config(tmp_path / "twin.yaml").held_out
    assert held_out is not None
    assert held_out.date is not None
    assert held_out.e2e == pytest.approx(found.holdout["e2e_us"].mape.value, rel=1e-3)
    slower = observed(workload(80, rate=6, seed=6), paced(SERVER, 1.15), noise=0.02)
    again = compare_with_twin([source("today", slower)], load_config(tmp_path / "twin.yaml"), QUICK)
    assert f"slower than the twin of {held_out.date}" in said(again)
    errors = held_out_of_overload(found, tmp_path)
    assert errors.e2e_mean == pytest.approx(0.5, abs=0.2)
    assert held_out.e2e_mean is not None
    assert held_out.e2e_mean < 0.2


def held_out_of_overload(found: Calibration, folder: Path) -> HeldOut:
    """Return what is written where the held-out run overloaded the server, and the twin's E2E is half as long again."""
    *fitted, unseen = found.traces
    pairs = found.held_out.pairs
    pairs = replace(pairs, simulated=pairs.simulated.assign(e2e_us=pairs.simulated["e2e_us"] * 1.5))
    over = replace(unseen, pairs=pairs, saturation=replace(unseen.saturation, state="saturated"))
    accuracy = replace(found.held_out, pairs=pairs, of_saturated=True)
    write_config(replace(found, traces=(*fitted, over), held_out=accuracy), folder / "over.yaml")
    written = load_config(folder / "over.yaml").held_out
    assert written is not None
    return written


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("date: yesterday", "a day"),
        ("e2e: -0.1", "fraction"),
        ("e2 : 0.1", "e2e"),
        ("ttft: x", "fraction"),
        ("far: [itl]", "a list of ttft"),
    ],
)
def test_a_record_that_is_none_is_one_line(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "twin.yaml").write_text(
        "engine: {max_num_seqs: 4}\nlatency:\n  model: blackbox\n  coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, "
        f"beta0: 1, beta1: 1, beta2: 1}}\n  held_out: {{{text}}}\n"
    )
    with pytest.raises(ConfigError, match=expected):
        load_config(tmp_path / "twin.yaml")


@pytest.mark.parametrize(
    ("repeats", "doubt"),
    [(True, "do not trust this twin's p99 of TTFT: "), (False, "do not trust this twin's TTFT: ")],
)
def test_a_twin_is_doubted_where_its_verdict_doubts_it_and_a_noisy_server_excuses_it(
    tmp_path: Path, repeats: bool, doubt: str
) -> None:
    """The server's own TTFT differs by more than a tenth, which a repeat shows: no twin can be closer, this one is."""
    runs = [
        source(name, observed(workload(80, rate=6, seed=seed), noise=noise, seed=10 * seed + again))
        for name, seed, again, noise in (("one", 1, 0, 0.14), ("two", 2, 0, 0.14), ("again", 2, 1, 0.2))
    ]
    found = calibrate(runs[:2], GUESS, QUICK, repeats=runs[2:] if repeats else ())
    assert found.holdout["ttft_us"].mape.value > 0.1
    assert found.holdout["e2e_us"].mape.value < 0.1
    assert ("not its TTFT" in said(found)) is not repeats
    write_config(found, tmp_path / "twin.yaml")
    kept = load_config(tmp_path / "twin.yaml").held_out
    assert kept is not None
    assert kept.far == (() if repeats else ("ttft",))
    assert kept.doubt.startswith(doubt)
