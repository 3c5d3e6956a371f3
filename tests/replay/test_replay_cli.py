"""The commands as a user calls them, in this process."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import vtwin
from replay.trace.summary_text import _time_row
from tests.twins import SHORT_OF_BLOCKS
from traces import pooled_itl_us, read_trace, request_metrics, write_trace

LOAD = ["--rate", "60", "--num-requests", "40"]
LENGTHS = [
    "--prompt-tokens",
    "60",
    "--prompt-tokens-stdev",
    "30",
    "--prompt-tokens-max",
    "200",
    "--output-tokens",
    "20",
    "--output-tokens-stdev",
    "10",
    "--output-tokens-max",
    "60",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with twin.yaml and the workload w."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["vtwin", "of", "the", "test"])
    (tmp_path / "twin.yaml").write_text(SHORT_OF_BLOCKS)
    assert vtwin.main(["trace", "synth", *LOAD, *LENGTHS, "--output", "w"]) == 0
    return tmp_path


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    """Return the JSON that a command prints; it must end well."""
    capsys.readouterr()
    assert vtwin.main([*arguments, "--json"]) == 0
    loaded: dict[str, object] = json.loads(capsys.readouterr().out)
    return loaded


STATISTICS = ["mean", "p25", "p50", "p75", "p90", "p95", "p99", "p99.9", "min", "max", "n"]
REPLAY = ("replay", "w", "--config", "twin.yaml", "--output", "s")


@pytest.mark.usefixtures("folder")
def test_the_document_has_the_contracts_keys(capsys: pytest.CaptureFixture[str]) -> None:
    summary = document(capsys, *REPLAY)
    assert list(summary) == [
        *("schema_version", "tool_version", "num_requests", "num_by_status", "num_by_reason", "num_warmup"),
        *(
            "num_length_capped",
            "incomplete",
            "duration_us",
            "measured",
            "offered_rate_per_s",
            "sending_us",
            "verdict",
            "verdict_stretches",
            "load",
            "request_throughput",
        ),
        *("output_token_throughput", "prefix_hit_frac", "num_preemptions", "num_kv_allocation_failures"),
        *(
            "engine_cpu_s",
            "num_steps",
            "num_jumps",
            "steps",
            "prompt_tokens",
            "output_tokens",
            "ttft_us",
            "ttft_parts_us",
            "e2e_us",
            "itl_us",
        ),
        *(
            "tpot_us",
            "e2e_us_per_token",
            "prompt_output_ratio",
            "queue_us",
            "p99_precision",
            "preempted_us",
            "speculative",
            "kv_offload",
        ),
        *("goodput", "operator_times", "groups", "kv_needed"),
        *("over_time", "latency", "unanswered", "warnings"),
    ]
    for name in ("ttft_us", "e2e_us", "itl_us", "tpot_us", "queue_us"):
        assert list(summary[name]) == STATISTICS  # type: ignore[call-overload]
    assert summary["num_by_status"] == {"ok": 40}


@pytest.mark.usefixtures("folder")
def test_the_summary_is_what_the_written_trace_says(capsys: pytest.CaptureFixture[str]) -> None:
    summary = document(capsys, *REPLAY, "--itl")
    trace = read_trace("s")
    metrics = request_metrics(trace)
    for name in ("ttft_us", "e2e_us", "tpot_us", "queue_us"):
        assert summary[name]["mean"] == pytest.approx(metrics[name].mean())  # type: ignore[index]
        assert summary[name]["p99"] == pytest.approx(metrics[name].quantile(0.99))  # type: ignore[index]
    assert summary["itl_us"]["p90"] == pytest.approx(np.percentile(pooled_itl_us(trace), 90))  # type: ignore[index]
    seconds = summary["duration_us"] / 1e6  # type: ignore[operator]
    assert summary["request_throughput"] == pytest.approx(40 / seconds)
    assert summary["output_token_throughput"] == pytest.approx(trace.column("output_tokens").sum() / seconds)
    assert summary["num_preemptions"] == trace.column("num_preemptions").sum() > 0


@pytest.mark.usefixtures("folder")
def test_itl_times_change_nothing_but_add_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    without = document(capsys, *REPLAY)
    with_times = document(capsys, "replay", "w", "--config", "twin.yaml", "--output", "t", "--itl")
    for varies in ("engine_cpu_s", "num_jumps"):
        del without[varies], with_times[varies]
    assert without["p99_precision"].pop("itl_us") is None  # type: ignore[attr-defined]
    assert with_times["p99_precision"].pop("itl_us")["n"] == with_times["itl_us"]["n"]  # type: ignore[attr-defined,index]
    assert without["itl_us"] == pytest.approx(with_times["itl_us"])
    assert {**without, "itl_us": None} == {**with_times, "itl_us": None}
    pd.testing.assert_frame_equal(read_trace("s").requests, read_trace("t").requests, rtol=1e-9)
    assert not Path("s.itl.csv").exists()
    assert len(read_trace("t").events) == read_trace("t").column("output_tokens").sum()  # type: ignore[arg-type]


def test_the_same_command_gives_the_same_bytes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents, files = [], []
    for _ in range(2):
        documents.append(document(capsys, *REPLAY, "--steps", "steps.jsonl"))
        files.append([(folder / name).read_bytes() for name in ("s.yaml", "s.csv", "steps.jsonl")])
        del documents[-1]["engine_cpu_s"]
    assert json.dumps(documents[0]) == json.dumps(documents[1])
    assert files[0] == files[1]


def test_run_is_synth_and_replay(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replayed = document(capsys, *REPLAY)
    ran = document(capsys, "run", *LOAD, *LENGTHS, "--config", "twin.yaml", "--output", "r")
    del replayed["engine_cpu_s"], ran["engine_cpu_s"]
    assert ran == replayed
    assert (folder / "r.csv").read_bytes() == (folder / "s.csv").read_bytes()


def bytes_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Return a command's exit code and its document, what the clock says of it aside."""
    capsys.readouterr()
    code = vtwin.main([*arguments, "--config", "twin.yaml", "--json"])
    return code, re.sub(r'"engine_cpu_s": [^,]+', '"engine_cpu_s": 0', capsys.readouterr().out)


SESSIONS = [
    "--rate",
    "5",
    "--rounds",
    "3",
    "--num-requests",
    "30",
    "--prompt-tokens",
    "20",
    "--output-tokens",
    "9",
]


@pytest.mark.parametrize(
    "asked",
    [
        [],
        ["--speed", "2", "--num-requests", "20"],
        ["--prompt-scale", "0.5", "--output-tokens-max", "12", "--at", "arrival"],
        ["--max-concurrency", "3"],
        ["--set", "engine.max_num_seqs=2,8"],
        ["--warmup-frac", "0.2", "--slo", "ttft=1ms", "--strict-slo"],
    ],
)
@pytest.mark.usefixtures("folder")
def test_replay_and_run_are_one_command_under_two_names(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    names = [
        ["replay", "w"], ["run", "--trace", "w"], ["run", "w"], ["replay", "--trace", "w"]
    ]  # fmt: skip
    answers = {bytes_of(capsys, *name, *asked) for name in names}
    assert len(answers) == 1
    assert answers.pop()[1].startswith("{")


@pytest.mark.parametrize("asked", [["--sessions", "2"], ["--sessions", "1,3"], ["--warm-start", "0.5"]])
@pytest.mark.usefixtures("folder")
def test_both_names_start_sessions_alike(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["trace", "synth", *SESSIONS, "--think-time", "1", "--output", "s"]) == 0
    assert bytes_of(capsys, "replay", "s", *asked) == bytes_of(capsys, "run", "--trace", "s", *asked)
    drawn = [*SESSIONS, "--think-time", "1", "--seed", "42"]
    assert bytes_of(capsys, "run", *drawn, *asked) == bytes_of(capsys, "replay", "s", *asked)


@pytest.mark.usefixtures("folder")
def test_a_measured_load_is_sent_when_it_was_sent_by_both_names(capsys: pytest.CaptureFixture[str]) -> None:
    late = read_trace("w")
    write_trace(
        late.with_columns(send_time_us=late.cells("arrival_time_us").values + 10**6),
        Path("late"),
    )
    by_both = [
        bytes_of(capsys, *name, "--horizon", "1s")
        for name in (["replay", "late"], ["run", "--trace", "late"])
    ]
    assert by_both[0] == by_both[1]
    faster = json.loads(bytes_of(capsys, "run", "--trace", "late", "--speed", "4", "--horizon", "1s")[1])
    assert by_both[0][0] == 1  # nothing was sent in that second
    assert faster["num_by_status"]["ok"] > 0


def test_two_traces_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twin = tmp_path / "twin.yaml"
    twin.write_text(
        "latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 5, beta1: 1, beta2: 2}}"
    )
    assert vtwin.main(["run", "a", "--trace", "b", "--config", str(twin)]) == 2
    assert "--trace: got it beside a, expected one trace" in capsys.readouterr().err


def test_both_names_have_the_same_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = []
    for name in ("run", "replay"):
        assert vtwin.main([name, "--help-all"]) == 0
        shown.append(
            capsys.readouterr().out.partition("Example:")[0].replace(f"vtwin {name} [O", "vtwin X [O")
        )
    assert [line.rstrip() for line in shown[0].splitlines()] == [
        line.rstrip() for line in shown[1].splitlines()
    ]


def test_the_steps_have_the_recordings_keys_and_tell_the_whole_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = document(capsys, *REPLAY, "--steps", "steps.jsonl")
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    assert list(steps[0]) == [
        *("step", "t", "dur", "P", "D", "sched", "preempted", "hits", "finished"),
        *("running", "waiting", "free", "t_end", "free_end"),
    ]
    assert len(steps) == summary["num_steps"]
    assert sorted(request for step in steps for request in step["finished"]) == list(range(40))
    assert sum(len(step["preempted"]) for step in steps) == summary["num_preemptions"]


def test_async_steps_say_when_they_ran_on_the_device(folder: Path) -> None:
    (folder / "twin.yaml").write_text(
        SHORT_OF_BLOCKS.replace("async_scheduling: false", "async_scheduling: true")
    )
    assert vtwin.main([*REPLAY, "--steps", "steps.jsonl"]) == 0
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    assert {"exec_start", "exec_end"} <= set(steps[0])


def test_the_header_says_how_the_trace_was_made(folder: Path) -> None:
    assert vtwin.main(list(REPLAY)) == 0
    header = yaml.safe_load((folder / "s.yaml").read_text())
    assert header["mode"] == "replayed"
    assert header["command"] == "vtwin of the test"
    assert len(header["config_digest"]) == 16


@pytest.mark.usefixtures("folder")
def test_an_observed_send_time_counts_unless_arrivals_are_asked_for() -> None:
    table = pd.read_csv("w.csv")
    table["send_time_us"] = table["arrival_time_us"] + 7_000_000
    table.to_csv("w.csv", index=False)
    starts = {}
    for at in ("auto", "send", "arrival"):
        assert vtwin.main([*REPLAY, "--at", at]) == 0
        starts[at] = int(read_trace("s").column("send_time_us").min())
    assert starts["auto"] == starts["send"] == starts["arrival"] + 7_000_000


@pytest.mark.usefixtures("folder")
def test_a_closed_loop_is_taken_as_recorded_or_left_open_on_request() -> None:
    closed = ["run", "--concurrency", "2", "--num-requests", "20", *LENGTHS, "--config", "twin.yaml"]
    assert vtwin.main([*closed, "--output", "c"]) == 0
    trace = read_trace("c")
    events = sorted(
        [(t, 1) for t in trace.column("send_time_us")] + [(t, -1) for t in trace.column("last_token_time_us")]
    )
    inside = np.cumsum([change for _, change in events])
    assert inside.max() == 2
    assert vtwin.main(["replay", "c", "--open-loop", "--config", "twin.yaml", "--output", "o"]) == 0
    assert read_trace("o").column("send_time_us").tolist() == trace.column("send_time_us").tolist()


def test_the_blis_dialect_leaves_our_columns_out(folder: Path) -> None:
    assert vtwin.main([*REPLAY, "--dialect", "blis"]) == 0
    assert "scheduled_time_us" not in (folder / "s.csv").read_text().splitlines()[0]


def test_parquet_is_written_where_the_stem_says_so(folder: Path) -> None:
    assert vtwin.main(["replay", "w", "--config", "twin.yaml", "--output", "p.parquet"]) == 0
    assert (folder / "p.parquet").exists()
    assert not (folder / "p.csv").exists()


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("num_gpu_blocks: 20", "num_gpu_blocks: 9"), 1, None),  # it ran, and nothing finished
        (("num_gpu_blocks: 20", "num_gpu_blocks: 2, block_size: 1"), 2, "expected at least"),
        (("max_num_seqs: 16", "max_num_seqs: 0"), 2, "engine.max_num_seqs: got 0, expected an integer >= 1"),
        (("beta2: 20", "beta2: x"), 2, 'latency.coefficients.beta2: got "x"'),
    ],
)
def test_a_configuration_that_cannot_be_is_exit_code_2_and_leaves_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], code: int, message: str | None
) -> None:
    assert change[0] in SHORT_OF_BLOCKS
    (folder / "twin.yaml").write_text(SHORT_OF_BLOCKS.replace(*change))
    assert vtwin.main(list(REPLAY)) == code
    if message is not None:
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == error.count("note: ") + 1
        assert not list(folder.glob("s.*"))


def test_what_can_never_run_is_counted_and_leaves_exit_code_0(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "twin.yaml").write_text(SHORT_OF_BLOCKS.replace("num_gpu_blocks: 20", "num_gpu_blocks: 10"))
    summary = document(capsys, *REPLAY)
    assert set(summary["num_by_status"]) == {"ok", "stuck"}  # type: ignore[call-overload]
    assert sum(summary["num_by_status"].values()) == 40  # type: ignore[attr-defined]


@pytest.mark.usefixtures("folder")
def test_a_missing_trace_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["replay", "nowhere", "--config", "twin.yaml", "--output", "s"]) == 3
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_steps_that_cannot_be_written_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main([*REPLAY, "--steps", "no/such/folder.jsonl"]) == 2
    assert "--steps: got No such file or directory" in capsys.readouterr().err


def test_config_show_prints_what_loads_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert vtwin.main(["config", "show", "twin.yaml"]) == 0
    shown = capsys.readouterr().out
    assert yaml.safe_load(shown)["engine"]["num_gpu_blocks"] == 20
    (folder / "again.yaml").write_text(shown)
    assert vtwin.main(["config", "show", "--config", "again.yaml"]) == 0
    assert capsys.readouterr().out == shown
    assert vtwin.main(["config", "show"]) == 2


@pytest.mark.usefixtures("folder")
def test_the_asked_rate_is_offered_and_the_end_of_a_run_explains_a_lower_throughput(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = [
        "run",
        "--rate",
        "20",
        "--num-requests",
        "40",
        "--prompt-tokens",
        "20",
        "--config",
        "twin.yaml",
    ]
    summary = document(capsys, *command, "--output-tokens", "12")
    assert summary["offered_rate_per_s"] == pytest.approx(20, abs=1e-4)
    assert summary["sending_us"] == 2_000_000
    for tokens, is_told in (("2", False), ("100", True)):
        assert vtwin.main([*command, "--output-tokens", tokens, "--overwrite"]) == 0
        shown = capsys.readouterr().out
        assert "offered     20 requests/s\n" in shown
        assert ("s no request was sent\n" in shown) is is_told, shown


@pytest.mark.usefixtures("folder")
def test_the_summary_says_how_long_prompts_and_outputs_were(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", *LOAD, "--prompt-tokens", "60", "--output-tokens", "12", "--config", "twin.yaml"]
    summary = document(capsys, *command, "--output", "s")
    num = summary["num_requests"]
    assert summary["prompt_tokens"] == {**dict.fromkeys(STATISTICS, 60.0), "n": num}
    assert summary["output_tokens"] == {**dict.fromkeys(STATISTICS, 12.0), "n": num}
    assert vtwin.main([*command, "--output", "again"]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["prompt", "tok.", *["60"] * 5] in shown
    assert ["output", "tok.", *["12"] * 5] in shown


def test_a_run_in_which_nothing_finishes_says_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "small.yaml").write_text(SHORT_OF_BLOCKS.replace("num_gpu_blocks: 20", "num_gpu_blocks: 6"))
    lengths = ["--prompt-tokens", "70", "--prompt-tokens-stdev", "0", "--output-tokens", "40"]
    command = [
        "run",
        *LOAD,
        *lengths,
        "--output-tokens-stdev",
        "0",
        "--config",
        "small.yaml",
        "--output",
        "s",
    ]
    assert vtwin.main(command) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == (
        "no request finished: 40 stuck (the KV cache (engine.num_gpu_blocks 6, 80 tokens) is too small for it, "
        "or for one that it waits behind)"
    )


def test_a_run_of_prompts_beyond_the_model_length_says_why(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "short.yaml").write_text(SHORT_OF_BLOCKS.replace("max_model_len: 300", "max_model_len: 10"))
    lengths = ["--prompt-tokens", "60", "--prompt-tokens-stdev", "0"]
    assert vtwin.main(["run", *LOAD, *lengths, "--config", "short.yaml", "--output", "s"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == (
        "no request finished: 40 rejected (the prompt is too long for engine.max_model_len 10, which must hold a token "
        "of output, too)"
    )


def test_a_trace_without_requests_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = folder / "w.csv"
    table.write_text(table.read_text().splitlines()[0] + "\n")
    assert vtwin.main([*REPLAY]) == 3
    assert capsys.readouterr().err == "TraceError: w: got a trace without requests, expected one at least\n"
    assert not (folder / "s.csv").exists()
    assert vtwin.main(["trace", "check", "w"]) == 1
    printed = capsys.readouterr()
    assert "without rows" in printed.out
    assert printed.err == "w: 1 problem\n"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("output", ["w", "w.csv", "./w"])
def test_a_trace_is_not_replaced_by_its_own_simulation(
    output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path("w.csv").read_bytes()
    assert vtwin.main(["replay", "w", "--config", "twin.yaml", "--output", output]) == 2
    assert "is the trace that is simulated, expected another place" in capsys.readouterr().err
    assert Path("w.csv").read_bytes() == before


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("rate", "verdict"), [("5", "stable"), ("2000", "overloaded")])
def test_the_summary_says_what_was_offered_and_whether_the_server_kept_up(
    capsys: pytest.CaptureFixture[str], rate: str, verdict: str
) -> None:
    asked = ("run", "--rate", rate, "--num-requests", "200", *LENGTHS, "--config", "twin.yaml")
    summary = document(capsys, *asked)
    assert summary["verdict"] == verdict
    assert summary["offered_rate_per_s"] == pytest.approx(float(rate), rel=0.2)
    assert vtwin.main(list(asked)) == 0
    out, told = capsys.readouterr()
    assert "offered" in out
    assert ("OVERLOADED" in out) == (verdict == "overloaded")
    assert ("overloaded:" in told) == (verdict == "overloaded")


@pytest.mark.usefixtures("folder")
def test_a_closed_loop_is_offered_no_rate(capsys: pytest.CaptureFixture[str]) -> None:
    summary = document(capsys, "run", "--concurrency", "4", *LENGTHS, "--config", "twin.yaml")
    assert summary["offered_rate_per_s"] is None
    assert summary["verdict"] is None


@pytest.mark.parametrize(("median_us", "unit"), [(9e6, "ms"), (11e6, "s"), (700e6, "min")])
def test_times_of_a_summary_have_a_unit_that_people_read(median_us: float, unit: str) -> None:
    same = dict.fromkeys(STATISTICS, median_us)
    assert _time_row("TTFT", same)[0] == f"TTFT, {unit}"  # type: ignore[arg-type]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("place", ["-", "/proc/x"])
def test_a_place_that_is_none_is_a_fault_of_the_call(capsys: pytest.CaptureFixture[str], place: str) -> None:
    assert vtwin.main(["run", *LOAD, *LENGTHS, "--config", "twin.yaml", "--output", place]) == 2
    assert "--output: got" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_switching_async_scheduling_is_told_to_have_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("run", *LOAD, *LENGTHS, "--config", "twin.yaml", "--set")
    assert vtwin.main([*asked, "engine.async_scheduling=true"]) == 0
    assert "no answer here" in capsys.readouterr().err
    assert vtwin.main([*asked, "engine.async_scheduling=false"]) == 0
    assert "no answer" not in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_times_per_token_and_the_ratio_of_lengths_are_of_each_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    summary = document(capsys, *REPLAY)
    rows = pd.read_csv("s.csv")
    per_token = (rows["last_token_time_us"] - rows["send_time_us"]) / rows["output_tokens"]
    assert summary["e2e_us_per_token"]["p99.9"] == pytest.approx(np.percentile(per_token, 99.9))
    assert summary["prompt_output_ratio"]["mean"] == pytest.approx(
        (rows["input_tokens"] / rows["output_tokens"]).mean()
    )
    ttft = rows["content_first_time_us"] - rows["send_time_us"]
    assert [summary["ttft_us"][f"p{q}"] for q in (25, 75)] == pytest.approx(
        np.percentile(ttft, (25, 75)).tolist()
    )
