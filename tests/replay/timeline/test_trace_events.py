"""``--trace-events``: valid Trace Event Format, and nothing in it that the simulation did not do."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

import vtwin
from traces import Trace, read_trace, request_metrics

CONFIG = """\
engine:
  {max_num_seqs: 8, max_num_batched_tokens: 128, num_gpu_blocks: 40, max_model_len: 300, async_scheduling: false}
latency:
  model: blackbox
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 3000, beta1: 10, beta2: 20}
"""
KINDS = {
    "M": {"name", "pid", "tid", "args"},
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "C": {"name", "pid", "ts", "args"},
    "b": {"name", "cat", "id", "pid", "tid", "ts"},
    "n": {"name", "cat", "id", "pid", "tid", "ts"},
    "e": {"name", "cat", "id", "pid", "tid", "ts"},
}
Event = dict[str, object]


@pytest.fixture(params=["one", "async", "cluster"])
def written(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> tuple[list[Event], Trace, dict[str, object]]:
    """The events of a run with preemptions, its trace and its summary."""
    monkeypatch.chdir(tmp_path)
    text = CONFIG
    if request.param == "async":
        text = text.replace("async_scheduling: false", "async_scheduling: true")
    if request.param == "cluster":
        text += "cluster: {instances: 2, routing: {policy: round-robin}}\n"
    (tmp_path / "twin.yaml").write_text(text)
    rate = "120" if request.param == "cluster" else "60"
    given = ["--rate", rate, "--num-requests", "60", "--prompt-tokens", "60", "--output-tokens", "40"]
    command = ["run", *given, "--config", "twin.yaml", "--output", "s", "--trace-events", "t.json", "--json"]
    assert vtwin.main(command) == 0
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    return events, read_trace("s"), json.loads(capsys.readouterr().out)


def test_every_event_has_what_its_kind_needs(
    written: tuple[list[Event], Trace, dict[str, object]],
) -> None:
    for event in written[0]:
        assert set(event) >= KINDS[str(event["ph"])] | {"ph"}
        assert int(event.get("ts", 0)) >= 0  # type: ignore[call-overload]
        assert int(event.get("dur", 0)) >= 0  # type: ignore[call-overload]


def test_steps_of_an_engine_follow_one_another(
    written: tuple[list[Event], Trace, dict[str, object]],
) -> None:
    steps: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for event in written[0]:
        if event["ph"] == "X":
            steps[event["pid"]].append((int(event["ts"]), int(event["dur"])))  # type: ignore[call-overload]
    assert len(steps) in (1, 2)
    for of_engine in steps.values():
        of_engine.sort()
        for (begin, duration), (following, _) in pairwise(of_engine):
            assert begin + duration <= following


def test_the_steps_compute_the_tokens_of_the_requests(
    written: tuple[list[Event], Trace, dict[str, object]],
) -> None:
    events, trace, summary = written
    decoded = sum(event["args"]["decode tokens"] for event in events if event["ph"] == "X")  # type: ignore[index]
    prefilled = sum(event["args"]["prefill tokens"] for event in events if event["ph"] == "X")  # type: ignore[index]
    outputs, prompts = trace.column("output_tokens").sum(), trace.column("input_tokens").sum()
    assert decoded + prefilled >= outputs + prompts - len(trace)
    preemptions = [event for event in events if event["name"] == "preempted"]
    assert len(preemptions) == summary["num_preemptions"] > 0  # type: ignore[operator]


def test_requests_begin_and_end_as_the_trace_says_their_phases_inside(
    written: tuple[list[Event], Trace, dict[str, object]],
) -> None:
    events, trace, _ = written
    spans: dict[tuple[object, object], dict[str, int]] = defaultdict(dict)
    for event in events:
        if event["ph"] in ("b", "e"):
            spans[event["id"], event["name"]][str(event["ph"])] = int(event["ts"])  # type: ignore[call-overload]
    assert all(set(each) == {"b", "e"} and each["b"] <= each["e"] for each in spans.values())
    e2e = request_metrics(trace)["e2e_us"].to_numpy()
    for row, name in enumerate(trace.requests["request_id"]):
        whole = spans[row, f"request {name}"]
        assert whole["e"] - whole["b"] == e2e[row]
        assert whole["b"] == spans[row, "queue"]["b"]
        assert spans[row, "queue"]["e"] == spans[row, "prefill"]["b"]
        assert spans[row, "prefill"]["e"] == spans[row, "decode"]["b"]
        assert spans[row, "decode"]["e"] == whole["e"]


def test_an_engine_is_a_process_with_a_name(
    written: tuple[list[Event], Trace, dict[str, object]],
) -> None:
    names = {event["pid"]: event["args"]["name"] for event in written[0] if event["name"] == "process_name"}  # type: ignore[index]
    assert set(names.values()) in ({"engine"}, {"0", "1"})
    assert {event["pid"] for event in written[0]} == set(names)


def test_a_place_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twin.yaml").write_text(CONFIG)
    given = ["--rate", "5", "--num-requests", "5", "--config", "twin.yaml", "--trace-events", "no/t.json"]
    assert vtwin.main(["run", "--prompt-tokens", "60", "--output-tokens", "4", *given]) == 2
    assert "--trace-events: got No such file" in capsys.readouterr().err


def test_a_prompt_is_computed_in_its_own_instance_s_process_and_its_kv_moves_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pools = "[{name: p, role: prefill}, {name: d, role: decode}]"
    moving = f"cluster: {{pools: {pools}, disaggregation: {{kv_bytes_per_token: 131072}}}}\n"
    (tmp_path / "twin.yaml").write_text(CONFIG.replace("num_gpu_blocks: 40", "num_gpu_blocks: 400") + moving)
    given = ["--rate", "20", "--num-requests", "20", "--prompt-tokens", "60", "--output-tokens", "8"]
    command = ["run", *given, "--config", "twin.yaml", "--output", "s", "--trace-events", "t.json"]
    assert vtwin.main(command) == 0
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    process = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}
    times: dict[tuple[str, str], int] = {}
    for event in events:
        if event["ph"] in ("b", "e"):
            name = event["name"].replace(f"of {event['id']}", "of it")
            times[event["id"], f"{name} {event['ph']}"] = event["ts"]
            assert event["pid"] == process["p/0" if name.startswith("prompt") else "d/0"]
    trace = read_trace("s")
    for row in range(len(trace)):
        for column, name in (
            ("prefill_end_time_us", "prompt of it e"),
            ("kv_transfer_start_time_us", "KV transfer b"),
            ("kv_transfer_end_time_us", "KV transfer e"),
        ):
            assert times[row, name] == trace.column(column)[row]


def test_kv_that_moves_to_host_memory_and_back_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks are those of the summary; no request is scheduled while its KV is on the way."""
    monkeypatch.chdir(tmp_path)
    tier = "num_cpu_blocks: 4000, kv_load_us_per_block: 300, kv_store_us_per_block: 400"
    (tmp_path / "twin.yaml").write_text(
        CONFIG.replace("async_scheduling: false", f"async_scheduling: false, {tier}")
    )
    given = [
        "--rate",
        "9",
        "--num-requests",
        "60",
        "--rounds",
        "4",
        "--prompt-tokens",
        "60",
        "--output-tokens",
        "9",
    ]
    command = ["run", *given, "--config", "twin.yaml", "--trace-events", "t.json", "--json"]
    assert vtwin.main(command) == 0
    moved = json.loads(capsys.readouterr().out)["kv_offload"]
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    ordered = [event["args"] for event in events if event["name"] == "KV blocks ordered"]
    assert sum(each["to load"] for each in ordered) == moved["num_reloaded_blocks"] > 0
    assert sum(each["to store"] for each in ordered) == moved["num_offloaded_blocks"] > 0
    begins, ends = (
        [event["ts"] for event in events if event["name"] == "KV load" and event["ph"] == kind]
        for kind in "be"
    )
    assert len(begins) == len(ends) == moved["num_loads"]
    open_spans: dict[int, list[str]] = defaultdict(list)
    for event in events:
        if event["ph"] == "b":
            open_spans[event["id"]].append(event["name"])
        elif event["ph"] == "e":
            assert open_spans[event["id"]].pop() == event["name"]  # spans lie within each other
    waited = sum(end - begin for begin, end in zip(begins, ends, strict=True))
    assert waited == pytest.approx(moved["load_wait_us"], rel=0.2)
