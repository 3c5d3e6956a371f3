"""Train the step tables that ship, and note how far off each is.

``python -m tests.studies.validation.pack_step_tables``.

``VTWIN_DATA`` names the folder with ``aiconfigurator_ops`` and ``aiconfigurator_silicon``; a minute or two. See
replay/twin/step_tables/measured/PROVENANCE.md.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from calibrate.predictor.build import train
from calibrate.predictor.cache import default_cache
from calibrate.predictor.measured import ProfileQuery
from replay.model import find_gpu
from replay.twin.profiled_table import StepTableFile, model_of
from replay.twin.recorded_coefficients import made_as
from replay.twin.step_tables.packed_table import write_packed
from replay.twin.step_tables.shipped_tables import FOLDER, HEAD, KERNELS, SERVERS, ShippedTable, row_of
from tests.studies.validation.scoreboard.points import all_points, broken, default_data
from tests.studies.validation.silicon import Point, prepare, shape_of
from tests.studies.validation.silicon_profiled import simulated

FP8, KV = {"quantization": "fp8_per_tensor"}, {"kv_cache_dtype": "fp8"}
CHOSEN: Sequence[tuple[str, str, int, dict[str, str]]] = (
    ("meta-llama/Llama-3.1-8B", "H100", 1, {}),
    ("meta-llama/Llama-3.1-8B", "B200", 1, {}),
    ("nvidia/Llama-3.1-8B-Instruct-FP8", "H200", 1, {}),
    ("meta-llama/Llama-3.1-70B", "H100", 4, {}),
    ("meta-llama/Llama-3.1-70B", "H100", 4, FP8),
    ("meta-llama/Llama-3.1-70B", "H200", 2, FP8),
    ("meta-llama/Llama-3.1-70B", "B200", 1, FP8 | KV),
    ("Qwen/Qwen3-8B", "H100", 1, {}),
    ("Qwen/Qwen3-14B", "H100", 1, {}),
    ("Qwen/Qwen3-32B", "H100", 2, {}),
    ("Qwen/Qwen3-32B", "H100", 4, {}),
    ("Qwen/Qwen3-30B-A3B", "H100", 1, {}),
    ("Qwen/Qwen3-32B", "B200", 1, {}),
    ("Qwen/Qwen3-235B-A22B-FP8", "H200", 4, {}),
    ("Qwen/Qwen3-235B-A22B-FP8", "B200", 4, {}),
    ("openai/gpt-oss-20b", "H100", 1, {}),
    ("openai/gpt-oss-120b", "H100", 2, {}),
    ("openai/gpt-oss-120b", "H100", 4, {}),
    ("openai/gpt-oss-120b", "H200", 1, {}),
    ("openai/gpt-oss-120b", "B200", 1, KV),
    ("MiniMaxAI/MiniMax-M2.5", "H200", 4, {}),
    ("MiniMaxAI/MiniMax-M2.5", "H200", 8, {}),
    ("MiniMaxAI/MiniMax-M2.5", "B200", 2, {}),
    ("MiniMaxAI/MiniMax-M2.5", "B200", 4, {}),
    ("moonshotai/Kimi-K2.5", "H200", 8, {}),
    ("moonshotai/Kimi-K2.5", "B200", 8, {}),
    ("deepseek-ai/DeepSeek-V3", "H200", 8, {}),
    ("deepseek-ai/DeepSeek-V3", "B200", 8, {}),
    ("deepseek-ai/DeepSeek-V3.2", "H200", 8, {}),
    ("deepseek-ai/DeepSeek-V3.2", "B200", 8, {}),
)
"""The servers that people ask for most, as far as there are kernels of all their operators: model, GPU, tp, flags."""
FAR = 0.5
"""A table whose median error on measured loads of its server is larger than that, in TTFT or TPOT, does not ship."""


def trained(server: ShippedTable, data: Path) -> StepTableFile:
    """Return a server's table as it is trained."""
    kernels = data / "aiconfigurator_ops" / f"{server.gpu.lower()}_sxm"
    wanted = ProfileQuery(shape=server.shape, gpu=server.gpu, tp=server.tp, vllm_version=KERNELS)
    return train([kernels], wanted, find_gpu(server.gpu), cache=default_cache(), strict=True)[0]


def judged(server: ShippedTable, measured: Sequence[Point]) -> ShippedTable:
    """Return a server with the errors of its table on the points that are of it, tuned on by nothing and not broken."""
    model, shape = model_of(server.read()), made_as(server.shape)
    own = prepare(
        point
        for point in measured
        if (point.gpu, point.tp, point.has_whole_experts) == (server.gpu, server.tp, False)
        and not point.is_ours_to_tune
        and made_as(shape_of(point)) == shape
    )
    doubtful = broken(own, measured)
    own = [ready for ready in own if ready.point.id not in doubtful]
    if not own:
        return server
    found = np.array([simulated(ready, model) for ready in own])
    told = np.array([(ready.point.ttft_ms, ready.point.tpot_ms) for ready in own])
    ttft, tpot = np.median(np.abs(found / told - 1), axis=0).tolist()
    return replace(server, points=len(own), ttft_error=ttft, tpot_error=tpot)


def main() -> None:
    """Write every table, and the list of them."""
    data = default_data()
    measured, rows = all_points(data), []
    for old in FOLDER.glob("*.npz"):
        old.unlink()
    for model, gpu, tp, flags in CHOSEN:
        server = ShippedTable(model=model, gpu=gpu, tp=tp, **flags)  # type: ignore[arg-type]  # two flags, texts
        target = FOLDER / f"{server.name}.npz"
        write_packed(target, trained(server, data))
        server = judged(server, measured)
        print(f"{target.stat().st_size / 1e3:4.0f} kB  {', '.join(row_of(server))}", flush=True)
        if max(server.ttft_error or 0, server.tpot_error or 0) > FAR:
            target.unlink()
            print("         too far off: does not ship", flush=True)
        else:
            rows.append(row_of(server))
    with SERVERS.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEAD, *sorted(rows)])


if __name__ == "__main__":
    main()
