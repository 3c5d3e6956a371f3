"""``calibrate --from`` between servers of which every request was recorded: Llama-3.1-8B on three GPUs, and 64 seats.

Two RTX servers of LLMServingSim's bench (vLLM 0.19) and this project's H100 (0.24). Each is fitted as by default,
carried to the others, and judged on requests of theirs that nothing was fitted to. The H100 has a quiet run, of which
the first 20 requests are taken, two in flight on average. The other two were never quiet: there only the scaling can be
judged.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from calibrate.calibration_run import first_half
from calibrate.carried.carried_model import GpuPeak, carried_model
from calibrate.carried.few_requests import fit_few
from calibrate.fit.objective.fit_trace import fit_trace
from calibrate.fit.objective.known_server import KnownServer, known_tiles
from replay import TwinConfig, load_config, simulate_trace
from replay.model import find_gpu, peak_times, read_model_config
from replay.twin.latency import usual_physics
from sim import LatencyModel, Physics
from tests.studies.validation import h100
from tests.studies.validation.carried import NUM_IDLE, WAYS
from tests.studies.validation.servers import SERVERS, START, VTWIN, Server
from traces import Trace, convert, read_trace, request_metrics, select_rows

MODEL = "meta-llama/Llama-3.1-8B"
OWN = "its own fit"
SEATS = "H100, 64 seats"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A server: its fitted twin, 20 quiet requests, and runs with the rows that judge."""

    gpu: str
    twin: TwinConfig
    idle: Trace | None
    judged: tuple[tuple[str, Trace, np.ndarray], ...]

    @property
    def place(self) -> GpuPeak:
        """Its model at its GPU's peak."""
        peak = peak_times(read_model_config(MODEL), find_gpu(self.gpu), tp=1, version=self.twin.vllm_version)
        return GpuPeak(peak=peak, gpu=self.gpu)


def recorded(data: Path, work: Path) -> dict[str, Recorded]:
    """Return the servers by name, each fitted."""
    h100.unpack(work)
    twin = h100.fitted(work, "", ("idle", "r30", "r55"))
    lone = idle_of(read_trace(work / "idle"))
    runs = {name: read_trace(work / name) for name in ("r55_again", "r80", "seqs64_r55")}
    every = {name: np.ones(len(each), bool) for name, each in runs.items()}

    def of(*names: str, **engine: object) -> Recorded:
        config = replace(twin, engine=replace(twin.engine, **engine))  # type: ignore[arg-type]
        return Recorded(
            gpu="H100", twin=config, idle=lone, judged=tuple((n, runs[n], every[n]) for n in names)
        )

    found = {"H100": of("r55_again", "r80"), SEATS: of("seqs64_r55", max_num_seqs=64)}
    for server in SERVERS[:2]:
        found[server.folder.split("/")[0]] = _of_bench(server, data, work)
    return found


def _of_bench(server: Server, data: Path, work: Path) -> Recorded:
    stem = work / server.folder.replace("/", "_")
    source = data / "runs" / server.folder / "vllm" / "requests.jsonl"
    start, target = stem.with_suffix(".start.yaml"), stem.with_suffix(".fitted.yaml")
    start.write_text(
        f"vllm_version: '0.19.0'\nengine: {{{server.engine}}}\nhardware: {server.hardware}\n"
        f"latency: {{model: blackbox, model_config: {MODEL}, coefficients: {START}}}\n"
    )
    told = ["--config", str(start), "--fit", "--accept-flags", "--report", str(work / stem.name)]
    for words in (
        ["trace", "convert", "--from", "llmservingsim", str(source), "--output", str(stem), "--overwrite"],
        ["calibrate", str(stem), *told, "--write-config", str(target)],
    ):
        subprocess.run([VTWIN, *words], check=True, capture_output=True)
    trace, twin = convert("llmservingsim", source), load_config(target)
    return Recorded(
        gpu=server.folder.split("/")[0],
        twin=twin,
        idle=None,
        judged=(("second half", trace, ~first_half(trace)),),
    )


def idle_of(trace: Trace) -> Trace:
    """Return the first requests of a quiet run; two are in flight on average."""
    return select_rows(trace, np.arange(len(trace)) < NUM_IDLE)


def models_of(old: Recorded, new: Recorded) -> dict[str, LatencyModel]:
    """Return the new server's latency model by each way."""
    known = KnownServer(shape=read_model_config(MODEL), gpu=find_gpu(new.gpu), gpu_name=new.gpu)
    peak = new.place.peak
    scaled = carried_model(old.twin.latency, old.place, new.place, tiles=known_tiles(known, new.twin).factors)
    models: dict[str, LatencyModel] = {
        WAYS[0]: Physics(peak=peak, **usual_physics(peak)),  # type: ignore[arg-type]
        WAYS[1]: old.twin.latency,
        WAYS[2]: scaled,
    }
    if new.idle is not None:
        config = replace(new.twin, latency=scaled)
        few = fit_few([fit_trace(new.idle, config, name="idle")], config, carried_from=old.gpu)
        models[WAYS[3]] = few.config.latency
    return {**models, OWN: new.twin.latency}


def e2e_errors(new: Recorded, model: LatencyModel) -> Iterator[tuple[str, float, float]]:
    """Yield of each judged run the error of the mean E2E and the mean error per request, per cent."""
    for name, trace, rows in new.judged:
        real = request_metrics(trace)["e2e_us"].to_numpy(float)
        run = simulate_trace(trace, replace(new.twin, latency=model))[0]
        mine = request_metrics(run)["e2e_us"].to_numpy(float)
        kept = rows & np.isfinite(real) & np.isfinite(mine)
        mean = 100 * (mine[kept].mean() / real[kept].mean() - 1)
        yield name, mean, 100 * float(np.mean(np.abs(mine[kept] / real[kept] - 1)))


def table(data: Path) -> str:
    """Return a row per pair and run: the error of the mean E2E, and per request, by each way."""
    with tempfile.TemporaryDirectory() as work:
        servers = recorded(data / "llmservingsim_bench", Path(work))
    head = [*WAYS, OWN]
    lines = [f"| from | to | run | {' | '.join(head)} |", "|---" * (3 + len(head)) + "|"]
    for old_name, old in servers.items():
        for new_name, new in servers.items():
            if old_name in (new_name, SEATS):
                continue
            cells = {way: list(e2e_errors(new, model)) for way, model in models_of(old, new).items()}
            for i, (run, _, _) in enumerate(cells[WAYS[0]]):
                shown = (
                    f"{cells[way][i][1]:+.1f}, {cells[way][i][2]:.1f}" if way in cells else "" for way in head
                )
                lines.append(f"| {old_name} | {new_name} | {run} | {' | '.join(shown)} |")
    return "\n".join(lines)
