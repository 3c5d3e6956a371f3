"""Four real vLLM 0.19 servers (LLMServingSim's bench): fitted on the first half by arrival, judged on the second.

The peer's own predictions, made from kernels profiled on the same machines, are scored on the same second half.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.calibration_run import first_half
from replay import load_config, simulate_trace
from traces import convert, request_metrics

VTWIN = Path(sys.executable).parent / "vtwin"
METRICS = ("ttft_us", "tpot_us", "e2e_us")
PEER_COLUMNS = {"ttft_us": "TTFT", "tpot_us": "TPOT", "e2e_us": "latency"}
NANOSECONDS = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One measured server. ``engine``: what its meta.json states; the KV cache of three is not stated and taken
    as not binding. ``note``: what else had to be assumed.
    """

    folder: str
    engine: str
    note: str
    model: str
    hardware: str


SERVERS = (
    Server(
        folder="RTX4090/Llama-3.1-8B",
        engine="max_num_seqs: 256, max_num_batched_tokens: 2048, num_gpu_blocks: 2588, max_model_len: 32768",
        note="KV cache as recorded",
        model="meta-llama/Llama-3.1-8B",
        hardware="{gpu: RTX4090}",
    ),
    Server(
        folder="RTXPRO6000/Llama-3.1-8B",
        engine="max_num_seqs: 128, max_num_batched_tokens: 2048, max_model_len: 32768",
        note="KV cache taken as not binding",
        model="meta-llama/Llama-3.1-8B",
        hardware="{gpu: RTXPRO6000}",
    ),
    Server(
        folder="RTXPRO6000/Qwen3-30B-A3B-Instruct-2507",
        engine="max_num_seqs: 256, max_num_batched_tokens: 4096, max_model_len: 32768",
        note="KV cache taken as not binding; two data-parallel ranks taken as one engine of twice the seats and budget",
        model="Qwen/Qwen3-30B-A3B-Instruct-2507",
        hardware="{gpu: RTXPRO6000, tp: 2}",
    ),
    Server(
        folder="RTXPRO6000/Qwen3-32B",
        engine="max_num_seqs: 128, max_num_batched_tokens: 2048, max_model_len: 32768",
        note="KV cache taken as not binding",
        model="Qwen/Qwen3-32B",
        hardware="{gpu: RTXPRO6000, tp: 2}",
    ),
)

START = "{alpha0: 1000, alpha1: 0, alpha2: 0, beta0: 15000, beta1: 50, beta2: 50}"


def fitted_errors(server: Server, data: Path, work: Path, model: str) -> dict[str, float]:
    """Return the held-out MAPE (%) per metric after convert and calibrate, run as a user would."""
    stem = work / server.folder.replace("/", "_")
    requests = data / "runs" / server.folder / "vllm" / "requests.jsonl"
    twin = stem.with_suffix(".twin.yaml")
    configured = "blackbox" if model == "auto" else model
    twin.write_text(f"engine: {{{server.engine}}}\nlatency: {{model: {configured}, coefficients: {START}}}\n")
    report = work / f"{stem.name}-{model}"
    for arguments in (
        ["trace", "convert", "--from", "llmservingsim", str(requests), "--output", str(stem), "--overwrite"],
        [
            "calibrate",
            str(stem),
            "--config",
            str(twin),
            "--fit",
            "--accept-flags",  # two ranks as one engine have twice the seats of either
            "--latency-model",
            model,
            "--report",
            str(report),
        ],
    ):
        subprocess.run([VTWIN, *arguments], check=True, capture_output=True)
    holdout = json.loads((report / "report.json").read_text())["holdout"]
    return {metric: 100 * holdout[metric]["mape"]["value"] for metric in METRICS}


def unfitted_errors(server: Server, data: Path, work: Path, model: str) -> dict[str, float]:
    """Return the MAPE (%) per metric of a model that follows from config.json and GPU, on the same second half.

    ``model``: ``roofline``, ``physics``, or either with the name of a set of coefficients behind a slash.
    """
    name, _, coefficients = model.partition("/")
    chosen = f", coefficients: {coefficients}" if coefficients else ""
    twin = work / "unfitted.twin.yaml"
    twin.write_text(
        f"engine: {{{server.engine}}}\nhardware: {server.hardware}\nvllm_version: '0.19.0'\n"
        f"latency: {{model: {name}, model_config: {server.model}{chosen}}}\n"
    )
    trace = convert("llmservingsim", data / "runs" / server.folder / "vllm" / "requests.jsonl")
    simulated, _ = simulate_trace(trace, load_config(twin))
    observed, found, judged = request_metrics(trace), request_metrics(simulated), ~first_half(trace)
    errors = {}
    for metric in METRICS:
        real, mine = observed[metric].to_numpy(float), found[metric].to_numpy(float)
        errors[metric] = float(100 * np.nanmean(np.abs(mine - real)[judged] / real[judged]))
    return errors


def unfitted_table(data: Path, work: Path, models: tuple[str, ...]) -> str:
    """Return the Markdown table of the models that nobody fitted to these servers."""
    lines = ["| server | model | TTFT MAPE % | TPOT MAPE % | E2E MAPE % |", "|---|---|---|---|---|"]
    for server in SERVERS:
        for model in models:
            errors = unfitted_errors(server, data, work, model)
            figures = " | ".join(f"{errors[metric]:.1f}" for metric in METRICS)
            lines.append(f"| {server.folder} | {model} | {figures} |")
    return "\n".join(lines)


def peer_errors(server: Server, data: Path) -> dict[str, float]:
    """Return the peer's MAPE (%) per metric on the second half of the same requests."""
    run = data / "runs" / server.folder
    trace = convert("llmservingsim", run / "vllm" / "requests.jsonl")
    observed = request_metrics(trace)
    judged = ~first_half(trace)
    predicted = pd.read_csv(run / "outputs" / "sim.csv.gz").set_index("request id")
    numbers = [int(name.rsplit("-", 1)[1]) for name in trace.requests["request_id"]]
    errors = {}
    for metric, column in PEER_COLUMNS.items():
        mine = predicted.loc[numbers, column].to_numpy(float) / NANOSECONDS
        real = observed[metric].to_numpy(float)
        errors[metric] = float(100 * np.nanmean(np.abs(mine - real)[judged] / real[judged]))
    return errors


def table(data: Path, work: Path, models: tuple[str, ...]) -> str:
    """Return the Markdown table of all four servers: each model's and the peer's errors."""
    lines = [
        "| server | model | TTFT MAPE % | TPOT MAPE % | E2E MAPE % | assumed |",
        "|---|---|---|---|---|---|",
    ]
    for server in SERVERS:
        rows = [(model, fitted_errors(server, data, work, model)) for model in models]
        rows.append(("peer: LLMServingSim", peer_errors(server, data)))
        for name, errors in rows:
            figures = " | ".join(f"{errors[metric]:.2f}" for metric in METRICS)
            note = server.note if name in models else "profiled kernels, no fit"
            lines.append(f"| {server.folder} | {name} | {figures} | {note} |")
    return "\n".join(lines)
