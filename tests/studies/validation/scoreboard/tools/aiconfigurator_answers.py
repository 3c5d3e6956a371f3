"""aiconfigurator: the answers that it gave, and how it is asked.

``python -m tests.studies.validation.scoreboard.tools.aiconfigurator_answers VENV`` asks about points without an
answer; VENV has ``pip install aiconfigurator==0.12.0`` (vLLM data 0.24.0). It takes nominal lengths and a batch, no
requests.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.studies.validation.scoreboard.points import default_data, read_scored
from tests.studies.validation.scoreboard.tools.aisimulate_answers import name_of, parallelism_of, precision_of
from tests.studies.validation.scoreboard.tools.recorded import Answers, ask_the_rest, recorded
from tests.studies.validation.silicon import Prepared

NAME = "aiconfigurator"


def answers(points: Sequence[Prepared]) -> Answers:
    """Return the recorded answers."""
    return recorded("aiconfigurator", points)


def ask(ready: Prepared, command: Path) -> tuple[float, float]:
    """Return TTFT and TPOT of one point, ms. Raises RuntimeError with the tool's own words."""
    point, split = ready.point, parallelism_of(ready)
    asked = {
        "model-path": name_of(point),
        "system": f"{point.gpu.lower()}_sxm",
        "backend": "vllm",
        "estimate-mode": "agg",
        "isl": point.isl,
        "osl": point.osl,
        "batch-size": point.concurrency,
        "tp-size": point.tp,
        "moe-tp-size": split.get("moe_tensor"),
        "moe-ep-size": split.get("moe_expert"),
        "gemm-quant-mode": precision_of(ready).get("gemm_quant_mode"),
    }
    call = [str(command), "cli", "estimate", "--no-color", "--log-level", "ERROR"]
    call += [part for name, value in asked.items() if value is not None for part in (f"--{name}", str(value))]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    said = [re.search(rf"{name}:\s+([\d.]+) ms", done.stdout) for name in ("TTFT", "TPOT")]
    if done.returncode or said[0] is None or said[1] is None:
        raise RuntimeError((done.stdout + done.stderr).strip().splitlines()[-1][:300])
    return float(said[0][1]), float(said[1][1])


if __name__ == "__main__":
    tool = Path(sys.argv[1]) / "bin" / "aiconfigurator"
    ask_the_rest("aiconfigurator", read_scored(default_data()), lambda ready: ask(ready, tool))
