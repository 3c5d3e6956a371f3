import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer

import vtwin
from calibrate.calibration_run import calibrate, compare_with_twin
from calibrate.command import summarise
from calibrate.findings import Calibration, Options
from calibrate.fit.uncertainty import TOGETHER, UNSEEN, why_unseen
from calibrate.report.suggested_runs import (
    ADDRESS,
    RUN_FOR,
    RUN_TO_SEPARATE,
    command_of,
    run_for,
    suggested_runs,
)
from tests.calibrate.known_servers import GUESS, observed, source, workload

RUNS = {run.name: run for run in (*RUN_FOR.values(), *RUN_TO_SEPARATE.values())}


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    """A fit to requests that never meet each other: what decoding together costs cannot be seen."""
    lonely = observed(workload(40, rate=0.02, seed=1, prompt=(200, 0.0), output=(8, 0.0)), noise=0.05)
    server = lonely.header.server.learn("given", url="http://there:8000", model="tiny", max_model_len=1024)
    return calibrate([source("lonely", lonely.with_header(server=server))], GUESS, Options(replicates=60))


def test_every_coefficient_that_may_be_silent_has_a_run(calibration: Calibration) -> None:
    assert set(UNSEEN) <= set(RUN_FOR)
    found = suggested_runs(calibration)
    assert calibration.fit is not None
    silent = {each.name for each in calibration.fit.coefficients if each.fitted and not each.identifiable}
    assert silent
    assert {name for reveal in found for name in reveal.coefficients} == silent
    assert len({reveal.command for reveal in found}) == len(found)


def test_what_is_confounded_is_told_apart_by_another_run_than_what_is_silent() -> None:
    assert run_for("alpha0", partner=None).name == "alone"
    assert run_for("alpha0", partner="beta0").name == "long-answers"
    assert run_for("kappa", partner="beta1").rate_share == 1.5


@pytest.mark.parametrize("name", RUNS)
def test_every_command_is_one_that_observe_understands(name: str, calibration: Calibration) -> None:
    words = shlex.split(command_of(RUNS[name], traces=calibration.traces))
    assert words[:4] == ["vtwin", "observe", "--url", "http://there:8000"]
    assert words[-2:] == ["--output", name]
    command = typer.main.get_command(vtwin.build_app(["observe"])).commands["observe"]  # type: ignore[attr-defined]
    context = command.make_context("observe", words[2:])
    assert context.params["model"] == "tiny"
    longest = context.params["prompt_tokens_max"] + context.params["output_tokens_max"]
    assert longest <= 1024
    assert context.params["prompt_tokens"] <= context.params["prompt_tokens_max"]


def test_where_no_trace_names_its_server_the_address_is_left_to_fill_in(calibration: Calibration) -> None:
    each = calibration.traces[0]
    server = replace(each.source.trace.header.server, url=None, model=None, max_model_len=None)
    nameless = replace(each, source=source("a", each.source.trace.with_header(server=server)))
    command = command_of(RUNS["busy"], traces=[nameless])
    assert ADDRESS in command
    rate = float(shlex.split(command)[shlex.split(command).index("--rate") + 1])
    arrival = np.sort(each.pairs.requests["arrival_us"].to_numpy())
    assert rate == pytest.approx(1.5 * (len(arrival) - 1) / np.ptp(arrival) * 1e6, rel=0.01)


def test_coefficients_that_stand_in_for_each_other_are_not_blamed_on_the_lengths() -> None:
    first_token = {"alpha0", "alpha1", "beta1"}
    told = [reason for pair, reason in TOGETHER.items() if pair <= first_token]
    assert len(told) == 3
    assert [reason for reason in [*told, UNSEEN["beta1"]] if "too alike" in reason] == []
    correlation = np.array([[1.0, -0.97], [-0.97, 1.0]])
    assert why_unseen(("alpha1", "beta1"), 0, correlation=correlation) == (
        "alpha1 and beta1 both delay a request's own first token per prompt token; only prefills that delay other "
        "requests, too rare here, show beta1 alone (correlation with beta1 -0.97)"
    )


def test_a_load_sent_at_once_suggests_no_rate() -> None:
    burst, calm = (
        compare_with_twin(
            [source("a", observed(workload(60, rate=rate, seed=1)))], GUESS, Options(replicates=60)
        )
        for rate in (2000, 4)
    )
    words = shlex.split(command_of(RUNS["busy"], traces=burst.traces))
    assert float(words[words.index("--rate") + 1]) == 1.5
    words = shlex.split(command_of(RUNS["busy"], traces=[*burst.traces, *calm.traces]))
    assert float(words[words.index("--rate") + 1]) == pytest.approx(6, rel=0.3)


@pytest.mark.parametrize("is_good", [True, False])
def test_runs_are_suggested_where_the_errors_are_not_small_and_named_as_not_needed_where_they_are(
    calibration: Calibration,
    is_good: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("calibrate.verdict_text.has_small_errors", lambda _: is_good)
    summarise(calibration, Path("report"), is_stdout_free=True)
    out, err = capsys.readouterr()
    assert len([*out.splitlines(), *err.splitlines()]) <= 40
    told = " ".join(err.split())
    assert ("Not needed for loads and lengths like the fitted ones" in told) == is_good
    assert ("vtwin observe" in told) != is_good
