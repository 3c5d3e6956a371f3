"""A trace whose server counted more, and answered with less, than was asked: all what-ifs see what was served."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vtwin
from observe.plan.loads import calibration_loads, sweep_loads
from observe.plan.prompts import TokenPrompts
from observe.plan.request_body import BodyShape
from observe.plan.send_plan import make_plan
from replay.fleet.inputs.fleet_workload import read_workload
from replay.fleet.inputs.pools_file import read_labels
from traces import Header, Trace, make_trace, prompt_tokens, read_trace, write_trace
from traces.exporters import export
from traces.workload import WorkloadOptions, trace_from_options

TWIN = """\
engine: {max_num_seqs: 8, max_num_batched_tokens: 512, num_gpu_blocks: 400, max_model_len: 1024, async_scheduling: SYNC}
latency:
  model: blackbox
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 6000, beta1: 10, beta2: 20}
"""
N = 60
PROMPT, COUNTED, ANSWER, BUDGET = 80, 100, 20, 320


def measured(**columns: object) -> Trace:
    """60 requests, 5 a second: prompts of 80 tokens that the server counts as 100, answers of 20 of 320 allowed."""
    due = np.arange(N) * 200_000
    given: dict[str, object] = {
        "request_id": [str(row) for row in range(N)],
        "arrival_time_us": due,
        "send_time_us": due,
        "input_tokens": [PROMPT] * N,
        "server_input_tokens": [COUNTED] * N,
        "output_tokens": [ANSWER] * N,
        "max_tokens": [BUDGET] * N,
        "finish_reason": ["stop"] * N,
        "status": ["ok"] * N,
    }
    return make_trace(Header(mode="real", tool="vtwin"), given | columns)


ROW = np.arange(N)
FAILED, WHOLE, SILENT = ROW % 10 == 9, ROW % 7 == 6, ROW % 10 == 3
ANSWERS = np.where(WHOLE, 40 + ROW, 1 + ROW % 13)
ASKED = np.where(SILENT, ANSWERS, 40 + ROW)


def varied() -> Trace:
    """The same with other lengths in every row: some failed, some had all of max_tokens, some do not say it."""
    reasons = np.where(WHOLE, "length", "stop").astype(object)
    reasons[FAILED] = None
    return measured(
        input_tokens=30 + ROW,
        server_input_tokens=45 + 2 * ROW,
        output_tokens=np.where(FAILED, 0, ANSWERS),
        max_tokens=[None if silent else 40 + row for row, silent in enumerate(SILENT)],
        finish_reason=reasons,
        status=np.where(FAILED, "error", "ok").tolist(),
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, is_async in (("twin", "false"), ("async", "true")):
        (tmp_path / f"{name}.yaml").write_text(TWIN.replace("SYNC", is_async))
    write_trace(measured(), tmp_path / "measured")
    write_trace(varied(), tmp_path / "varied")
    plain = dict.fromkeys(("server_input_tokens", "max_tokens", "finish_reason", "status"))
    write_trace(measured(input_tokens=[COUNTED] * N, send_time_us=None, **plain), tmp_path / "plain")
    return tmp_path


def pairs(trace: Trace) -> set[tuple[int, int]]:
    """Return the lengths of prompts and answers."""
    return set(zip(prompt_tokens(trace).tolist(), trace.cells("output_tokens").values.tolist(), strict=True))


def ends(trace: Trace) -> set[tuple[object, ...]]:
    """Return the lengths of prompts and answers, and why the answers ended."""
    columns = (trace.cells(name).values.tolist() for name in ("output_tokens", "finish_reason"))
    return set(zip(prompt_tokens(trace).tolist(), *columns, strict=True))


# simulated


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("twin", ["twin", "async"])
def test_run_serves_a_trace_as_replay_does(twin: str) -> None:
    assert vtwin.main(["replay", "varied", "--config", f"{twin}.yaml", "--output", "replayed"]) == 0
    assert vtwin.main(["run", "--trace", "varied", "--config", f"{twin}.yaml", "--output", "run"]) == 0
    replayed, run = read_trace("replayed"), read_trace("run")
    for name in ("output_tokens", "first_chunk_time_us", "last_token_time_us", "finish_reason", "status"):
        assert run.column(name).tolist() == replayed.column(name).tolist(), name
    assert prompt_tokens(run).tolist() == prompt_tokens(replayed).tolist() == (45 + 2 * ROW).tolist()
    assert run.column("output_tokens").tolist() == np.where(FAILED, 40 + ROW, ANSWERS).tolist()


@pytest.mark.usefixtures("folder")
def test_drawn_requests_are_as_long_as_the_replayed_ones() -> None:
    assert vtwin.main(["replay", "varied", "--config", "twin.yaml", "--output", "replayed"]) == 0
    asked = ["--rate", "5", "--num-requests", "600", "--config", "twin.yaml", "--output", "run"]
    assert vtwin.main(["run", "--like", "varied", *asked]) == 0
    assert ends(read_trace("run")) == ends(read_trace("replayed"))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("given", ["--like", "--trace"])
def test_the_capacity_is_that_of_what_was_served(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--config", "twin.yaml", "--slo", "e2e_p99=1s", "--no-binding"]
    asked += ["--num-requests", "300", "--seeds", "2"] if given == "--like" else []
    found = []
    for stem in ("measured", "plain"):
        assert vtwin.main(["capacity", given, stem, *asked, "--json"]) in (0, 1)
        said = capsys.readouterr()
        found.append(json.loads(said.out)["rate"])
        assert ("prompts of 100 tokens (80 were sent)" in said.err) == (stem == "measured")
    assert found[0] == found[1] > 0
    vtwin.main(["capacity", given, "measured", *asked])
    assert f"prompts of {COUNTED} tokens, outputs of {ANSWER} tokens" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.usefixtures("folder")
def test_tune_and_every_other_source_of_lengths_have_what_was_served(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["--slo", "e2e_p99=1s", "--num-requests", "2000", "--seeds", "1"]
    assert vtwin.main(["tune", "--config", "twin.yaml", "--like", "measured", *asked]) in (0, 1)
    said = capsys.readouterr()
    assert f"prompts of {COUNTED} tokens, outputs of {ANSWER} tokens" in " ".join(said.out.split())
    assert "answers of 20 tokens (max_tokens allowed 320)" in said.err
    write_trace(varied().with_columns(model=["m"] * N), "labelled")
    fleet = read_workload(Path("labelled")).lengths
    labels = read_labels(read_workload(Path("labelled")).whole, None, router="model", name="labelled")
    assert labels is not None
    assert len(labels) == len(fleet.input_tokens) == N
    replayed = trace_from_options(WorkloadOptions(trace=Path("varied")))
    assert set(zip(fleet.input_tokens.tolist(), fleet.output_tokens.tolist(), strict=True)) == pairs(replayed)


@pytest.mark.usefixtures("folder")
def test_one_line_says_where_lengths_are_not_those_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    line = (
        "lengths are as the server had them, on average prompts of 100 tokens (80 were sent), "
        "answers of 20 tokens (max_tokens allowed 320)"
    )
    for stem, times in (("measured", 1), ("plain", 0)):
        for asked in (["--trace", stem], ["--like", stem, "--rate", "5"]):
            assert vtwin.main(["run", *asked, "--config", "twin.yaml", "--json"]) == 0
            assert capsys.readouterr().err.count(line) == times


# sent


def sent(trace: Trace) -> set[tuple[int, int]]:
    """Return the lengths of the prompts that are sent, and their max_tokens."""
    plan = make_plan(trace, prompts=TokenPrompts(1), shape=BodyShape(api="completions", model="m"))
    bodies = [json.loads(plan.take_body(row)) for row in range(len(plan))]
    return {(len(body["prompt"]), body["max_tokens"]) for body in bodies}


def test_what_is_sent_is_what_was_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stem = folder / "varied"
    asked = set(zip((30 + ROW).tolist(), ASKED.tolist(), strict=True))
    assert sent(trace_from_options(WorkloadOptions(trace=stem))) == asked
    drawn = WorkloadOptions(like=stem, rate=5.0, num_requests=600)
    assert sent(trace_from_options(drawn)) == asked
    swept = sweep_loads(replace(drawn, rate=None), "5")
    for load in (*swept, *calibration_loads(drawn, max_model_len=None)[3:5]):
        assert pairs(load.requests) == sent(load.requests) == asked
    assert vtwin.main(["trace", "synth", "--trace", "varied", "--output", "workload"]) == 0
    assert "lengths are as the server had them" in capsys.readouterr().err
    assert sent(trace_from_options(WorkloadOptions(trace=folder / "workload"))) == asked


def test_other_load_generators_are_given_what_was_asked(folder: Path) -> None:
    rows = export(read_trace(folder / "varied"), "mooncake", folder / "out.jsonl").read_text().splitlines()
    lengths = [(each["input_length"], each["output_length"]) for each in map(json.loads, rows)]
    assert lengths == list(zip((30 + ROW).tolist(), ASKED.tolist(), strict=True))


def test_a_specification_describes_what_was_asked_and_says_what_was_served(folder: Path) -> None:
    text = export(measured(), "spec", folder / "spec.yaml").read_text()
    assert (
        "# lengths are those that were asked for; the server had on average prompts of 100 tokens (80" in text
    )
    again = trace_from_options(WorkloadOptions(workload=folder / "spec.yaml"))
    assert pairs(again) == {(PROMPT, BUDGET)}
    assert (
        "the server had"
        not in export(read_trace(folder / "plain"), "spec", folder / "other.yaml").read_text()
    )
