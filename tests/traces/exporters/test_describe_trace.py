"""A trace becomes a specification that draws its like, and says how like."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.traces.made import SAMPLES
from traces import ClosedLoop, Header, Trace, TraceError, convert, make_trace, prompt_tokens, write_trace
from traces.cli import trace_app
from traces.exporters import export
from traces.exporters.specification import describe_as_specification
from traces.header import SLOTarget
from traces.workload import load_spec, preset, synth, trace_from_options
from traces.workload.model import ActiveWindow, Arrival, Client, OpenLoop, Workload
from traces.workload.options import WorkloadOptions

S = 1_000_000


def again(trace: Trace, folder: Path) -> Trace:
    path = export(trace, "spec", folder / "spec.yaml")
    return synth(load_spec(path), seed=7)


def two_classes() -> Trace:
    """Chat at a rate that doubles half-way, and a bursty batch, in Poisson and gamma."""
    chat, batch = (preset(name, 1.0).clients[0] for name in ("chatbot", "summarization"))
    windows = (
        ActiveWindow(start_us=0, end_us=200 * S, trace_rate_per_s=5.0),
        ActiveWindow(start_us=200 * S, end_us=400 * S, trace_rate_per_s=10.0),
    )
    clients = (
        Client(id="chat", lengths=chat.lengths, windows=windows, slo_class="critical", adapter="lora-1"),
        Client(
            id="batch", lengths=batch.lengths, tenant_id="t", arrival=Arrival(process="gamma", cv=3.0),
            windows=(ActiveWindow(start_us=0, end_us=400 * S, trace_rate_per_s=2.0),),
            prefix_group="g", prefix_length=64, timeout_us=30 * S,
        ),
    )  # fmt: skip
    return synth(Workload(clients=clients, load=OpenLoop(rate_per_s=None), duration_us=400 * S), seed=1)


def test_what_is_drawn_from_the_description_is_like_the_trace(tmp_path: Path) -> None:
    trace = two_classes()
    drawn = again(trace, tmp_path)
    assert len(drawn) == pytest.approx(len(trace), rel=0.1)
    for group in ("critical", None):
        pick = [t.requests[t.column("slo_class").fillna("") == (group or "")] for t in (trace, drawn)]
        for name in ("input_tokens", "output_tokens"):
            before, after = (part[name].to_numpy(dtype=np.int64) for part in pick)
            assert after.mean() == pytest.approx(before.mean(), rel=0.05)
            assert np.quantile(after, 0.9) == pytest.approx(np.quantile(before, 0.9), rel=0.05)
    batch = drawn.requests[drawn.column("tenant_id") == "t"]
    assert set(batch["prefix_length"]) == {64}
    assert ((batch["deadline_us"] - batch["arrival_time_us"]) == 30 * S).all()
    chat = drawn.requests[drawn.column("adapter") == "lora-1"]
    halves = [(chat["arrival_time_us"] <= 200 * S).sum(), (chat["arrival_time_us"] > 200 * S).sum()]
    assert halves[1] / halves[0] == pytest.approx(2.0, rel=0.15)


def test_the_gaps_are_as_irregular_when_the_changing_rate_is_taken_out(tmp_path: Path) -> None:
    spec = load_spec(export(two_classes(), "spec", tmp_path / "spec.yaml"))
    by_id = {client.id: client.arrival for client in spec.clients}
    assert by_id["chat"].process == "poisson"
    assert by_id["batch"].process == "gamma"
    assert by_id["batch"].cv == pytest.approx(3.0, rel=0.25)


def test_the_errors_are_those_of_a_drawing_and_stand_in_the_file(tmp_path: Path) -> None:
    trace = convert("azure", SAMPLES / "azure_code_200.csv")
    described = describe_as_specification(trace)
    (tmp_path / "spec.yaml").write_text(described.text)
    drawn = trace_from_options(WorkloadOptions(workload=tmp_path / "spec.yaml"))
    measured = prompt_tokens(drawn).mean() / prompt_tokens(trace).mean() - 1
    assert described.errors["prompt mean"] == pytest.approx(measured)
    assert f"prompt mean {measured:+.1%}" in described.text
    assert any("correlation of" in note for note in described.notes)


def test_a_closed_loop_is_described_as_one(tmp_path: Path) -> None:
    columns = {"request_id": list("abcd"), "input_tokens": [5, 6, 7, 8], "output_tokens": 3}
    trace = make_trace(
        Header(
            closed_loop=ClosedLoop(concurrency=2, think_time_us=9),
            goodput_slo_targets={"batch": SLOTarget(ttft_ms=5.0)},
        ),
        {**columns, "arrival_time_us": [0, 0, None, None]},
    )
    drawn = again(trace, tmp_path)
    assert drawn.header.closed_loop == ClosedLoop(concurrency=2, think_time_us=9)
    assert drawn.header.goodput_slo_targets == {"batch": SLOTarget(ttft_ms=5.0)}
    assert len(drawn) == 4


def test_hashes_that_are_lost_are_said_to_be() -> None:
    trace = convert("mooncake", SAMPLES / "mooncake_conversation_200.jsonl")
    assert any("block hashes are lost" in note for note in describe_as_specification(trace).notes)


def test_sessions_are_refused_with_the_way_to_draw_them() -> None:
    trace = make_trace(
        Header(),
        {
            "request_id": ["a", "b"], "input_tokens": 5, "output_tokens": 3, "arrival_time_us": [0, 5],
            "session_id": "s", "round_index": [0, 1],
        },
    )  # fmt: skip
    with pytest.raises(TraceError, match=r"got sessions of several rounds.*--like"):
        describe_as_specification(trace)


def test_the_command_states_the_errors(tmp_path: Path) -> None:
    write_trace(two_classes(), tmp_path / "run")
    arguments = ["convert", str(tmp_path / "run"), "--from", "tracev2", "--to", "spec"]
    result = CliRunner().invoke(trace_app, [*arguments, "--output", str(tmp_path / "spec.yaml")])
    assert result.exit_code == 0, result.output
    assert "requests of a trace, described" in result.output
    assert "prompt mean" in result.output
