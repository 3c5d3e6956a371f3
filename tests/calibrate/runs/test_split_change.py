"""``vtwin compare --twin``: whether the load changed or the server, on servers whose truth is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import vtwin
from calibrate.findings import Options
from calibrate.run_to_run.run_errors import own_errors
from calibrate.runs.split_change import SplitChange, SplitPart, split_runs
from calibrate.runs.split_change_text import split_json, split_lines, verdict_of
from calibrate.simulated_side import against_twin
from replay import TwinConfig, dump_config
from replay.simulation.pace_band import paced
from replay.twin.fitted import HeldOut
from tests.calibrate.known_servers import SERVER, observed, source, with_latency, workload
from traces import ClientInfo, Trace, write_trace
from traces.statistics.bootstrap import Estimate

BIASED = with_latency(SERVER, beta0=13_000.0)
"""A twin that is off by a few per cent in every run alike."""


def run(server: TwinConfig = SERVER, *, rate: float = 3.0, seed: int = 1, prompt: float = 250.0) -> Trace:
    return observed(
        workload(300, rate=rate, seed=seed, prompt=(prompt, 0.5)),
        server,
        noise=0.02,
        seed=100 * seed + int(rate),
    )


def of(split: SplitChange, metric: str, statistic: str) -> SplitPart:
    return next(each for each in split.parts if (each.metric, each.statistic) == (metric, statistic))


@pytest.mark.parametrize("twin", [SERVER, BIASED], ids=["a true twin", "a biased twin"])
@pytest.mark.parametrize(
    ("after", "verdict", "server"),
    [
        (run(seed=2), "neither", 0.0),
        (run(rate=7.0), "load", 0.0),
        (run(rate=7.0, seed=2), "load", 0.0),
        (run(prompt=1500.0), "load", 0.0),
        (run(paced(SERVER, 1.15)), "server", 0.2),
        (run(paced(SERVER, 0.9)), "server", -0.13),
        (run(paced(SERVER, 1.15), rate=7.0), "load and server", 0.25),
    ],
    ids=["as before", "more load", "more load, others", "longer", "slower", "faster", "both"],
)
def test_load_and_server_are_told_apart(after: Trace, verdict: str, server: float, twin: TwinConfig) -> None:
    split = split_runs(("a", "b"), (run(), after), twin, twin="twin.yaml")
    part = of(split, "e2e_us", "mean")
    told = verdict_of(split)
    if verdict == "neither":
        assert not part.is_servers
    else:
        assert told == verdict, split_lines(split)
    assert part.server.value == pytest.approx(server, abs=0.06)
    for each in split.parts:
        change, load, rest = each.change.value, each.load.value, each.server.value
        assert change is not None and load is not None and rest is not None
        assert 1 + change == pytest.approx((1 + load) * (1 + rest))


def test_a_part_below_the_twins_own_error_is_marked_and_so_is_a_load_that_may_be_chance() -> None:
    known = replace(SERVER, held_out=HeldOut(ttft=0.5, tpot=0.5, e2e=0.5))
    runs = (run(), run(paced(SERVER, 1.15), seed=2))
    plain, with_error = (split_runs(("a", "b"), runs, twin, twin="t") for twin in (SERVER, known))
    assert of(plain, "e2e_us", "mean").is_servers
    assert not any(each.is_servers for each in with_error.parts)
    lines = split_lines(with_error)
    assert "TTFT mean 50.0\u00a0%, p99 50.0\u00a0%; TPOT" in lines[-1]
    rows = [line for line in lines if line.startswith(("TTFT", "TPOT", "E2E"))]
    assert all(row.endswith("~") for row in rows)
    for row, part in zip(rows, with_error.parts, strict=True):
        assert row.count("~") == 1 + (not part.is_loads)


def test_a_p99_has_an_error_of_its_own() -> None:
    known = HeldOut(ttft=0.5, tpot=0.5, e2e=0.5, e2e_mean=0.03, e2e_p99=0.4)
    split = split_runs(
        ("a", "b"), (run(), run(paced(SERVER, 1.15), seed=2)), replace(SERVER, held_out=known), twin="t"
    )
    assert of(split, "e2e_us", "mean").is_servers
    assert not of(split, "e2e_us", "p99").is_servers
    assert {of(split, "ttft_us", name).own_error for name in ("mean", "p99")} == {0.5}


@pytest.mark.parametrize("client", [ClientInfo(late=True, limited=False), ClientInfo(limited=True)])
def test_nothing_is_told_of_ttft_where_the_client_was_late_or_limited(client: ClientInfo) -> None:
    after = run(paced(SERVER, 1.3))
    late = replace(after, header=replace(after.header, client=client))
    plain, told = (split_runs(("a", "b"), (run(), each), SERVER, twin="t") for each in (after, late))
    assert of(plain, "ttft_us", "mean").is_servers
    for statistic in ("mean", "p99"):
        assert not of(told, "ttft_us", statistic).is_servers
        assert not of(told, "ttft_us", statistic).is_loads
    assert of(told, "e2e_us", "mean").is_servers
    assert split_lines(told)[-1] == "TTFT: no part is told, the client was late or limited in b"
    assert split_json(told)["client_late"] == ["b"]


def test_a_fits_runs_say_how_far_a_change_may_be_the_twins_own_error() -> None:
    runs = [
        against_twin(source("x", run(rate=rate)), BIASED, Options(), role="fitted").pairs
        for rate in (2.0, 7.0)
    ]
    errors = own_errors(runs)
    assert set(errors) == {f"{name}_{of}" for name in ("ttft", "tpot", "e2e") for of in ("mean", "p99")}
    means = [each.simulated["e2e_us"].mean() / each.observed["e2e_us"].mean() - 1 for each in runs]
    expected = max(*map(abs, means), 1.96 * abs(means[0] - means[1]))
    assert errors["e2e_mean"] == pytest.approx(expected, rel=1e-3)
    assert own_errors([runs[0]])["e2e_mean"] == pytest.approx(abs(means[0]), rel=1e-3)


def test_the_headline_names_what_the_server_changed_besides_the_mean() -> None:
    part = of(split_runs(("a", "b"), (run(), run(rate=7.0)), SERVER, twin="t"), "e2e_us", "mean")
    shown = Estimate(value=0.3, low=0.2, high=0.4)
    split = SplitChange(twin="t", parts=(replace(part, metric="ttft_us", server=shown), part))
    assert split_lines(split)[0].endswith("; the server changed TTFT mean")


def test_a_few_requests_have_no_verdict_and_the_same_run_has_no_change() -> None:
    few = observed(workload(3, rate=1, seed=1))
    short = split_runs(("a", "b"), (few, few), SERVER, twin="t")
    assert verdict_of(short) is None
    assert split_lines(short)[0].startswith("load or server: not known")
    same = split_runs(("a", "b"), (run(), run()), BIASED, twin="t")
    assert verdict_of(same) == "neither"
    assert {each.change.value for each in same.parts} == {0.0}


def test_compare_prints_the_split_and_gives_it_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, trace in (("before", run()), ("after", run(paced(SERVER, 1.15)))):
        write_trace(trace, tmp_path / name)
    Path("twin.yaml").write_text(dump_config(SERVER))
    assert vtwin.main(["compare", "before", "after", "--twin", "twin.yaml"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("load or server: the server changed the mean E2E, the load did not (mean E2E +")
    assert max(map(len, out.splitlines()[1:8])) <= 90
    assert vtwin.main(["compare", "before", "after", "--twin", "twin.yaml", "--json"]) == 0
    split = json.loads(capsys.readouterr().out)["split"]
    assert (split["twin"], split["verdict"]) == ("twin.yaml", "server")
    assert {(each["metric"], each["statistic"]) for each in split["parts"]} == {
        (metric, statistic) for metric in ("ttft_us", "tpot_us", "e2e_us") for statistic in ("mean", "p99")
    }
    assert vtwin.main(["compare", "before", "after", "--twin", "none.yaml"]) == 2
    assert vtwin.main(["compare", "before", "after"]) == 0
    assert "load or server" not in capsys.readouterr().out
