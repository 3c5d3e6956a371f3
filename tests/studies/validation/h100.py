"""A real vLLM 0.24.0 on one H100, observed eighteen times: fitted on light loads, judged on the others.

The data and how it was measured: tests/studies/validation/h100/README.md.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from replay import TwinConfig, load_config, simulate_trace
from replay.model import Serving, find_gpu, kv_cache_size, read_model_config
from tests.studies.validation import h100_clock
from traces import Trace, read_trace, request_metrics

HERE = Path(__file__).parent / "h100"
VTWIN = Path(sys.executable).parent / "vtwin"
METRICS = ("ttft_us", "tpot_us", "e2e_us")
FITTED = {"to 55 %": ("idle", "r30", "r55"), "to 80 %": ("idle", "r30", "r80")}
JUDGED = ("r55", "r56_seed2", "r80", "ramp", "r105", "long", "shared")
REPEATS = (("r55", "r55_again"), ("r80", "r80_again"))
MODEL = "meta-llama/Llama-3.1-8B"


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Of one metric, in per cent: the error of its mean, and the mean absolute error per request."""

    mean: float
    mape: float

    def __str__(self) -> str:
        return f"{self.mean:+.1f}, {self.mape:.1f}"


def errors(observed: Trace, other: Trace) -> list[Errors]:
    """Return the errors of TTFT, TPOT and E2E of the same requests."""
    real, mine = request_metrics(observed), request_metrics(other)
    found = []
    for metric in METRICS:
        pairs = pd.DataFrame({"real": real[metric], "mine": mine[metric]}).dropna().astype(float)
        mean = 100 * (pairs["mine"].mean() / pairs["real"].mean() - 1)
        found.append(Errors(mean=mean, mape=float(100 * (pairs["mine"] / pairs["real"] - 1).abs().mean())))
    return found


def unpack(work: Path) -> Path:
    """Unpack the traces into ``work``; write the twin that a user would start from beside them."""
    with tarfile.open(HERE / "traces.tar.xz") as archive:
        archive.extractall(work, filter="data")
    told = ["config", "from-serve", "--from-trace", str(work / "r55"), "--gpu", "H100"]
    made = subprocess.run([VTWIN, *told], check=True, capture_output=True, text=True)
    (work / "twin.yaml").write_text(made.stdout)
    return work


def fitted(work: Path, model: str, runs: tuple[str, ...]) -> TwinConfig:
    """Return the twin that `calibrate --fit` makes of some runs, as a user would call it; ``model`` "": no choice."""
    target = work / f"{model or 'default'}-{runs[-1]}.yaml"
    told = ["--config", str(work / "twin.yaml"), "--fit", "--report", str(target.with_suffix(""))]
    told += ["--write-config", str(target), *(["--latency-model", model] if model else [])]
    traces = [str(work / run) for run in runs]
    subprocess.run(
        [VTWIN, "calibrate", *traces, "--holdout", str(work / "r82"), *told], check=True, capture_output=True
    )
    return load_config(target)


def unfitted(work: Path, model: str) -> TwinConfig:
    """Return the twin of a model that follows from config.json and GPU."""
    text = (work / "twin.yaml").read_text()
    target = work / f"{model}.yaml"
    target.write_text(text.replace("model: auto", f"model: {model}"))
    return load_config(target)


def error_tables(work: Path, twins: dict[str, TwinConfig]) -> Iterator[str]:
    """Yield a table per metric: a row per twin, a column per judged run; first the server against itself."""
    observed = {run: read_trace(work / run) for run in JUDGED}
    again = {first: errors(observed[first], read_trace(work / second)) for first, second in REPEATS}
    rows: dict[str, dict[str, list[Errors]]] = {"the server, run again": again}
    for name, twin in twins.items():
        rows[name] = {run: errors(trace, simulate_trace(trace, twin)[0]) for run, trace in observed.items()}
    for i, metric in enumerate(METRICS):
        yield f"| {metric.removesuffix('_us').upper()} | " + " | ".join(JUDGED) + " |"
        yield "|---|" + "---|" * len(JUDGED)
        for name, cells in rows.items():
            shown = (str(cells[run][i]) if run in cells else "" for run in JUDGED)
            yield f"| {name} | " + " | ".join(shown) + " |"
        yield ""


def whatif_rows(work: Path, twin: TwinConfig) -> Iterator[str]:
    """Yield a row for each pair of runs of the same requests under other flags: what changed, and what was said."""
    changes: dict[str, tuple[str, Callable[[TwinConfig], TwinConfig]]] = {
        f"seqs64_{load}": (load, lambda it: replace(it, engine=replace(it.engine, max_num_seqs=64)))
        for load in ("r30", "r55", "r80")
    }
    changes["sync_r55"] = (
        "r55",
        lambda it: replace(it, engine=replace(it.engine, async_scheduling=False)),
    )
    for run, (before, change) in changes.items():
        first, second = read_trace(work / before), read_trace(work / run)
        said = [simulate_trace(trace, it)[0] for trace, it in ((first, twin), (second, change(twin)))]
        cells = []
        for metric in METRICS:
            real = _mean(second, metric) / _mean(first, metric) - 1
            twins = _mean(said[1], metric) / _mean(said[0], metric) - 1
            cells.append(f"{100 * real:+.1f}, {100 * twins:+.1f}")
        yield f"| {run} | " + " | ".join(cells) + " |"


def _mean(trace: Trace, metric: str) -> float:
    return float(np.nanmean(request_metrics(trace)[metric].to_numpy(float)))


def kv_rows(work: Path) -> Iterator[str]:
    """Yield a row for each start of the server: its KV blocks, and what memory alone says."""
    for run, seqs in (("r55", 1024), ("ramp", 1024), ("seqs64_r55", 64), ("sync_r55", 1024)):
        real = read_trace(work / run).header.server.num_gpu_blocks or 0
        serving = Serving(max_num_batched_tokens=8192, max_num_seqs=seqs, vllm_version="0.24.0")
        said = kv_cache_size(read_model_config(MODEL), find_gpu("H100"), serving=serving).num_gpu_blocks
        yield f"| {run} | {seqs} | {real:,} | {said:,} | {100 * (said / real - 1):+.1f} % |"


def table(work: Path, models: tuple[str, ...]) -> str:
    """Return the Markdown tables: errors, what-ifs, KV blocks, and the step against the clock."""
    unpack(work)
    twins = {model: unfitted(work, model) for model in ("roofline", "physics")}
    for reach, runs in FITTED.items():
        twins |= {f"{model or 'by default'}, {reach}": fitted(work, model, runs) for model in ("", *models)}
    lines = [*error_tables(work, twins), "| changed | TTFT | TPOT | E2E |", "|---|---|---|---|"]
    lines += whatif_rows(work, twins[f"{models[-1]}, to 80 %"])
    lines += ["", "| start | max_num_seqs | KV blocks | memory alone | off by |", "|---|---|---|---|---|"]
    lines += kv_rows(work)
    lines += ["", *h100_clock.tables(work, HERE / "gpu.csv.xz")]
    return "\n".join(lines)
