"""What the page of coverage says is complete, and it is so: each row is tried."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from replay import TwinConfig, pacing_of, run, simulate_trace
from replay.fleet.check.cluster_load import load_of
from replay.fleet.check.drawn_requests import Stream
from replay.fleet.inputs.fleet_workload import workload_of_trace
from replay.trace.simulation_summary import summarize
from replay.trace.trace_notes import trace_notes
from replay.twin.start.flag_table import FLAGS, KnownFlag
from replay.twin.start.from_serve import start_from_serve, twin_text
from sim import Blackbox, EngineConfig
from tests.docs.coverage import coverage_page
from tests.docs.coverage_rows.column_coverage import COLUMN_COVERAGE, HEADER_COVERAGE
from tests.docs.coverage_rows.fleet_coverage import FLEET_COVERAGE
from tests.docs.coverage_rows.observed_columns import COLUMN_COVERAGE as OBSERVED
from tests.docs.coverage_rows.spec_coverage import COLUMNS_OF, DRAWN, OTHERWISE, spec_coverage
from tests.docs.reference_pages.workload_spec_page import SECTIONS
from traces import Header, Trace, has_tree, make_trace
from traces.errors import ConfigError
from traces.header import KVOffload, ServerInfo, SpecDecode
from traces.schema import FIELDS
from traces.workload import synth
from traces.workload.spec.fields import Section, key, text
from traces.workload.spec.spec_read import parse_spec

# complete


def test_every_column_and_every_header_key_has_a_row() -> None:
    assert set(COLUMN_COVERAGE) == set(FIELDS) == set(OBSERVED)
    assert set(HEADER_COVERAGE) == {field.name for field in fields(Header)}


def test_every_key_of_a_specification_has_one_row_and_no_row_is_of_no_key() -> None:
    sections = {title: keys for title, _, keys in SECTIONS}
    known = {f"{title}.{name}" for title, keys in sections.items() for name in keys}
    assert {where for where, _ in spec_coverage(sections)} == known
    drawn = [f"{title}.{name}" for title, names in DRAWN.items() for name in names]
    rows = [*drawn, *COLUMNS_OF, *OTHERWISE]
    assert set(rows) <= known
    assert len(rows) == len(set(rows))


def test_a_new_key_without_a_row_fails() -> None:
    new: Mapping[str, Section] = {"A client": {"new_key": key(text, "text", "New.")}}
    with pytest.raises(KeyError):
        list(spec_coverage(new))


def test_the_page_has_every_name() -> None:
    page = coverage_page()
    for name in (*FIELDS, *(f"--{flag}" for flag in FLAGS), *HEADER_COVERAGE):
        assert f"| `{name}` |" in page


# columns behave as their rows say

TWIN = TwinConfig(
    engine=EngineConfig(
        async_scheduling=False, scheduling_policy="priority", max_num_seqs=2, num_gpu_blocks=200
    ),
    latency=Blackbox(alpha0=300, beta0=5000, beta1=100, beta2=100),
)
ASYNC = replace(TWIN, engine=replace(TWIN.engine, async_scheduling=True))
"""Where an end that nobody has seen yet costs a step."""
SEES_LITTLE = replace(TWIN, engine=replace(TWIN.engine, max_num_encoder_input_tokens=1))
"""A step encodes one image."""
TWINS = {"finish_reason": ASYNC, "images": SEES_LITTLE}
SAMPLES: dict[str, list[Any]] = {
    "vllm_priority": [3, 2, 1, 0],
    "slo_class": ["background", "batch", "standard", "critical"],
    "session_id": ["a", "a", "b", "b"],
    "round_index": [0, 1, 0, 1],
    "think_time_us": [None, 500, None, 500],
    "prefix_group": ["g"] * 4,
    "prefix_length": [32] * 4,
    "prefix_hashes": ["1 2 3", "1 2 4", "1 2 5", "1 2 6"],
    "new_input_tokens": [64, 30, 64, 30],
    "parent_request_id": [None, "0", None, "2"],
    "awaited_request_ids": [None, "0", None, "2"],
    "num_parent_hashes": [None, 2, None, 2],
    "streaming": [False] * 4,
    "model": ["a", "b", "a", "b"],
    "adapter": ["a", None, "a", None],
    "instance": ["0", "1", "0", "1"],
    "phase": ["warmup", "main", "main", "main"],
    "status": ["error", "ok", "ok", "ok"],
    "server_input_tokens": [80] * 4,
    "slo_target_us": [1] * 4,
    "network_bandwidth_mbps": [0.01] * 4,
    "reason_ratio": [0.5] * 4,
    "guided": [True] * 4,
    "length_capped": [True] * 4,
    "deadline_us": [400_000, 20_000, 400_000, 400_000],
    "cancel_after_us": [400_000, 20_000, 400_000, 400_000],
    "cancel_after_tokens": [9, 2, 9, 9],
    "arrival_time_us": [5, 6000, 12000, 18000],
    "input_tokens": [99] * 4,
    "output_tokens": [9] * 4,
    "request_id": ["w", "x", "y", "z"],
    "images": ["0:20 20:20"] * 4,
}
TOGETHER: dict[str, tuple[str, ...]] = {
    "session_id": ("round_index",),
    "round_index": ("session_id",),
    "think_time_us": ("session_id", "round_index"),
    "prefix_group": ("prefix_length",),
    "prefix_length": ("prefix_group",),
    "new_input_tokens": ("session_id", "round_index"),
    "parent_request_id": ("session_id",),
    "awaited_request_ids": ("session_id",),
    "num_parent_hashes": ("session_id", "parent_request_id", "prefix_hashes"),
    "max_tokens": ("status",),
}
"""Columns that mean something with others only."""


def sample(name: str) -> list[Any]:
    if name in SAMPLES:
        return SAMPLES[name]
    return ["x"] * 4 if FIELDS[name].dtype == "string" else [7_000_000, 7_000_001, 7_000_002, 7_000_003]


def workload(*names: str) -> Trace:
    usual: dict[str, Any] = {
        "request_id": [str(i) for i in range(4)],
        "arrival_time_us": np.arange(4) * 100,
        "input_tokens": [64] * 4,
        "output_tokens": [5] * 4,
    }
    header = Header(mode="generated", hash_block_size=16)
    return make_trace(header, usual | {name: sample(name) for name in names})


def told(trace: Trace) -> tuple[str, ...]:
    return trace_notes(trace, TWIN, pacing_of(trace))


def shown(trace: Trace, twin: TwinConfig = TWIN) -> Mapping[str, object]:
    """Return what a simulation came to, but for its cost."""
    if has_tree(trace.table):  # requests that wait for answers
        done = run(trace, twin)
        simulated, simulation = done.trace, done.simulation
    else:
        simulated, simulation = simulate_trace(trace, twin)
    summary = {
        name: value for name, value in summarize(simulation, simulated).items() if name != "engine_cpu_s"
    }
    return summary | {
        "rows": simulated.requests[["first_chunk_time_us", "last_chunk_time_us"]]
        .astype(str)
        .to_numpy()
        .tolist()
    }


@pytest.mark.parametrize("name", [n for n, it in COLUMN_COVERAGE.items() if it.treatment == "modelled"])
def test_a_modelled_column_changes_what_is_simulated(name: str) -> None:
    others = TOGETHER.get(name, ())
    without = workload(*others) if name != "new_input_tokens" else workload()
    if name in ("prefix_group", "prefix_length"):
        without = workload()
    twin = TWINS.get(name, TWIN)
    assert shown(workload(*others, name), twin) != shown(without, twin), name


@pytest.mark.parametrize("name", [n for n, it in COLUMN_COVERAGE.items() if it.treatment == "kept"])
def test_a_kept_column_changes_nothing_and_is_carried_along(name: str) -> None:
    with_it = workload(name)
    assert shown(with_it) == shown(workload())
    simulated, _ = simulate_trace(with_it, TWIN)
    assert simulated.requests[name].tolist() == with_it.requests[name].tolist()
    assert told(with_it) == told(workload())


@pytest.mark.parametrize("name", [n for n, it in COLUMN_COVERAGE.items() if it.treatment == "noted"])
def test_a_noted_column_is_told_by_a_line(name: str) -> None:
    given = workload(*TOGETHER.get(name, ()), name)
    given = given.with_columns(send_time_us=given.column("arrival_time_us"))
    new = set(told(given)) - set(told(workload()))
    subject = {"round_index": "session_id"}.get(name, name.removesuffix("_tokens"))
    assert any(subject in line for line in new), new


@pytest.mark.parametrize("name", [n for n, it in COLUMN_COVERAGE.items() if it.treatment == "filled"])
def test_a_filled_column_has_the_simulations_value(name: str) -> None:
    with_it, without = (simulate_trace(trace, TWIN)[0] for trace in (workload(name), workload()))
    assert with_it.column(name).astype(str).tolist() == without.column(name).astype(str).tolist()


@pytest.mark.parametrize("name", [n for n, it in COLUMN_COVERAGE.items() if it.treatment == "left out"])
def test_a_column_that_is_left_out_is_not_in_the_simulated_trace(name: str) -> None:
    simulated, _ = simulate_trace(workload(name), TWIN)
    assert name not in simulated.requests.columns


def test_what_the_header_notes_is_told() -> None:
    drafts = SpecDecode(num_drafts=10, num_draft_tokens=30, num_accepted_tokens=15, mean_accepted_length=2.5)
    for name, value in (("spec_decode", drafts), ("kv_offload", KVOffload(cpu_bytes_to_use=1))):
        given = workload().with_header(**{name: value})  # type: ignore[arg-type]
        assert any(line.startswith(f"{name}: ") for line in told(given))


def test_a_server_of_other_flags_is_told() -> None:
    server = ServerInfo(max_num_seqs=2, block_size=32, enable_prefix_caching=False, model="m")
    measured = workload().with_header(mode="real", server=server)
    (note,) = set(told(measured)) - set(told(workload().with_header(mode="real")))
    assert note == (
        "server: the trace's server had block_size 32, enable_prefix_caching false; the twin has 16, true"
    )
    assert not any(line.startswith("server:") for line in told(workload().with_header(server=server)))


# the network of a client


def test_a_clients_network_delays_first_and_last_tokens_and_nothing_of_the_server() -> None:
    columns = {"network_rtt_us": [10_001] * 4, "network_bandwidth_mbps": [0.4] * 4}
    near = workload()
    far = near.with_columns(**columns)
    upload, download = round(64 * 32 / 0.4), round(5 * 32 / 0.4)
    for record in ("spans", "tokens"):
        a, b = (simulate_trace(trace, TWIN, record=record)[0] for trace in (near, far))  # type: ignore[arg-type]
        for name, later in (
            ("first_chunk_time_us", 10_001 + upload),
            ("last_token_time_us", 10_001 + upload + download),
        ):
            assert (b.column(name) - a.column(name)).tolist() == [later] * 4
        assert b.column("send_time_us").tolist() == a.column("send_time_us").tolist()
        for name in ("server_queue_us", "server_prefill_us", "server_decode_us"):
            assert b.column(name).tolist() == a.column(name).tolist()
    assert b.events is not None
    last = b.events.groupby("request_id")["timestamp_us"].max()
    assert last.loc[b.requests["request_id"].tolist()].tolist() == b.column("last_token_time_us").tolist()


def test_a_client_gives_up_before_it_has_seen_what_is_on_its_way() -> None:
    near = workload()
    last = simulate_trace(near, TWIN)[0].column("last_token_time_us")
    on_time = near.with_columns(deadline_us=last + 1)
    assert set(simulate_trace(on_time, TWIN)[0].column("status")) == {"ok"}
    far = on_time.with_columns(network_rtt_us=[40_000] * 4)
    assert "timeout" in set(simulate_trace(far, TWIN)[0].column("status"))
    patient = far.with_columns(deadline_us=last + 40_001)
    assert set(simulate_trace(patient, TWIN)[0].column("status")) == {"ok"}


def test_a_network_where_answers_set_the_pace_is_told() -> None:
    given = workload().with_columns(network_rtt_us=[10_000] * 4)
    pacing = pacing_of(given, max_concurrency=1)
    assert any(line.startswith("network_rtt_us") for line in trace_notes(given, TWIN, pacing))
    near, far = (simulate_trace(trace, TWIN, max_concurrency=1)[0] for trace in (workload(), given))
    assert far.column("last_token_time_us").tolist() == near.column("last_token_time_us").tolist()


# specifications

SPEC = """\
category: multimodal
aggregate_rate: 50
num_requests: 200
goodput_slo_targets: {batch: {ttft_ms: 100}}
clients:
- id: all
  tenant_id: t
  slo_class: batch
  priority: 3
  model: m
  adapter: a
  arrival: {process: gamma, shape: 0.5, scale: 2000}
  multimodal:
    text_distribution: {type: constant, params: {value: 5}}
    image_distribution: {type: constant, params: {value: 50}}
    image_count_distribution: {type: constant, params: {value: 2}}
    audio_distribution: {type: constant, params: {value: 60}}
    audio_count_distribution: {type: constant, params: {value: 1}}
    video_distribution: {type: constant, params: {value: 70}}
    video_count_distribution: {type: constant, params: {value: 1}}
  output_distribution: {type: uniform, params: {min: 1, max: 5}}
  prefix_group: g
  prefix_length: 20
  streaming: false
  timeout: 1000000
  slo_target_us: 50000
  guided_frac: 0.5
  network: {rtt_ms: 5, bandwidth_mbps: 10}
- id: talks
  input_distribution: {type: constant, params: {value: 10}}
  output_distribution: {type: constant, params: {value: 5}}
  reasoning:
    reason_ratio_distribution: {type: constant, params: {value: 50}}
    multi_turn: {max_rounds: 3, think_time_us: "lognormal:mu=1,sigma=0.5", context_growth: accumulate}
"""


def test_every_key_that_fills_a_column_fills_it() -> None:
    trace = synth(parse_spec(SPEC, source="spec"), seed=1)
    for columns in COLUMNS_OF.values():
        for column in columns:
            assert trace.column(column).notna().any(), column
    assert trace.header.goodput_slo_targets["batch"].ttft_ms == 100


# the planner


def sent_by_fleet(trace: Trace) -> dict[str, object]:
    """Return what ``fleet`` knows of a trace: lengths and arrivals, and the requests that it simulates."""
    found = workload_of_trace(trace, name="t")
    assert found.whole is not None
    lengths = found.lengths
    stream = Stream(lengths=lengths, rate_per_s=5.0, requests=found.whole)
    load = load_of(stream, 40, TWIN.cluster, seed=1)
    requests, network = load.work.requests, load.network
    sent: dict[str, object] = {
        field.name: np.asarray(getattr(requests, field.name)).tolist()
        for field in fields(requests)
        if getattr(requests, field.name) is not None and field.name != "images"
    }
    return sent | {
        "lengths": (lengths.input_tokens.tolist(), lengths.output_tokens.tolist()),
        "arrivals": None if lengths.arrival_s is None else lengths.arrival_s.tolist(),
        "images": None if requests.images is None else requests.images.num_tokens.tolist(),
        "waits": load.work.clients is not None,
        "think": None if load.work.clients is None else repr(load.work.clients),
        "network": None if network is None else (network.there_us.tolist(), network.back_us.tolist()),
        "classes": None if load.work.slo_priority is None else load.work.slo_priority.tolist(),
    }


FLEET_TOGETHER = TOGETHER | {
    "model": ("prefix_group", "prefix_length"),
    "session_id": ("round_index", "think_time_us"),
    "round_index": ("session_id", "think_time_us"),
    "status": ("max_tokens",),
    "parent_request_id": ("session_id", "round_index"),
    "awaited_request_ids": ("session_id", "round_index"),
}


@pytest.mark.parametrize("name", [n for n, it in FLEET_COVERAGE.items() if it.use != "not used"])
def test_a_column_that_fleet_uses_changes_what_it_sends(name: str) -> None:
    others = FLEET_TOGETHER.get(name, ())
    alone = name in ("prefix_group", "prefix_length", "new_input_tokens", "session_id", "round_index")
    without = workload() if alone else workload(*others)
    assert sent_by_fleet(workload(*others, name)) != sent_by_fleet(without), name


@pytest.mark.parametrize("name", [n for n, it in FLEET_COVERAGE.items() if it.use == "not used"])
def test_a_column_that_fleet_does_not_use_changes_nothing(name: str) -> None:
    if name == "num_parent_hashes":  # means nothing without what it counts in
        return
    assert sent_by_fleet(workload(name)) == sent_by_fleet(workload()), name


# flags

VALUES = {
    "scheduling-policy": "priority",
    "speculative-config": '{"method":"eagle","num_speculative_tokens":2}',
}
VALUES["kv-transfer-config"] = json.dumps(
    {"kv_connector": "OffloadingConnector", "kv_connector_extra_config": {"cpu_bytes_to_use": 2**33}}
)
VALUES |= {
    "dtype": "bfloat16",
    "kv-cache-dtype": "fp8",
    "all2all-backend": "naive",
    "mamba-cache-mode": "align",
}
BY_KIND = {"integer": "2", "interval": "none", "fraction": "0.5", "number": "2", "text": "x", "choice": "x"}


def written(name: str, flag: KnownFlag) -> str:
    if flag.kind == "switch":
        return f"--{name}"
    return f"--{name} '{VALUES.get(name, BY_KIND.get(flag.kind, 'x'))}'"


@pytest.mark.parametrize("name", [name for name in FLAGS if name != "model"])
def test_a_flag_is_what_its_row_says(name: str) -> None:
    flag = FLAGS[name]
    command = f"vllm serve Qwen/Qwen3-30B-A3B {written(name, flag)} --new-flag"
    if flag.treatment == "refused":
        with pytest.raises(ConfigError, match=f"--{name}: got another value, expected no such flag"):
            start_from_serve(command)
        for value in flag.harmless:
            assert any(
                f"--{name} {value}: " in note
                for note in start_from_serve(f"vllm serve m --{name} {value}").notes
            )
        return
    start = start_from_serve(command)
    assert any(note.startswith("--new-flag: not in the twin") for note in start.notes)
    if flag.section == "engine" or flag.kind == "speculation":
        keys = {flag.name} if flag.name else {"num_speculative_tokens", "synthetic_acceptance_rates"}
        assert keys <= set(start.engine)
    elif flag.section:
        assert f"  {flag.name}: " in twin_text(start, gpu="H100")[0]
        assert any(note.startswith(f"--{name}") for note in twin_text(start)[1])
    else:
        assert any(note.startswith(f"--{name}") for note in start.notes)
