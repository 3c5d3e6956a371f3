"""What a reader must know before any number, and what is refused: runs given twice, guessed flags, misfits."""

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import vtwin
from calibrate.calibration_run import (
    SEEN_LENGTHS,
    UNSEEN,
    calibrate,
    compare_with_simulated,
    compare_with_twin,
    unseen_by_fit,
)
from calibrate.distinct_runs import distinct_names, has_lengths_of
from calibrate.findings import Calibration, Options
from calibrate.misfit import largest_misfit
from calibrate.number_format import NONE
from calibrate.report.markdown import headline_table
from calibrate.report.report_tables import is_of_gaps_only
from calibrate.report.warnings import BAD_LOSS, warnings_of
from calibrate.verdict_text import verdict_text
from replay import dump_config, load_config
from tests.calibrate.known_servers import GUESS, SERVER, observed, source, with_latency, workload
from traces import ClientInfo, write_trace

FLAGS = ("max_num_seqs", "max_num_batched_tokens")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two traces, a copy of one, and a configuration without the flags that vLLM takes by the GPU."""
    monkeypatch.chdir(tmp_path)
    low = observed(workload(60, rate=3, seed=1))
    for name in ("low", "copy"):
        write_trace(low, tmp_path / name)
    write_trace(low.with_columns(tenant_id=["x"] * 60), tmp_path / "relabelled")
    write_trace(observed(workload(60, rate=8, seed=2)), tmp_path / "high")
    text = dump_config(GUESS)
    for name in FLAGS:
        text = re.sub(rf"^  {name}: .*\n", "", text, flags=re.MULTILINE)
    (tmp_path / "guess.yaml").write_text(text)
    return tmp_path


def run(*arguments: str) -> int:
    return vtwin.main(["calibrate", *arguments, "--config", "guess.yaml", "--report", "r"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["low", "high", "--fit", "--holdout", "low"],
        ["low", "high", "--fit", "--holdout", "copy"],
        ["low", "high", "--fit", "--holdout", "relabelled.csv"],
        ["low", "low", "--fit"],
        ["high", "--holdout", "low", "--repeat", "copy"],
    ],
)
def test_a_run_given_twice_is_refused(
    here: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    said = capsys.readouterr().err
    assert "the same run as" in said
    assert said.count("\n") == 1
    assert not (here / "r").exists()


def test_assumed_flags_are_told_at_the_end_in_the_twin_and_in_every_report(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = ["--fit", "--latency-model", "blackbox"]
    assert run("low", *fit, "--holdout", "high", "--write-config", "twin.yaml") == 0
    shown = capsys.readouterr()
    told = "flags unknown: max_num_seqs (256 assumed), max_num_batched_tokens (2048 assumed)"
    *_, report = [line for line in shown.err.splitlines() if line]
    warnings = [line for line in shown.err.splitlines() if line.startswith("warning: ")]
    assert warnings[0].startswith(f"warning: {told}")
    assert report == "report: r/report.html"
    assert shown.out.splitlines()[-2].startswith("held-out E2E error: ")
    assert "blackbox: alpha0 " in shown.out.splitlines()[-1]
    for name in ("r/report.md", "r/report.html", "twin.yaml"):
        assert told in (here / name).read_text(), name
    assert json.loads((here / "r" / "report.json").read_text())["cautions"][0].startswith(told)
    assert load_config(here / "twin.yaml").assumed == FLAGS
    assert load_config(here / "twin.yaml").engine == load_config(here / "guess.yaml").engine


@cache
def fitted(*, limited: bool = False) -> Calibration:
    trace = observed(workload(60, rate=6, seed=1), noise=0.05)
    if limited:
        client = ClientInfo(limited=True, reason="late")
        trace = trace.with_header(client=client)
    return calibrate([source("low", trace)], GUESS, Options(replicates=60))


def test_a_client_that_was_the_limit_is_named_with_its_trace() -> None:
    assert warnings_of(fitted()) == ()
    (line,) = warnings_of(fitted(limited=True))
    assert line.startswith("client-limited: the client that sent low did not keep up (late)")


def test_a_poor_fit_is_called_one() -> None:
    found = fitted()
    assert found.fit is not None
    assert found.fit.loss < BAD_LOSS
    (line,) = warnings_of(replace(found, fit=replace(found.fit, loss=2.84)))
    assert line.startswith("poor fit: the twin misses by 2.8x the typical error of a request")
    assert re.search(
        r"The largest error is (TTFT|E2E|TPOT) of low, requests with "
        r"(the (short|long|most|few)|a medium|(prompts|answers) of medium)",
        line,
    )


def test_the_largest_misfit_names_the_trace_the_metric_and_the_kind_of_request() -> None:
    server = with_latency(SERVER, beta1=600.0)
    slow, plain = (
        observed(workload(90, rate=2, seed=seed), which) for seed, which in ((1, server), (2, SERVER))
    )
    found = compare_with_twin([source("quick", plain), source("slow", slow)], SERVER, Options(replicates=60))
    assert largest_misfit(found) is None
    fit = fitted().fit
    worst = largest_misfit(replace(found, fit=fit))
    assert worst is not None
    assert (worst.trace, worst.metric, worst.kind) == ("slow", "ttft_us", "the longest prompts")
    assert worst.bias < -0.5


def test_traces_named_alike_are_told_by_the_folders_that_differ() -> None:
    paths = [Path("x/a/run/trace.csv"), Path("x/b/run/trace"), Path("x/b/run/other.yaml")]
    assert distinct_names(paths) == ["a/trace", "b/trace", "other"]
    assert distinct_names([Path("trace"), Path("deep/trace")])[1].endswith("deep/trace")


def test_errors_of_itl_per_request_are_left_to_tpot_whose_they_are() -> None:
    drawn = workload(40, rate=6, seed=2)
    found = compare_with_simulated(
        source("a", observed(drawn)), source("b", observed(drawn, GUESS)), Options(replicates=60)
    )
    assert is_of_gaps_only(found.holdout, "itl_us")
    assert not is_of_gaps_only(found.holdout, "tpot_us")
    rows = {line.split(" | ")[0]: line.split(" | ") for line in headline_table(found.holdout).splitlines()}
    assert "bias per request" in rows["| metric"]
    assert rows["| ITL"][2:4] == [NONE, NONE]
    assert "%" in rows["| ITL"][4]
    assert "%" in rows["| TPOT"][2]


def test_failed_requests_are_a_warning() -> None:
    trace = observed(workload(60, rate=3, seed=1))
    failing = trace.with_columns(status=["error"] * 5 + ["ok"] * 55)
    told = warnings_of(compare_with_twin([source("low", failing)], SERVER, Options()))
    assert any(line.startswith("failures: 5 of the 60 requests of low failed") for line in told)
    assert not any(
        "failures" in line
        for line in warnings_of(compare_with_twin([source("low", trace)], SERVER, Options()))
    )


def test_a_hold_out_with_the_lengths_of_a_fitted_trace_is_told() -> None:
    found = fitted()
    (own,) = found.traces
    again = source("again", observed(workload(60, rate=3, seed=9), noise=0.05))
    others = source("others", observed(workload(60, rate=3, seed=10)))
    seen = replace(own, role="fitted", source=source("seen", observed(workload(60, rate=5, seed=9))))
    held_out = [replace(own, role="held out", source=each) for each in (again, others)]
    told = [line for line in warnings_of(replace(found, traces=(seen, *held_out))) if "hold-out" in line]
    assert len(told) == 1
    assert told[0].startswith("hold-out: again has the same lengths as seen, which was fitted")
    assert unseen_by_fit([others], [seen.source]) == UNSEEN
    assert unseen_by_fit([others, again], [seen.source]) == SEEN_LENGTHS
    for traces, is_told in (((seen, *held_out), True), ((seen, held_out[1]), False)):
        verdict = verdict_text(replace(found, traces=traces), has_warnings=False)
        assert ("held out, on lengths that were fitted;" in verdict) is is_told, verdict
    n = len(seen.source.trace)
    constant = seen.source.trace.with_columns(
        server_input_tokens=[50] * n, input_tokens=[50] * n, max_tokens=[9] * n
    )
    assert not has_lengths_of(constant, constant)
    assert has_lengths_of(seen.source.trace, seen.source.trace)
