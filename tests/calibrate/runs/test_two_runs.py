"""``vtwin compare``: two runs, neither the truth."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t

import vtwin
from calibrate.runs.text import CHANCE, table
from calibrate.runs.two_runs import compare_runs
from tests.twins import SIXTEEN_SEATS
from traces import ClientInfo, RunSpread, Trace, make_trace, read_trace

LENGTHS = (
    "--prompt-tokens",
    "100",
    "--prompt-tokens-stdev",
    "40",
    "--output-tokens",
    "40",
    "--config",
    "twin.yaml",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twin.yaml").write_text(SIXTEEN_SEATS)
    return tmp_path


def ran(name: str, *options: str) -> Trace:
    given = (
        ("--num-requests", "300", "--rate", "20") if "--rate" not in options else ("--num-requests", "300")
    )
    assert vtwin.main(["run", *LENGTHS, *given, *options, "--output", name]) == 0
    return read_trace(name)


@pytest.mark.usefixtures("folder")
def test_a_run_does_not_differ_from_itself() -> None:
    trace = ran("a")
    found = compare_runs(("a", "b"), (trace, trace))
    assert found.is_paired
    assert found.notes == ()
    known = [
        each.change for each in found.differences if each.change.value is not None
    ]  # None: of a time that is 0
    assert {each.value for each in known} == {0.0}
    assert all(each.low == each.high == 0 for each in known)
    assert len(known) >= 12


@pytest.mark.usefixtures("folder")
def test_a_noise_floor_of_the_header_is_in_the_interval() -> None:
    """The log of a ratio scatters by the root of 2 times the spread, by Student's t of four degrees of freedom."""
    floor = RunSpread(num_runs=5, spread={"e2e_us.mean": 0.02})
    trace = ran("a")
    noisy = trace.with_header(noise_floor=floor)
    found = compare_runs(("a", "b"), (noisy, noisy))
    assert found.noise_floors == (floor,)
    changes = {(each.metric, each.statistic): each.change for each in found.differences}
    half = float(np.log1p(changes["e2e_us", "mean"].high or 0))
    assert half == pytest.approx(t.ppf(0.95, 4) * np.sqrt(2) * 0.02, rel=0.1)
    assert changes["e2e_us", "p99"].high == 0  # no floor of it
    assert "intervals: by how much 5 repeated runs differed" in table(found)
    other = ran("c", "--seed", "9").with_header(noise_floor=floor)
    apart = {
        (each.metric, each.statistic): each.change
        for each in compare_runs(("a", "c"), (noisy, other)).differences
    }
    bare = {
        (each.metric, each.statistic): each.change
        for each in compare_runs(("a", "c"), (trace, ran("d", "--seed", "9"))).differences
    }
    one, two = apart["e2e_us", "mean"], bare["e2e_us", "mean"]
    assert one.value == two.value
    assert (one.high or 0) - (one.low or 0) > (two.high or 0) - (two.low or 0)


@pytest.mark.usefixtures("folder")
def test_latencies_a_tenth_longer_are_found_as_such_and_the_interval_knows_that_they_are_paired() -> None:
    trace = ran("a")
    send = trace.column("send_time_us")
    names = ("first_chunk_time_us", "content_first_time_us", "last_chunk_time_us", "last_token_time_us")
    longer = trace.with_columns(
        **{name: (send + ((trace.column(name) - send) * 1.1).round()).astype("Int64") for name in names}
    )
    found = compare_runs(("a", "b"), (trace, longer))
    e2e = next(each for each in found.differences if (each.metric, each.statistic) == ("e2e_us", "mean"))
    assert e2e.change.value == pytest.approx(0.1, abs=1e-5)
    assert e2e.change.low == pytest.approx(0.1, abs=1e-4)
    assert e2e.change.high == pytest.approx(0.1, abs=1e-4)


@pytest.mark.usefixtures("folder")
def test_two_draws_of_one_load_differ_by_chance_only() -> None:
    """Of 12 differences of means between seeds, 90 % intervals hold 0 in most."""
    runs = [ran(f"s{seed}", "--seed", str(seed)) for seed in range(7)]
    held = 0
    for a, b in itertools.pairwise(runs):
        found = compare_runs(("a", "b"), (a, b))
        assert not found.is_paired
        for each in found.differences:
            if each.statistic == "mean" and each.metric in ("e2e_us", "tpot_us"):
                assert each.change.low is not None
                assert each.change.high is not None
                held += each.change.low <= 0 <= each.change.high
    assert held >= 8


@pytest.mark.usefixtures("folder")
def test_rows_in_another_order_are_still_the_same_requests() -> None:
    trace = ran("a")
    shuffled = trace.requests.sample(frac=1, random_state=np.random.RandomState(1)).reset_index(drop=True)
    found = compare_runs(("a", "b"), (trace, make_trace(trace.header, shuffled)))
    assert found.is_paired
    assert {each.change.value for each in found.differences} - {None} == {0.0}  # None: of a time that is 0


@pytest.mark.usefixtures("folder")
def test_loads_that_differ_are_told_and_what_is_served_is_no_capacity() -> None:
    found = compare_runs(("quiet", "busy"), (ran("a", "--rate", "5"), ran("b", "--rate", "80")))
    assert any(note.startswith("offered rates differ") for note in found.notes)
    assert any(note.startswith("overloaded: busy") for note in found.notes)
    shown = table(found)
    assert "served, requests/s" in shown
    assert "capacity" not in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.usefixtures("folder")
def test_where_intervals_do_not_fit_they_are_left_out_and_said_to_be() -> None:
    found = compare_runs(("a-name-of-some-length", "b"), (ran("a", "--rate", "5"), ran("b", "--rate", "80")))
    whole, narrow = table(found), table(found, width=60)
    assert max(map(len, narrow.splitlines())) <= 60
    assert narrow.splitlines()[-1] == "not shown, for want of width: the 90% intervals"
    assert [line.split()[:2] for line in narrow.splitlines()[:-1]] == [
        line.split()[:2] for line in whole.splitlines()
    ]
    assert " to " in whole and " to " not in narrow


@pytest.mark.usefixtures("folder")
def test_the_sign_of_chance_is_explained_where_it_stands_and_only_there() -> None:
    same, other = (
        compare_runs(("a", "b"), (ran("a"), ran("b", "--seed", "8"))),
        compare_runs(("a", "b"), (ran("a"), ran("b", "--set", "latency.coefficients.beta0=9000"))),
    )
    assert CHANCE in table(same)
    assert "~" not in table(other)


@pytest.mark.usefixtures("folder")
def test_a_run_that_did_not_come_to_its_end_is_told_to_be_one() -> None:
    whole, cut = ran("a"), ran("b")
    client = ClientInfo(interrupted=True, finished=False, num_planned=400)
    cut = cut.with_header(mode="real", client=client)
    note = f"b: the run was interrupted: the trace has the {len(cut):,} requests of 400 planned that were sent by then"
    assert note in compare_runs(("a", "b"), (whole, cut)).notes
    assert not any("interrupted" in each for each in compare_runs(("a", "b"), (whole, whole)).notes)


@pytest.mark.usefixtures("folder")
def test_what_two_overloaded_servers_serve_is_their_capacity() -> None:
    slow = ran("b", "--rate", "80", "--set", "latency.coefficients.beta0=9000")
    found = compare_runs(("a", "b"), (ran("a", "--rate", "80"), slow))
    assert found.both_saturated
    assert "capacity, requests/s" in table(found)


@pytest.mark.usefixtures("folder")
def test_the_command_speaks_of_a_and_b_and_of_nothing_observed(capsys: pytest.CaptureFixture[str]) -> None:
    ran("a")
    ran("b", "--set", "engine.max_num_seqs=4")
    capsys.readouterr()
    assert vtwin.main(["compare", "a", "b"]) == 0
    said = "".join(capsys.readouterr())
    for word in ("observed", "held out", "held-out", "error"):
        assert word not in said
    assert "B against A" in said
    assert vtwin.main(["compare", "a", "b", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["a"]["name"], told["b"]["name"], told["is_paired"]) == ("a", "b", True)


@pytest.mark.usefixtures("folder")
def test_a_workload_that_was_not_run_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    ran("a")
    assert vtwin.main(["trace", "synth", "--rate", "3", "--output", "w"]) == 0
    assert vtwin.main(["compare", "a", "w"]) == 3
    assert "not run" in capsys.readouterr().err
