"""Whole files of every kind that vtwin reads, small; what is damaged begins as one of them."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from calibrate.predictor.cache import PredictedOperator, write_cached
from calibrate.predictor.training import RegressionReport, Score
from tests.calibrate.predictor import made_profiles as profiles
from tests.fuzz.mutate import Files
from tests.traces.importers.benchmarks.results_of_requests import (
    genai_bench,
    genai_perf,
    inference_perf,
    llmperf,
)
from tests.traces.importers.benchmarks.test_foreign_results import BURST, RESULT, record
from tests.traces.importers.benchmarks.test_guidellm import POISSON, report
from tests.traces.importers.logs.test_logs import CHATS, NEW_BURST, PANDAS_AZURE
from tests.traces.importers.otel.spans import chat, lines, protobuf, vllm
from tests.traces.importers.simulators.test_llmservingsim_workload import call, flat, session
from tests.traces.importers.test_servegen import LENGTHS, OTHER, TRACE
from tests.traces.made import BLIS, SAMPLES, events_of, small_trace

ROOT = Path(__file__).parents[2]


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1).encode()


def _written(write: Callable[[Path], object]) -> Files:
    """Return the files that ``write`` leaves in a folder."""
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        return {
            str(path.relative_to(name)): path.read_bytes() for path in Path(name).rglob("*") if path.is_file()
        }


def tools() -> list[Files]:
    """Return files of tools, as the chat API has them."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    some = [
        {
            "type": "function",
            "function": {"name": name, "description": "d", "parameters": schema, "strict": True},
        }
        for name in ("weather", "time")
    ]
    return [{"tools.json": _json(some)}, {"tools.json": _json(some[:1])}]


def vllm_bench() -> list[Files]:
    return [{"result.json": _json(RESULT)}]


def aiperf() -> list[Files]:
    whole = {
        "input_sequence_length": 100,
        "output_sequence_length": 3,
        "time_to_first_token": 20.5,
        "request_latency": 50.5,
        "inter_token_latency": 15.0,
        "inter_chunk_latency": [10.0, 20.0],
    }
    failed = record(30, error={"type": "Timeout", "message": "late"}, input_sequence_length=7)
    lines = [record(10, **whole), record(0, phase="warmup", **whole), failed]
    return [{"profile_export.jsonl": "\n".join(lines).encode() + b"\n"}]


def guidellm() -> list[Files]:
    return [{"benchmarks.json": _json(report(POISSON))}]


def guidellm_yaml() -> list[Files]:
    return [{"benchmarks.yaml": yaml.safe_dump(report(POISSON)).encode()}]


def otel() -> list[Files]:
    whole = [[vllm(1), vllm(2, start_s=0.5)], [chat(3, trace=9), chat(4, trace=9, failed="late")]]
    return [{"spans.json": lines(whole)}]


def otel_protobuf() -> list[Files]:
    messages = [protobuf(vllm(1), vllm(2, start_s=0.5)), protobuf(chat(3), chat(4))]
    behind = b"".join(len(each).to_bytes(4, "big") + each for each in messages)
    return [{"spans.json": messages[0]}, {"spans.json": behind}]


def llmservingsim() -> list[Files]:
    folder = SAMPLES / "llmservingsim"
    lines = (folder / "requests.jsonl").read_bytes().splitlines(keepends=True)
    return [{"requests.jsonl": b"".join(lines[:5]), "meta.json": (folder / "meta.json").read_bytes()}]


def servegen() -> list[Files]:
    slow = TRACE.replace("600,5,", "600,0.02,").replace("1200,20,", "1200,0.1,")
    plain = {"chunk-3-trace.csv": slow.encode(), "chunk-3-dataset.json": _json(LENGTHS)}
    packed = {
        "chunk-10-trace.csv.gz": gzip.compress(OTHER.replace("600,2,", "600,0.1,").encode()),
        "chunk-10-dataset.json.gz": gzip.compress(_json(LENGTHS)),
    }
    return [plain, packed]


def weka() -> list[Files]:
    text = gzip.decompress((SAMPLES / "agents" / "trace_0288.json.gz").read_bytes())
    document = json.loads(text)
    for entry in document["requests"]:
        entry["hash_ids"], entry["in"] = entry["hash_ids"][:6], 64 * len(entry["hash_ids"][:6]) + 5
    inner = [{**entry, "t": 0.0} for entry in document["requests"][:1]]
    document["requests"].insert(1, {"t": 9.0, "duration_ms": 4000, "agent_id": "x", "requests": inner})
    return [{"session.json": _json(document)}, {"session.json": gzip.compress(_json(document))}]


def mooncake() -> list[Files]:
    lines = (SAMPLES / "mooncake_conversation_200.jsonl").read_bytes().splitlines(keepends=True)
    text = b"".join(lines[:5])
    sessions = (SAMPLES / "aiperf_agentic_code_20.jsonl").read_bytes().splitlines(keepends=True)
    return [{"m.jsonl": text}, {"m.jsonl": gzip.compress(text)}, {"m.jsonl": b"".join(sessions[1:5])}]


def vidur() -> list[Files]:
    return [{"v.csv": b"arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,100,20\n1.25,30,4\n2,5,1\n"}]


def vidur_metrics() -> list[Files]:
    names = (
        "Request Id,request_e2e_time,request_scheduling_delay,prefill_e2e_time,request_num_prefill_tokens,"
        "request_num_decode_tokens,request_inter_arrival_delay,request_num_restarts"
    )
    rows = ("0,1.5,0.1,0.4,100,20,,0", "1,2.5,0.2,0.5,50,2,0.7,1", "2,,0,,10,1,0.1,0")
    return [{"request_metrics.csv": "\n".join([names, *rows, ""]).encode()}]


def csv() -> list[Files]:
    return [{"c.csv": b"t,i,o,name\n0.5,100,20,a\n1.25,30,4,b\n2,5,1,c\n"}]


def azure() -> list[Files]:
    lines = (SAMPLES / "azure_code_200.csv").read_bytes().splitlines(keepends=True)
    return [{"a.csv": b"".join(lines[:5])}]


def burstgpt() -> list[Files]:
    return [{"b.csv": BURST.encode()}]


def burstgpt_sessions() -> list[Files]:
    return [{"b.csv": NEW_BURST.encode()}]


def azure_copies() -> list[Files]:
    return [{"a.csv": PANDAS_AZURE.encode()}]


def bailian() -> list[Files]:
    return [{"q.jsonl": "".join(json.dumps(row) + "\n" for row in CHATS).encode()}]


def llmservingsim_workload() -> list[Files]:
    ids = list(range(20))
    calls = (call(ids, [50, 51], 5_000_000), call([*ids, 50, 51, 60], [9]))
    rows = [flat(46_926_808, ids, 7), flat(347_938_952, [*ids[:16], 4], 4, ids=False), session("s0", *calls)]
    return [{"w.jsonl": "".join(json.dumps(row) + "\n" for row in rows).encode()}]


def genai_perf_export() -> list[Files]:
    return [{"p.json": _json(genai_perf())}, {"p.json": _json(genai_perf(usage=False))}]


def lifecycle_metrics() -> list[Files]:
    return [{"p.json": _json(inference_perf())}]


def genai_bench_run() -> list[Files]:
    return [{"p.json": _json(genai_bench())}]


def llmperf_responses() -> list[Files]:
    return [{"p.json": _json(llmperf())}]


def blis() -> list[Files]:
    files = {name: (BLIS / name).read_bytes() for name in ("p.yaml", "p.csv", "p.itl.csv")}
    return [{name: b"".join(data.splitlines(keepends=True)[:12]) for name, data in files.items()}]


def _trace(*, suffix: str) -> Files:
    from traces import write_trace

    events = events_of([("a", 0, 400, 1), ("a", 1, 900, 4), ("b", 0, 1500, 1)])
    trace = small_trace(
        prefix_hashes=["1", None, "3"], error_message=['a "b", c', None, None], itl_mean_us=[1.5, None, 2.0]
    )
    trace = trace.with_header(hash_block_size=16)
    return _written(lambda folder: write_trace(trace.with_events(events), folder / f"t{suffix}"))


@cache
def trace_sessions() -> list[Files]:
    """Return a trace whose requests name the ones that they wait for, and say only the hashes that are new."""
    from traces import write_trace

    trace = small_trace(
        session_id=["s"] * 3,
        parent_request_id=[None, "a", "a"],
        awaited_request_ids=[None, None, "a b"],
        num_parent_hashes=[None, 1, 1],
        prefix_hashes=["1", None, "3"],
    ).with_header(hash_block_size=16)
    return [_written(lambda folder: write_trace(trace, folder / "t"))]


@cache
def trace_csv() -> list[Files]:
    return [_trace(suffix="")]


@cache
def trace_parquet() -> list[Files]:
    return [_trace(suffix=".parquet")]


def by_its_look() -> list[Files]:
    every = [vllm_bench, aiperf, guidellm, otel, mooncake, vidur, azure, burstgpt]
    return [case for made in every for case in made()]


def defaults() -> list[Files]:
    lines = (ROOT / "replay" / "twin" / "defaults.yaml").read_bytes().splitlines(keepends=True)
    start = next(i for i, line in enumerate(lines) if line.startswith(b"schema_version"))
    ends = [i for i, line in enumerate(lines) if line.startswith(b"  - model")]
    return [{"defaults.yaml": b"".join(lines[start : ends[3]])}]


def gate() -> list[Files]:
    text = """\
min_samples: 50
metrics:
  ttft_us: {p99: {warn: 0.15, fail: 0.3}}
  e2e_us: {mape: {warn: 0.05, fail: 0.1}, bias: {fail: 0.05}}
rates: {output_token_throughput: {rel_error: {fail: 0.05}}}
equivalence: {e2e_us: 0.1}
strata: {e2e_us: {mape: {fail: 0.3}}}
require_kv_capacity: false
"""
    return [{"gate.yaml": text.encode()}]


def baseline() -> list[Files]:
    estimate = {"value": 0.1, "low": 0.05, "high": 0.2}
    metric: dict[str, Any] = {"n": 100, "rel_error": {"mean": estimate, "p99": estimate}}
    metric |= dict.fromkeys(("mape", "bias", "ks", "pearson_r"), estimate)
    rates = {"output_token_throughput": {"n": 9, "rel_error": estimate, "error": estimate}}
    document = {
        "schema_version": 1,
        "holdout": {"ttft_us": metric},
        "rates": {"holdout": rates},
        "strata": [],
        "traces": [{"server": {"system_fingerprint": "x"}}],
        "fit": {"coefficients": {"beta0": estimate}},
    }
    return [{"report.json": _json(document)}]


def shipped_config_json(name: str) -> bytes:
    return (ROOT / "replay" / "model" / "configs" / name).read_bytes()


QUANTIZATIONS: tuple[dict[str, object], ...] = (
    {
        "quant_method": "compressed-tensors",
        "ignore": ["lm_head", "re:.*self_attn.*", "re:.*mlp\\.(gate|up|down)_proj.*"],
        "config_groups": {
            "group_0": {
                "targets": ["re:.*mlp\\.experts\\..*", "Linear"],
                "weights": {"num_bits": 4, "type": "float", "group_size": 16},
                "input_activations": {"num_bits": 4, "type": "float"},
            }
        },
    },
    {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "exclude_modules": ["mtp*", "*.shared_expert.*", "model.layers.1*", "model.visual.blocks.0.attn"],
        "quantized_layers": {"model.layers.0.mlp.experts": {"quant_algo": "NVFP4"}},
    },
    {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 128,
        "dynamic": {"-:.*attn.*": {}, "+:.*mlp.*": {"bits": 8}},
    },
)
"""As checkpoints name the modules that they keep otherwise."""


@cache
def model_configs() -> list[Files]:
    plain = json.loads((ROOT / "replay" / "model" / "configs" / "Qwen--Qwen3-235B-A22B.json").read_text())
    files = sorted((ROOT / "replay" / "model" / "configs").glob("*.json"))
    families = json.loads((ROOT / "tests" / "replay" / "model" / "families.json").read_text())
    return [
        *({"config.json": path.read_bytes()} for path in files),
        *({"config.json": json.dumps(each["config"], indent=2).encode()} for each in families),
        *(
            {"config.json": json.dumps({**plain, "quantization_config": each}).encode()}
            for each in QUANTIZATIONS
        ),
    ]


def drafters() -> list[Files]:
    """EAGLE heads, and MTP layers in files of whole models, which may draft as models of their own."""
    recorded = json.loads(
        (ROOT / "tests" / "replay" / "model" / "drafting" / "draft_weights.json").read_text()
    )
    found = [each["config"] for each in recorded if isinstance(each["config"], dict)]
    inside = next(each["config"] for each in recorded if each.get("method") == "eagle3")
    found.append({"transformer_layer_config": inside, "draft_vocab_size": 32000, "target_hidden_size": 4096})
    return [{"config.json": json.dumps(each, indent=2).encode()} for each in found]


def specifications() -> list[Files]:
    folder = ROOT / "tests" / "traces" / "workload" / "data"
    first = (folder / "workload_v2.yaml").read_bytes()
    second = b"""\
version: "2"
aggregate_rate: 10
num_requests: 20
clients:
  - id: a
    rate_fraction: 1
    arrival: {process: gamma, cv: 2}
    input_distribution: {type: empirical, params: {"10": 0.5, "20": 0.5}}
    output_distribution: {type: constant, params: {value: 7}}
    reasoning: {reason_ratio_distribution: {type: constant, params: {value: 20}}}
    lifecycle: {windows: [{start_us: 0, end_us: 5000000}]}
"""
    return [{"spec.yaml": first}, {"spec.yaml": second}]


TWIN = """\
vllm_version: "0.32.0"
engine:
  max_num_seqs: 64
  max_num_batched_tokens: 2048
  num_gpu_blocks: 2588
  block_size: 16
  max_model_len: 32768
  enable_prefix_caching: true
  watermark: 0.01
  scheduling_policy: fcfs
  num_speculative_tokens: 2
  synthetic_acceptance_rates: [0.8, 0.5]
latency: {model: blackbox, coefficients: {alpha0: 10.5, alpha1: 2, alpha2: 1, beta0: 5000, beta1: 10, beta2: 20}}
seed: 42
"""


def grid() -> list[Files]:
    text = """\
config: twin.yaml
set: {engine.max_num_seqs: [4, 16]}
workloads:
  short: {rate: [4, 8], prompt_tokens: 50, output_tokens: 10, num_requests: 40}
  long: {rate: 2, prompt_tokens: 400, output_tokens: 80, num_requests: 40}
seeds: 2
slo: ttft=500ms
warmup_frac: 0.1
prices: {H100: 2.5}
"""
    return [{"grid.yaml": text.encode(), "twin.yaml": TWIN.encode()}]


def prices() -> list[Files]:
    gpus = b"H100: 2.5\nA100: 1.25\nL40S: 0.5\n"
    return [{"prices.yaml": gpus}, {"prices.yaml": gpus + b"DRAM: 0.004\n"}]


def fleet_lengths() -> list[Files]:
    points = [[128, 0.2], [1024, 0.7], [4096, 1.0]]
    return [{"lengths.json": _json(points)}, {"lengths.json": _json({"cdf": points})}]


def fleet_profile() -> list[Files]:
    text = """\
w_s: 0.008
h_s: 0.00065
calibration_context: 8192
chunk_tokens: 512
block_size: 16
num_blocks: 65536
max_slots: 128
cost_per_hour: 2.21
idle_w: 100
nominal_w: 400
power_k: 1.0
power_x0: 4.0
prefill_token_s: 2.5e-05
prefill_pair_s: 1e-09
num_gpus: 2
reserves_context: false
"""
    return [{"profile.yaml": text.encode()}]


def fleet_pools() -> list[Files]:
    text = """\
router: {router}
failures: [{{name: gpu, per_node_day: 0.0065, repair: 4h}}]
pools:
  - {{name: short, profile: A100, up_to: 2048, share: 0.7, takes: [small]}}
  - {{name: long, profile: H100, price: 4.5, takes: [large], failures: [{{per_node_day: 0.1, repair: 30m}}]}}
"""
    return [{"pools.yaml": text.format(router=name).encode()} for name in ("length", "random")]


def fleet_labels() -> list[Files]:
    labels = "request_id,label\na,small\nb,large\nc,small\n"
    return [{**_trace(suffix=""), "labels.csv": labels.encode()}]


def diurnal() -> list[Files]:
    rates = [40 + 3 * hour for hour in range(24)]
    return [{"day.txt": "\n".join(map(str, rates)).encode()}, {"day.txt": _json(rates)}]


def failures() -> list[Files]:
    text = "failures:\n  - {name: gpu, per_node_day: 0.0065, repair: 4h}\n  - {per_node_day: 0.001, repair: 48h}\n"
    return [{"failures.yaml": text.encode()}, {"option.txt": b"0.0065:4h,0.001:48h"}]


@cache
def _sweep_runs() -> tuple[Files, dict[str, dict[str, Any]]]:
    """Return a grid with its twin, and a row of each of its runs, as if simulated."""
    from replay.sweeps.grid import read_grid

    files = grid()[0]
    with tempfile.TemporaryDirectory() as name:
        for file, data in files.items():
            (Path(name) / file).write_bytes(data)
        runs = read_grid(Path(name) / "grid.yaml").runs
    figures = {
        "error": None,
        "num_requests": 40,
        "engine_cpu_s": 0.01,
        "verdict": "stable",
        "unanswered": None,
    }
    rows = {
        run.digest: {"run": run.digest, **run.columns(), **figures, "ttft_us.p99": 1000.5 + number}
        for number, run in enumerate(runs)
    }
    return files, rows


@cache
def sweep_digests() -> frozenset[str]:
    from replay.sweeps.sweep_table import digest_of

    return frozenset(map(digest_of, _sweep_runs()[1].values()))


@cache
def sweep_rows() -> list[Files]:
    """A sweep that was cut short, with its rows waiting, and one that has its table."""
    from replay.sweeps.grid import read_grid
    from replay.sweeps.sweep_table import keep, write_table

    files, rows = _sweep_runs()
    few = list(rows.values())[:3]

    def finished(folder: Path) -> None:
        for file, data in files.items():
            (folder / file).write_bytes(data)
        write_table(folder / "table.parquet", read_grid(folder / "grid.yaml").runs, rows)

    def cut_short(folder: Path) -> None:
        for row in few:
            keep(folder / "table.parquet", row)

    return [{**files, **_written(cut_short)}, _written(finished)]


@cache
def learned() -> Any:  # noqa: ANN401  what the cache keeps
    report = RegressionReport(
        operator="mlp_up",
        features=("num_tokens",),
        estimator="grid",
        parameters={"alpha": 0.5},
        score=Score(num_points=9, mape=0.02, median=0.01, p90=0.05, is_held_out=True),
        tried={"grid": 0.02},
        domain=((1.0, 4096.0),),
        num_points=40,
        num_left_out=1,
        source="mlp.csv",
        notes=("a note",),
    )
    return PredictedOperator(report=report, time_us=np.linspace(1.0, 90.0, 30), was_cached=True)


@cache
def predictor_cache() -> list[Files]:
    return [_written(lambda folder: write_cached(folder / "cached.npz", learned()))]


def engine_log() -> list[Files]:
    line = (
        "INFO 1795220853.214111 Engine 000: Iteration({}): 1 context requests, 54 context tokens, 2 generation "
        "requests, 2 generation tokens, iteration elapsed time: 6.25 ms, x, KV cache usage: 1.5%\n"
    )
    return [{"server.log": "".join(line.format(i) for i in range(4)).encode()}]


def engine_steps() -> list[Files]:
    head = (
        "engine,step,num_prefill_requests,num_prefill_tokens,num_decode_requests,num_decode_tokens,duration_us,"
        "kv_cache_usage_frac,end_unix_us"
    )
    rows = ("0,1,1,54,2,2,6250,0.015,1795220853214111", "0,2,0,0,3,3,5250,,1795220853219111")
    return [{"t.steps.csv": "\n".join([head, *rows, ""]).encode()}]


def logged_steps() -> list[Files]:
    """Return the steps of a server in each form in which they are written."""
    scheduled = {"num_prefill_requests": 1, "sum_prefill_tokens": 54, "var_prefill_length": 0.5}
    scheduled |= {"num_decode_requests": 2, "sum_decode_kv_tokens": 99, "sum_prefill_kv_tokens": 16}
    metrics = {"version": 1, "worker_id": "w", "dp_rank": 0, "counter_id": 4, "wall_time": 0.02}
    bare = {**metrics, "scheduled_requests": scheduled}
    event = {
        "schema": "dynamo.fpm.trace.v1",
        "capture_mode": "full",
        "observed_at_unix_ms": 1_782_777_601_250,
    }
    enveloped = {"timestamp": 1250, "event": {**event, "fpm": bare}}
    lines = [b"\n".join([json.dumps(each).encode()] * 2) for each in (bare, enveloped)]
    return [{"fpm.jsonl": each} for each in lines] + engine_log() + engine_steps()


def step_tables() -> list[Files]:
    from replay.twin.profiled_table import AFTER, KIND, SCHEMA_VERSION
    from sim.latency.profiled import TABLES

    product = {"name": "mlp_up_proj", "axis": "tokens", "runs_per_step": 2}
    document = {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "domain": {"tokens": 16, "decode_sequences": 8},
        "step_us": 10.5,
        "tables": {name: _corner(len(axes)) for name, axes in TABLES.items()},
    }
    jumps = {
        **document,
        "tables": {**{name: _corner(len(axes)) for name, axes in TABLES.items()}, AFTER: [1, 3.5, 4]},
        "components": [product | {"time_us": [0.5, 1, 2], "time_after_us": [0.5, 1.5, 2]}],
    }
    return [{"table.json": _json(document)}, {"table.json": _json(jumps)}]


def _corner(dimensions: int) -> list[Any]:
    return [_corner(dimensions - 1) for _ in range(3)] if dimensions > 1 else [1, 2.5, 4]


@cache
def vidur_profiles() -> list[Files]:
    return [_written(profiles.mlp_csv) | _written(profiles.attention_csv) | _written(profiles.network_csv)]


@cache
def kernel_tables() -> list[Files]:
    """Return tables of kernels as CSV: few rows, so that a change meets one that is read."""
    import pandas as pd

    def write(folder: Path) -> None:
        profiles.gemm_parquet(folder)
        profiles.attention_parquets(folder)
        for path in list(folder.glob("*.parquet")):
            table = pd.read_parquet(path)
            table.iloc[:: max(1, len(table) // 12)].to_csv(path.with_suffix(".csv"), index=False)
            path.unlink()

    return [_written(write)]


@cache
def wanted_profile() -> Any:  # noqa: ANN401  what the reader takes
    with tempfile.TemporaryDirectory() as name:
        return profiles.wanted(Path(name))


def texts() -> list[Files]:
    """Data sets of prompts in every form that ``--texts`` reads."""
    talk = {"conversations": [{"from": "human", "value": "Hi, you"}, {"from": "gpt", "value": "Hello"}]}
    rows = [
        {"prompt": "Why?", "output": "So.", "output_tokens": 3},
        {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Go on"}]},
        {
            "custom_id": "1",
            "body": {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
        },
        {"instruction": "Add", "input": "1, 2", "system": "You add."},
    ]
    lines = "\n".join(json.dumps(row) for row in rows).encode()
    return [
        {"talks.json": _json([talk, talk, "a prompt"])},
        {"rows.jsonl": lines + b"\n"},
        {"table.csv": b'prompt,answer\n"Why, then?",So\nGo,\n'},
    ]


def beside() -> list[Files]:
    """The tables that lie beside a trace: probes, and readings of a GPU."""
    probes = b"probe,due_us,sent_us,first_us,last_us,status\n0,0,10,500,900,ok\n1,1000000,1000010,,,error\n"
    gauges = (
        b'time_us,gauge,value\n10,"DCGM_FI_DEV_POWER_USAGE{gpu=""0""}",310.5\n1000010,'
        b'"DCGM_FI_DEV_POWER_USAGE{gpu=""0""}",400\n20,"DCGM_FI_DEV_GPU_UTIL{gpu=""0""}",99\n'
    )
    return [{"t.probes.csv": probes, "t.gauges.csv": gauges}]
