"""A limit on prompt and answer together cuts what is longer, and says how much was cut."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import vtwin
from tests.twins import EIGHT_SEATS_ALONE
from traces import ConfigError, Trace, prompt_tokens, read_trace
from traces.workload import WorkloadOptions, limit_note, recorded_load, trace_from_options

MOST = 700
LOADS = {
    "drawn": {"rate": 5.0, "num_requests": 200, "prefix_tokens": 90},
    "waves": {"batch": 20, "waves": 2},
    "users": {"concurrency": 4, "num_requests": 50},
    "preset": {"preset": "chatbot", "rate": 5.0},
}


def totals(trace: Trace) -> np.ndarray:
    """Return prompt and answer together."""
    return prompt_tokens(trace) + trace.cells("output_tokens").values


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_a_longer_request_has_its_prompt_cut(load: dict[str, object]) -> None:
    whole = trace_from_options(WorkloadOptions(**load))  # type: ignore[arg-type]
    cut = trace_from_options(WorkloadOptions(**load, total_tokens_max=MOST))  # type: ignore[arg-type]
    too_long = totals(whole) > MOST
    assert too_long.any()
    assert (totals(cut)[too_long] == MOST).all()
    assert (totals(cut)[~too_long] == totals(whole)[~too_long]).all()
    kept = np.minimum(whole.cells("output_tokens").values, MOST - 1)
    assert (cut.cells("output_tokens").values == kept).all()
    assert (prompt_tokens(cut) >= 1).all()
    assert cut.column("arrival_time_us").equals(whole.column("arrival_time_us"))
    said = f"{too_long.sum()} of {len(whole)} requests cut to {MOST} tokens, prompt and answer together"
    assert limit_note(cut) == f"{said} (--total-tokens-max)"
    assert limit_note(whole) is None


def test_an_answer_that_fills_the_limit_leaves_a_token_of_the_prompt() -> None:
    options = WorkloadOptions(
        rate=1.0, num_requests=3, prompt_tokens=50, output_tokens=500, total_tokens_max=100
    )
    cut = trace_from_options(options)
    assert set(cut.cells("output_tokens").values) == {99}
    assert set(prompt_tokens(cut)) == {1}


def test_a_session_that_grows_ends_before_the_limit() -> None:
    load = {"rate": 1.0, "num_requests": 40, "rounds": 4, "prompt_tokens": 100, "output_tokens": 50}
    cut = trace_from_options(WorkloadOptions(**load, total_tokens_max=450))  # type: ignore[arg-type]
    assert set(cut.cells("round_index").values) == {0, 1, 2}  # 150, 300 and 450 tokens; the fourth has 600
    assert len(cut) == 30
    note = limit_note(cut)
    assert note is not None
    assert "0 of 40 requests cut" in note
    assert "10 left out" in note
    alone = trace_from_options(
        WorkloadOptions(**load, context_growth="none", total_tokens_max=120)  # type: ignore[arg-type]
    )
    assert len(alone) == 40
    assert set(totals(alone)) == {120}
    with pytest.raises(ConfigError, match="no session's first request fits"):
        trace_from_options(WorkloadOptions(**load, total_tokens_max=120))  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [None, 5.0])
def test_recorded_requests_are_cut_alike(rate: float | None, tmp_path: Path) -> None:
    stem = tmp_path / "t"
    assert vtwin.main(["trace", "synth", "--rate", "5", "--num-requests", "60", "--output", str(stem)]) == 0
    named = {"trace": stem} if rate is None else {"like": stem, "rate": rate}
    options = WorkloadOptions(**named, total_tokens_max=MOST)  # type: ignore[arg-type]
    for cut in [trace_from_options(options), *([recorded_load(options)] if rate is None else [])]:
        assert totals(cut).max() == MOST
        assert "requests cut to 700 tokens" in str(limit_note(cut))


def test_a_specification_says_it_too(tmp_path: Path) -> None:
    spec = tmp_path / "load.yaml"
    client = (
        "{id: c, rate_fraction: 1, arrival: {process: poisson}, "
        "input_distribution: {type: constant, params: {value: 900}}, "
        "output_distribution: {type: constant, params: {value: 40}}}"
    )
    spec.write_text(
        f'version: "2"\naggregate_rate: 5\nnum_requests: 9\ntotal_tokens_max: 500\nclients: [{client}]\n'
    )
    assert set(totals(trace_from_options(WorkloadOptions(workload=spec)))) == {500}
    asked = WorkloadOptions(workload=spec, total_tokens_max=300)
    assert set(totals(trace_from_options(asked))) == {300}
    spec.write_text(spec.read_text().replace("500", "1"))
    with pytest.raises(ConfigError, match="total_tokens_max: got 1, expected an integer >= 2"):
        trace_from_options(WorkloadOptions(workload=spec))


def test_every_command_that_draws_tells_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twin, stem, cdf = tmp_path / "twin.yaml", str(tmp_path / "t"), tmp_path / "cdf.json"
    twin.write_text(EIGHT_SEATS_ALONE)
    cdf.write_text(json.dumps([[300, 0.5], [4000, 1.0]]))
    limit, config = ["--total-tokens-max", "600"], ["--config", str(twin)]
    fleet = ["fleet", "size", "--rate", "5", "--slo", "ttft_p99=2s", "--profile", "A100", "--no-verify"]
    for words in (
        ["trace", "synth", "--rate", "5", "--num-requests", "60", "--output", stem],
        ["run", "--rate", "5", *config],
        ["run", "--trace", stem, *config],
        [
            "capacity",
            "--slo",
            "ttft_p99=5s",
            "--num-requests",
            "300",
            "--seeds",
            "1",
            "--no-binding",
            *config,
        ],
        [*fleet, "--workload", stem],
        [*fleet, "--workload", str(cdf)],
    ):
        capsys.readouterr()
        assert vtwin.main([*words, *limit]) == 0, words
        said = capsys.readouterr()
        assert "cut to 600 tokens, prompt and answer together" in said.err + said.out, words
    assert totals(read_trace(stem)).max() == 600
    assert vtwin.main(["run", "--rate", "5", *config, "--total-tokens-max", "1"]) == 2
    assert "--total-tokens-max: got 1, expected an integer >= 2" in capsys.readouterr().err
