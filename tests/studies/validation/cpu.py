"""A real vLLM 0.32 on a CPU, observed four times: A and C fitted, B and D judged, D's own steps and times beside them.

C's cache was warm before its first request; the simulation's is empty.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from traces import Header, Trace, make_trace, write_trace
from traces.header import ServerInfo

VTWIN = Path(sys.executable).parent / "vtwin"
FOLDER = "vllm_cpu_0.32_tiny"
SETS = {
    "A": "A_poisson_55pct",
    "B": "B_poisson_90pct",
    "C": "C_shared_prefix_60pct",
    "D": "D_poisson_55pct_server_timings",
}
FLAGS: dict[str, Any] = {
    "version": "0.32.0",
    "max_num_seqs": 64,
    "max_num_batched_tokens": 2048,
    "block_size": 128,
    "num_gpu_blocks": 1024,
    "max_model_len": 4096,
    "async_scheduling": False,
}
"""As its PROVENANCE.md states; one of the blocks is the null block."""
START = "{alpha0: 5000, alpha1: 1, alpha2: 0, beta0: 10000, beta1: 500, beta2: 500}"
SERVER_TIMES = {
    "server_queue_us": "srv_queue_time_ms",
    "server_prefill_us": "srv_time_to_first_token_ms",
    "server_decode_us": "srv_generation_time_ms",
}
METRICS = ("ttft_us", "itl_us", "tpot_us", "e2e_us", "queue_us")


def read_set(folder: Path) -> Trace:
    """Return one set as a trace; times in its files are in seconds from the run's start."""
    rows, tokens = pd.read_csv(folder / "requests.csv"), pd.read_csv(folder / "tokens.csv")
    prefix = rows["prefix_len"].fillna(0).astype(int)
    columns: dict[str, object] = {
        "request_id": rows["idx"].astype(str),
        "prefix_group": rows["prefix_group"].map(lambda group: None if pd.isna(group) else f"g{group:g}"),
        "prefix_length": prefix,
        "streaming": True,
        "input_tokens": rows["prompt_tokens"] - prefix,
        "output_tokens": rows["output_tokens"],
        "server_input_tokens": rows["prompt_tokens"],
        "cached_input_tokens": rows["cached_tokens"],
        "arrival_time_us": _us(rows["sched_s"]),
        "send_time_us": _us(rows["send_s"]),
        "content_first_time_us": _us(rows["first_token_s"]),
        "first_chunk_time_us": _us(rows["first_token_s"]),
        "last_chunk_time_us": _us(rows["last_token_s"]),
        "last_token_time_us": _us(rows["last_token_s"]),
        "num_chunks": rows["chunks"],
        "status": "ok",
    }
    columns |= {
        name: (rows[source] * 1e3).round().astype("Int64")
        for name, source in SERVER_TIMES.items()
        if source in rows
    }
    events = pd.DataFrame(
        {
            "request_id": tokens["idx"].astype(str),
            "chunk_index": tokens["chunk"],
            "timestamp_us": _us(tokens["t_s"]),
            "num_tokens": tokens["n_tokens"],
        }
    )
    server = ServerInfo(model="tiny").learn("PROVENANCE.md", **FLAGS)
    return make_trace(
        Header(trace_version=3, time_unit="us", mode="real", tool="vtwin", server=server),
        columns,
        events=events,
    )


def _us(seconds: pd.Series[float]) -> pd.Series[int]:
    return (seconds * 1e6).round().astype(np.int64)


def write_sets(data: Path, work: Path) -> None:
    """Write the four sets as traces A to D, and D's steps beside it as observe would."""
    for name, folder in SETS.items():
        write_trace(read_set(data / FOLDER / folder), work / name)
    steps = pd.read_csv(data / FOLDER / SETS["D"] / "iterations.csv")
    pd.DataFrame(
        {
            "num_prefill_tokens": steps["ctx_tokens"],
            "num_decode_tokens": steps["gen_tokens"],
            "duration_us": steps["elapsed_ms"] * 1e3,
        }
    ).to_csv(work / "D.steps.csv", index=False)


def calibrate(work: Path, model: str, *, judged: str) -> dict[str, Any]:
    """Return the report of a fit to A and C, judged on one of the others, run as a user would."""
    flags = ", ".join(f"{key}: {json.dumps(value)}" for key, value in FLAGS.items() if key != "version")
    configured = "blackbox" if model == "auto" else model
    (work / "twin.yaml").write_text(
        f"engine: {{{flags}}}\nlatency: {{model: {configured}, coefficients: {START}}}\n"
    )
    report = work / f"{model}-{judged}"
    told = [
        "--config",
        str(work / "twin.yaml"),
        "--fit",
        "--latency-model",
        model,
        "--holdout",
        str(work / judged),
        "--report",
        str(report),
    ]
    subprocess.run(
        [VTWIN, "calibrate", str(work / "A"), str(work / "C"), *told], check=True, capture_output=True
    )
    found: dict[str, Any] = json.loads((report / "report.json").read_text())
    return found


def table(data: Path, work: Path, models: tuple[str, ...]) -> str:
    """Return Markdown tables: the held-out errors, and of D its steps and its phases."""
    write_sets(data, work)
    reports = {(model, judged): calibrate(work, model, judged=judged) for model in models for judged in "BD"}
    lines = [
        "| judged | model | TTFT | ITL | TPOT | E2E | E2E bias | requests/s off by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (model, judged), report in reports.items():
        errors = report["holdout"]
        mapes = " | ".join(f"{100 * errors[name]['mape']['value']:.1f}" for name in METRICS[:4])
        bias = 100 * errors["e2e_us"]["bias"]["value"]
        rate = 100 * report["rates"]["holdout"]["request_throughput"]["rel_error"]["value"]
        state = next(each["saturation"]["state"] for each in report["traces"] if each["role"] == "held out")
        lines.append(f"| {judged} ({state}) | {model} | {mapes} | {bias:+.1f} | {rate:+.1f} % |")
    for model in models:
        lines += ["", *_own_account(reports[model, "D"], model)]
    return "\n".join(lines)


def _own_account(report: dict[str, Any], model: str) -> list[str]:
    """Return what D's server says of itself beside the twin: its steps, and a mean request's phases."""
    judged = next(each for each in report["traces"] if each["role"] == "held out")
    steps, origin = judged["steps"], report["error_origin"]
    lines = [
        f"{model}: {steps['n']:,} logged steps: MAPE {100 * steps['mape']:.1f} %, all of their time "
        f"{100 * steps['time_error']:+.1f} %, R {steps['pearson_r']:.3f}.",
        "",
        "| phase, ms | server | twin | error, of E2E |",
        "|---|---|---|---|",
    ]
    assert origin["basis"] == "server"
    lines += [
        f"| {name} | {phase['observed'] / 1e3:.1f} | {phase['simulated'] / 1e3:.1f} | "
        f"{100 * phase['share']['value']:+.1f} % |"
        for name, phase in origin["phases"].items()
    ]
    return lines
