"""What a trace or an option gives is simulated, or told: priorities, SLOs, caps, windows, adapters, cut answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vtwin
from replay import TwinConfig, pacing_of, simulate_trace
from replay.console.ready import variants_of
from replay.serve.prometheus import Metrics, exposition
from replay.trace.measured_window import MeasuredPart, parse_horizon, parse_measured
from replay.trace.request_columns import requests_from_trace
from replay.trace.simulation_summary import summarize
from replay.trace.summary_text import summary_parts
from replay.trace.trace_notes import trace_notes
from replay.twin.config_read import load_config
from replay.twin.keys.overlay import Setting
from sim import Blackbox, EngineConfig
from sim.records.run_results import view_of
from traces import (
    ClosedLoop,
    ConfigError,
    Header,
    Trace,
    TraceError,
    make_trace,
    read_trace,
    request_metrics,
    write_trace,
)
from traces.header import ClientInfo
from traces.importers.recorded import read_recorded
from traces.workload import synth
from traces.workload.recorded.scaling import clip_lengths, scale_lengths
from traces.workload.spec.spec_read import parse_spec

TWIN = """\
engine: {max_num_seqs: 2, scheduling_policy: POLICY, async_scheduling: false}
latency: {model: blackbox, coefficients: {alpha0: 300, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 10, beta2: 10}}
"""
SPEC = """\
aggregate_rate: 200
num_requests: 60
clients:
- {id: now, slo_class: critical, PRIORITY input_distribution: {type: constant, params: {value: 50}},
   output_distribution: {type: constant, params: {value: 10}}}
- {id: later, slo_class: background, input_distribution: {type: constant, params: {value: 50}},
   output_distribution: {type: constant, params: {value: 10}}}
goodput_slo_targets: {critical: {ttft_ms: 100}, background: {e2e_ms: 400}}
"""
Shown = dict[str, object]
Replayed = Callable[..., tuple[Shown, Trace, str]]


def workload(**columns: object) -> Trace:
    n = 4
    usual: dict[str, object] = {
        "request_id": [str(i) for i in range(n)],
        "arrival_time_us": np.arange(n) * 1000,
        "input_tokens": np.full(n, 64),
        "output_tokens": np.full(n, 5),
    }
    return make_trace(Header(mode="generated", hash_block_size=16), usual | columns)


def twin(**engine: object) -> TwinConfig:
    settings = EngineConfig(async_scheduling=False, **engine)  # type: ignore[arg-type]
    return TwinConfig(engine=settings, latency=Blackbox(alpha0=300, beta0=5000, beta1=10, beta2=10))


@pytest.fixture
def replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Replayed:
    """Return what replay makes of a trace: its JSON, the trace it wrote, its stderr."""
    monkeypatch.chdir(tmp_path)

    def run(trace: Trace, *options: str, policy: str = "fcfs") -> tuple[Shown, Trace, str]:
        Path("twin.yaml").write_text(TWIN.replace("POLICY", policy))
        write_trace(trace, "w")
        capsys.readouterr()
        command = ["replay", "w", "--config", "twin.yaml", "--output", "s", "--overwrite", "--json", *options]
        assert vtwin.main(command) == 0
        shown = capsys.readouterr()
        return json.loads(shown.out), read_trace("s"), shown.err

    return run


def drawn(priority: str = "") -> Trace:
    return synth(parse_spec(SPEC.replace("PRIORITY", priority), source="spec"), seed=1)


def mean_ttft(trace: Trace, slo_class: str) -> float:
    rows = (trace.column("slo_class") == slo_class).to_numpy(dtype=bool)
    return float(request_metrics(trace)["ttft_us"].to_numpy()[rows].mean())


# priorities


def test_service_classes_become_priorities_where_the_policy_goes_by_them(replayed: Replayed) -> None:
    first_come, by_priority, reverse = (
        replayed(drawn(), policy=policy) for policy in ("fcfs", "priority", "reverse-priority")
    )
    assert mean_ttft(by_priority[1], "critical") < 0.5 * mean_ttft(first_come[1], "critical")
    assert mean_ttft(by_priority[1], "background") > mean_ttft(first_come[1], "background")
    assert mean_ttft(reverse[1], "background") < 0.5 * mean_ttft(reverse[1], "critical")
    note = "priorities are those of the service classes: critical 0, "
    assert note in by_priority[2]
    assert note not in first_come[2]
    assert any(note in line for line in by_priority[0]["warnings"])  # type: ignore[attr-defined]


def test_a_clients_priority_is_every_requests_and_goes_before_its_class(replayed: Replayed) -> None:
    trace = drawn("priority: 9,")
    assert set(trace.column("vllm_priority").dropna()) == {9}
    _, simulated, _ = replayed(trace, policy="priority")
    assert mean_ttft(simulated, "critical") > mean_ttft(simulated, "background")


def test_a_priority_policy_on_equal_priorities_says_that_arrival_decides(replayed: Replayed) -> None:
    shown, _, told = replayed(workload(), policy="priority")
    assert "note: engine.scheduling_policy priority: all requests have the same priority" in told
    assert any("all requests have the same priority" in line for line in shown["warnings"])  # type: ignore[attr-defined]


def test_priorities_that_fcfs_ignores_are_told(replayed: Replayed) -> None:
    assert "scheduling_policy fcfs ignores it" in replayed(workload(vllm_priority=[1, 2, 3, 4]))[2]
    assert "ignores" not in replayed(workload(vllm_priority=[1, 1, 1, 1]))[2]


def test_a_measured_traces_classes_sent_no_priority() -> None:
    measured = workload(slo_class=["critical", "batch", "batch", "batch"]).with_header(mode="real")
    assert requests_from_trace(measured, block_size=16).priority.tolist() == [0, 0, 0, 0]
    (note,) = trace_notes(measured, twin(scheduling_policy="priority"))
    assert note.endswith("(a measured trace: its service classes sent none)")


# SLOs


def test_targets_of_the_specification_and_of_the_option_are_counted_by_class(
    replayed: Replayed, capsys: pytest.CaptureFixture[str]
) -> None:
    shown, trace, _ = replayed(drawn())
    good = shown["goodput"]
    assert isinstance(good, dict)
    assert set(good["by_class"]) == {"critical", "background"}
    ttft = request_metrics(trace)["ttft_us"].to_numpy()
    critical = (trace.column("slo_class") == "critical").to_numpy(dtype=bool)
    assert good["by_class"]["critical"]["num_good"] == int((ttft[critical] <= 100_000).sum())
    again = replayed(drawn(), "--slo", "ttft=1us")[0]["goodput"]
    assert isinstance(again, dict)
    assert (again["slo_us"], again["num_good"]) == ({"ttft": pytest.approx(1.0)}, 0)
    assert vtwin.main(["replay", "w", "--config", "twin.yaml", "--output", "s", "--slo", "ttft=1h"]) == 0
    assert "100.0%" in next(line for line in capsys.readouterr().out.splitlines() if line.startswith("all"))


def test_a_bad_limit_is_refused(replayed: Replayed, capsys: pytest.CaptureFixture[str]) -> None:
    replayed(workload())
    assert vtwin.main(["replay", "w", "--config", "twin.yaml", "--output", "s", "--slo", "p99=1s"]) == 2
    assert "--slo: got 'p99'" in capsys.readouterr().err


# windows


def test_a_window_measures_what_was_sent_in_it_and_finished_in_it(replayed: Replayed) -> None:
    trace = drawn()
    everything, simulated, _ = replayed(trace)
    sent = simulated.column("send_time_us").to_numpy(np.int64)
    ends = simulated.column("last_token_time_us").to_numpy(np.int64)
    low, high = 50_000, 150_000
    window, written, _ = replayed(trace, "--measure", "50ms:150ms")
    chosen = (sent >= low) & (sent < high)
    assert window["measured"] == {"from_us": low, "to_us": high, "num_requests": int(chosen.sum())}
    ttft = request_metrics(simulated)["ttft_us"].to_numpy()[chosen]
    assert window["ttft_us"]["mean"] == pytest.approx(ttft.mean())  # type: ignore[index]
    assert window["request_throughput"] == pytest.approx(((ends >= low) & (ends < high)).sum() / 0.1)
    assert (window["num_requests"], window["duration_us"]) == (60, everything["duration_us"])
    assert everything["measured"] is None
    assert written.requests.equals(simulated.requests)
    late = replayed(trace, "--warmup-frac", "0.5")[0]
    half = round(int(str(everything["duration_us"])) * 0.5)
    assert late["measured"]["from_us"] == half  # type: ignore[index]


@pytest.mark.parametrize("more", [(), ("--instances", "2")])
def test_a_window_that_holds_no_request_is_refused_and_the_run_s_end_is_said(
    replayed: Replayed, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    replayed(drawn())
    words = ["replay", "w", "--config", "twin.yaml", "--output", "late", *more]
    assert vtwin.main([*words, "--measure", "1000000s:"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    told = r"--measure: got a time from 278 h in which no request is sent, expected one before the run ends, at \d"
    assert re.search(told, said), said


def test_a_window_behind_a_run_s_end_holds_nothing() -> None:
    window = parse_measured("1000000s:", None).window(duration_us=1_142_000)
    assert window is not None
    assert window.to_us > window.from_us == 10**12
    with pytest.raises(ConfigError, match="from_us: got -1, expected an integer from 0"):
        MeasuredPart(from_us=-1)


@pytest.mark.parametrize(
    ("measure", "frac", "expected"),
    [
        ("10s:20s", None, MeasuredPart(from_us=10_000_000, to_us=20_000_000)),
        ("10s:", None, MeasuredPart(from_us=10_000_000)),
        (":500ms", None, MeasuredPart(from_us=0, to_us=500_000)),
        (None, 0.1, MeasuredPart(warmup_frac=0.1)),
        (None, None, MeasuredPart()),
    ],
)
def test_a_window_is_read(measure: str | None, frac: float | None, expected: MeasuredPart) -> None:
    assert parse_measured(measure, frac) == expected


@pytest.mark.parametrize(
    ("measure", "frac"), [("10s", None), ("20s:10s", None), ("a:b", None), ("1s:2s", 0.1), (None, 1.0)]
)
def test_a_window_that_cannot_be_is_refused(measure: str | None, frac: float | None) -> None:
    with pytest.raises(ConfigError, match=r"^--(measure|warmup-frac)"):
        parse_measured(measure, frac)


# caps


def test_a_cap_that_the_header_does_not_say_may_be_given(replayed: Replayed) -> None:
    def most_in_flight(trace: Trace) -> int:
        sent, ends = (
            trace.column(name).to_numpy(np.int64) for name in ("send_time_us", "last_token_time_us")
        )
        return max(int(((sent <= t) & (t < ends)).sum()) for t in sent)

    assert most_in_flight(replayed(drawn())[1]) > 3
    assert most_in_flight(replayed(drawn(), "--max-concurrency", "3")[1]) == 3


def test_a_cap_goes_with_due_times_only() -> None:
    loop = workload().with_header(closed_loop=ClosedLoop(concurrency=2, think_time_us=0))
    for trace, how in ((loop, "auto"), (workload(), "open")):
        with pytest.raises(ConfigError, match=r"^--max-concurrency: cannot be combined with "):
            pacing_of(trace, how, max_concurrency=2)  # type: ignore[arg-type]


# what comes out


def test_a_simulated_trace_says_where_the_servers_time_went(replayed: Replayed) -> None:
    _, trace, _ = replayed(drawn())
    queue, prefill, decode = (
        trace.column(f"server_{name}_us").to_numpy(np.int64) for name in ("queue", "prefill", "decode")
    )
    whole = request_metrics(trace)["e2e_us"].to_numpy()
    in_step = whole - (queue + prefill + decode + 300)  # alpha0: the way in; then the step under way goes on
    assert in_step.min() == 0
    assert 0 < in_step.max() < prefill.max()
    assert queue.max() > 10_000


def test_answers_that_max_model_len_cuts_are_marked_and_counted() -> None:
    trace, simulation = simulate_trace(
        workload(output_tokens=[5, 90, 5, 90]), twin(max_model_len=100), record="tokens"
    )
    assert trace.column("length_capped").fillna(False).tolist() == [False, True, False, True]
    assert trace.column("output_tokens").tolist() == [5, 36, 5, 36]
    summary = summarize(simulation, trace)
    assert summary["num_length_capped"] == 2
    assert "2 answers, by engine.max_model_len" in str(summary_parts(summary))


def test_drafts_are_counted_in_the_summary_and_at_metrics() -> None:
    config = twin(num_speculative_tokens=3, synthetic_acceptance_rates=(0.8,), num_lookahead_tokens=3)
    trace, simulation = simulate_trace(workload(output_tokens=[200] * 4), config)
    summary = summarize(simulation, trace, engine=config.engine)
    drafts = summary["speculative"]
    assert drafts is not None
    assert drafts["num_accepted_tokens"] < drafts["num_draft_tokens"]
    # each of three drafts is accepted if all before it are: 1 + 0.8 + 0.8² + 0.8³
    assert drafts["mean_accepted_length"] == pytest.approx(1 + 0.8 + 0.64 + 0.512, rel=0.1)
    assert "tokens drafted" in str(summary_parts(summary))
    assert (
        summarize(*reversed(simulate_trace(workload(), twin())), engine=twin().engine)["speculative"] is None
    )  # type: ignore[misc]
    view = view_of(simulation.written.state)
    page = exposition([Metrics()], [view], engines=[config.engine], model="m", num_instances={})
    assert "vllm:spec_decode_num_draft_tokens_total{" in page
    assert "vllm:spec_decode_num_accepted_tokens_total{" in page
    drafts = re.search(r"vllm:spec_decode_num_drafts_total\{.*\} ([\d.]+)", page)
    assert drafts is not None
    assert float(drafts[1]) == view.num_draft_tokens / 3


@pytest.mark.parametrize("column", ["adapter", "model"])
@pytest.mark.parametrize(
    "shared",
    [
        {"prefix_group": "g", "prefix_length": 64, "input_tokens": 0},
        {"prefix_hashes": "1 2 3 4"},
    ],
)
def test_adapters_and_models_share_no_prefix(column: str, shared: dict[str, object]) -> None:
    alike = requests_from_trace(workload(**shared), block_size=16)
    told_apart = requests_from_trace(workload(**shared, **{column: ["a", "b", "a", None]}), block_size=16)
    assert (alike.hash_offsets == told_apart.hash_offsets).all()
    rows = told_apart.hash_ids.reshape(4, 4)
    assert (rows[0] == rows[2]).all()
    assert len({tuple(row) for row in rows.tolist()}) == 3
    assert len(np.unique(rows)) == 12
    assert len(np.unique(alike.hash_ids)) == 4


def test_what_is_not_simulated_is_told() -> None:
    trace = workload(
        model=["a", "b", "a", "b"],
        instance=["0", "1", "0", "1"],
        adapter=["x", None, None, None],
        image_tokens=[0, 30, 0, 0],
        streaming=[True, False, True, True],
    )
    notes = trace_notes(trace, twin())
    begins = ["model: ", "instance: ", "image tokens ", "adapter: 1 LoRA adapter;", "streaming: 1 requests"]
    assert [note.startswith(begin) for note, begin in zip(notes, begins, strict=True)] == [True] * 5
    assert trace_notes(workload(), replace(twin(), seed=3)) == ()


# -- deadlines and horizons -----------------------------------------------------------------------------------


def test_who_is_late_is_given_up_and_counted(replayed: Replayed) -> None:
    """Two at a time, 5 ms a step, ten tokens: the last pairs are past their 120 ms."""
    n = 8
    crowd = make_trace(
        Header(mode="generated"),
        {
            "request_id": [str(i) for i in range(n)],
            "arrival_time_us": np.zeros(n, np.int64),
            "input_tokens": np.full(n, 10),
            "output_tokens": np.full(n, 10),
            "deadline_us": np.full(n, 120_000),
        },
    )
    shown, simulated, notes = replayed(crowd)
    assert shown["num_by_status"] == {"ok": 4, "timeout": 4}
    late = simulated.column("status") == "timeout"
    assert simulated.column("last_token_time_us")[late].isna().all()
    assert (simulated.column("last_token_time_us")[~late] <= 120_000).all()
    assert "deadline" not in notes


def test_the_deadline_is_the_client_s_beyond_its_network() -> None:
    """Alone the answer takes 25,980 µs at the server, and 200,000 back and forth."""
    for deadline_us, status in ((225_979, "timeout"), (225_980, "ok")):
        late = workload(
            network_rtt_us=[200_000] * 4,
            arrival_time_us=np.arange(4) * 1_000_000,
            deadline_us=[deadline_us, None, None, None],
        )
        simulated, _ = simulate_trace(late, twin())
        assert simulated.column("status").tolist() == [status, "ok", "ok", "ok"]


def test_a_horizon_leaves_the_rest_incomplete_and_says_what_it_was_doing(replayed: Replayed) -> None:
    later = workload(
        arrival_time_us=[0, 0, 0, 500_000], output_tokens=[5, 40, 40, 40], input_tokens=[1, 64, 64, 64]
    )
    shown, simulated, _ = replayed(later, "--horizon", "100ms")
    assert shown["num_by_status"] == {"incomplete": 3, "ok": 1}
    assert shown["incomplete"] == {
        "num_running": 2,
        "num_waiting": 0,
        "num_in_gateway": 0,
        "num_unsent": 1,
    }
    assert shown["duration_us"] == 100_000
    assert simulated.column("send_time_us").isna().tolist() == [False, False, False, True]
    assert simulated.column("arrival_time_us").tolist() == [0, 0, 0, 500_000]


def test_a_horizon_beyond_the_end_changes_nothing(replayed: Replayed) -> None:
    shown, _, _ = replayed(workload(), "--horizon", "10m")
    plain, _, _ = replayed(workload())
    of_the_simulator = {"engine_cpu_s": 0, "num_jumps": 0}  # a run without a horizon may count blocks
    assert shown | of_the_simulator == plain | of_the_simulator
    assert shown["incomplete"] is None


@pytest.mark.parametrize("text", ["0", "soon"])
def test_a_horizon_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--horizon: got"):
        parse_horizon(text)


def test_steps_are_described() -> None:
    """Alone: one prefill of 64 tokens and four decodes; each of four requests, far apart."""
    trace, simulation = simulate_trace(workload(arrival_time_us=np.arange(4) * 1_000_000), twin())
    steps = summarize(simulation, trace)["steps"]
    assert steps["num_seqs"]["mean"] == 1
    assert steps["duration_us"]["p50"] == pytest.approx(5010, rel=0.002)
    assert steps["duration_us"]["p99"] == pytest.approx(5640, rel=0.002)
    assert steps["duration_us"]["mean"] == pytest.approx((5640 + 4 * 5010) / 5, rel=0.002)


def test_time_preempted_is_in_the_trace_and_the_summary() -> None:
    config = twin(num_gpu_blocks=11, scheduler_reserve_full_isl=False, enable_prefix_caching=False)
    trace, simulation = simulate_trace(workload(output_tokens=[60] * 4), config)
    gone = (trace.column("num_preemptions") > 0).to_numpy(dtype=bool)
    assert gone.any()
    assert not gone.all()
    preempted_us = trace.column("preempted_us").to_numpy(np.int64)
    assert (preempted_us[gone] > 0).all()
    assert (preempted_us[~gone] == 0).all()
    summary = summarize(simulation, trace)
    assert summary["preempted_us"]["mean"] == pytest.approx(preempted_us[gone].mean())


# -- grammars, adapters, encoders -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "settings"),
    [
        ("guided", {"guided_compile_us": 40_000}),
        ("guided", {"guided_mask_us": 900.0}),
        ("image_tokens", {"encoder_token_us": 100.0}),
        ("video_tokens", {"encoder_token_us": 100.0}),
        ("adapter", {"max_loras": 1, "lora_load_us": 9000}),
        ("adapter", {"max_loras": 1, "lora_step_factor": 1.5}),
    ],
)
def test_what_a_trace_says_costs_what_the_settings_say_and_is_noted_where_they_say_nothing(
    column: str, settings: dict[str, object]
) -> None:
    values = {"guided": [True, False, True, False], "adapter": ["a", "b", None, "a"]}
    trace = workload(**{column: values.get(column, [30, 0, 0, 30])})
    free, _ = simulate_trace(trace, twin())
    costly, _ = simulate_trace(trace, twin(**settings))
    ends = [each.column("last_token_time_us").to_numpy(np.int64) for each in (free, costly)]
    assert ends[1].max() > ends[0].max()
    name = "image tokens" if column == "image_tokens" else column.replace("_", " ")
    assert [note for note in trace_notes(trace, twin()) if note.startswith(name)]
    assert trace_notes(trace, twin(**settings)) == ()
    plain = simulate_trace(workload(), twin(**settings))[0].column("last_token_time_us")
    assert plain.tolist() == simulate_trace(workload(), twin())[0].column("last_token_time_us").tolist()


def test_an_image_without_a_content_is_no_other_s() -> None:
    """Whatever contents are called: the first image here is the number 0 of the trace."""
    images = requests_from_trace(
        workload(images=["0:2 3:2::0 6:2:0", None, None, None]), block_size=16
    ).images
    assert images is not None
    assert images.content.tolist() == [0, 1, 2]


def test_images_are_encoded_where_they_stand_and_stay_in_proportion() -> None:
    """The second request shows the first one's cat; what else its image_tokens count has no place."""
    trace = workload(images=["0:20:cat 30:5", "1:20:cat", None, None], image_tokens=[25, 30, 0, 7])
    requests = requests_from_trace(trace, block_size=16)
    images = requests.images
    assert images is not None
    assert images.counts.tolist() == [2, 1, 0, 0]
    assert list(zip(images.position, images.num_tokens, images.content, strict=True)) == [
        (0, 20, 0),
        (30, 5, 1),
        (1, 20, 0),
    ]
    assert requests.encoder_tokens is not None
    assert requests.encoder_tokens.tolist() == [25, 30, 0, 7]
    ends = [
        simulate_trace(trace, twin(**settings))[0].column("last_token_time_us").max()
        for settings in (
            {},
            {"encoder_token_us": 100.0},
            {"encoder_token_us": 100.0, "language_model_only": True},
        )
    ]
    assert ends[0] == ends[2] < ends[1]
    assert scale_lengths(trace, prompt=0.5).cells("images").values.tolist() == [
        "0:10:cat 15:2",
        "0:10:cat",
        None,
        None,
    ]
    assert clip_lengths(trace, prompt=32).cells("images").values.tolist() == [
        "0:20:cat",
        "1:20:cat",
        None,
        None,
    ]


def test_requests_that_are_not_answered_are_told_with_the_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("twin.yaml").write_text(
        TWIN.replace("POLICY", "fcfs").replace("max_num_seqs: 2,", "max_num_seqs: 2, max_model_len: 100,")
    )
    lengths = ["--prompt-tokens", "60", "--prompt-tokens-stdev", "40", "--output-tokens", "5", "--seed", "1"]
    assert vtwin.main(["run", "--config", "twin.yaml", "--rate", "5", "--num-requests", "50", *lengths]) == 0
    said = capsys.readouterr().err
    assert re.search(r"note: \d+\.\d% of the requests are not answered \(\d+ rejected\): every latency", said)


def test_an_interrupted_run_is_told_to_be_one() -> None:
    trace = workload()
    cut = replace(trace, header=replace(trace.header, client=ClientInfo(interrupted=True)))
    twin = TwinConfig(engine=EngineConfig(), latency=Blackbox(beta0=1))
    assert any("interrupted" in note for note in trace_notes(cut, twin))
    assert not any("interrupted" in note for note in trace_notes(trace, twin))


def test_a_short_result_of_vllm_bench_is_named_with_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({"completed": 3, "mean_ttft_ms": 12.5}))
    with pytest.raises(TraceError, match="--save-detailed"):
        read_recorded(path)


@pytest.mark.parametrize(
    ("model", "limit", "images", "said"),
    [
        ("Qwen/Qwen3-VL-8B-Instruct", 8192, "0:16384", ""),
        (
            "Qwen/Qwen3-VL-8B-Instruct",
            8192,
            "0:16385 16385:9",
            "1 of more than 16,384 tokens (the largest has 16,385)",
        ),
        ("Qwen/Qwen3-VL-8B-Instruct", 20000, "0:16385", "processor makes 16,384 at most"),
        ("Qwen/Qwen3-VL-8B-Instruct", 20000, "0:20001", "1 of more than 20,000 tokens"),
        ("google/gemma-4-26B-A4B", 8192, "0:1121", "processor makes 1,120 at most"),
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", 30000, "0:16390", ""),  # whose largest is not known
        ("Qwen/Qwen3-8B", 8192, "0:99999", ""),  # who sees nothing
    ],
)
def test_images_that_vllm_would_refuse_are_told(
    model: str, limit: int, images: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(
        f"engine: {{max_num_batched_tokens: {limit}, num_gpu_blocks: 90000}}\nhardware: {{gpu: H200}}\n"
        f"latency: {{model: roofline, model_config: {model}}}\n"
    )
    notes = trace_notes(workload(images=[images, None, None, None]), load_config(path))
    found = [note for note in notes if "largest has" in note]
    assert len(found) == bool(said)
    assert said in "".join(found)
    config = load_config(path, settings=[Setting("engine.language_model_only", "true")])
    assert not [
        note
        for note in trace_notes(workload(images=[images, None, None, None]), config)
        if "largest has" in note
    ]


def test_images_of_a_trace_ask_for_the_engine_that_encodes_them() -> None:
    """So that the plain one is not compiled for nothing, nor the whole one while the simulation's time is taken."""
    seen, none = workload(images=["0:20", None, None, None]), workload(image_tokens=[20, 0, 0, 0])
    assert variants_of(twin(), seen) == ("whole",)
    assert variants_of(twin(), none) == variants_of(twin()) == ("plain",)
    assert variants_of(twin(language_model_only=True), seen) == ("plain",)


@pytest.mark.parametrize(
    "column",
    [
        {"adapter": ["a", None, None, None]},
        {"guided": [True, False, False, False]},
        {"image_tokens": [20, 0, 0, 0]},
    ],
)
def test_what_costs_time_asks_for_the_engine_that_charges_it(column: dict[str, list[object]]) -> None:
    """Of a trace that has any; of a server, for what may come."""
    charging = twin(lora_load_us=10, guided_mask_us=1, encoder_token_us=1)
    assert variants_of(charging, workload(**column)) == ("whole",)
    assert variants_of(twin(), workload(**column)) == ("plain",)
    assert variants_of(charging, workload()) == variants_of(charging) == ("plain",)
    assert variants_of(charging, takes_any=True) == ("whole",)
    assert variants_of(twin(), takes_any=True) == ("plain",)
