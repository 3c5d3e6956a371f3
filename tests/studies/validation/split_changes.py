"""How often ``compare --twin`` lays a change at the right door.

``python -m tests.studies.validation.split_changes [DRAWS]``.

An emulated server, Qwen3-14B on an H100 whose pace differs from run to run, and a twin of it: ``blackbox``, whose form
is too simple for it, fitted to loads of 2 and 8 requests/s and held out on 5. Each draw is two runs with other
requests. Either only the load changes, by a factor of 1.5 to 3 within what was fitted, or load stays and the server is
15 % slower. Counted, by metric and statistic: the draws in which the server is named.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from calibrate import Options
from calibrate.calibration_run import calibrate
from calibrate.run_to_run.normal_quantiles import half_width
from calibrate.run_to_run.server_pace import STATED
from calibrate.runs.split_change import split_runs
from calibrate.written.save import write_config
from replay import TwinConfig, load_config
from replay.simulation.pace_band import paced
from tests.calibrate.known_servers import GUESS, source
from tests.studies.validation.tiles import CHAT, ENGINE, STEADY, trace_of
from traces import Trace

SERVER = TwinConfig(engine=ENGINE, latency=STEADY)
SLOWER = 1.15
FITTED, HELD_OUT = {"low": 2.0, "high": 8.0}, 5.0
NUM = 300


def run_of(rate: float, *, seed: int, slower: float = 1.0) -> Trace:
    """Return a run of the server at its pace of that day, with requests of its own."""
    z = np.random.default_rng(seed).standard_normal()
    server = paced(SERVER, slower * float(np.exp(z * STATED / half_width())))
    return trace_of(server, rate, prompt=CHAT, num=NUM, seed=seed)


def fitted_twin(model: str) -> TwinConfig:
    """Return a fit of the server, as its file says it."""
    config = replace(GUESS, engine=ENGINE)
    runs = [source(name, run_of(rate, seed=900 + i)) for i, (name, rate) in enumerate(FITTED.items())]
    unseen = [source("unseen", run_of(HELD_OUT, seed=950))]
    options = Options(latency_model=model, replicates=20)  # type: ignore[arg-type]  # a name
    found = calibrate(runs, config, options, holdout=unseen)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "twin.yaml"
        write_config(found, path)
        return load_config(path)


def blamed(twin: TwinConfig, *, draws: int, slower: float) -> Counter[tuple[str, str]]:
    """Return how many draws name the server, by metric and statistic; it is ``slower`` in the second run."""
    found: Counter[tuple[str, str]] = Counter()
    for number in range(draws):
        low, factor = np.random.default_rng([number, 7]).uniform((2.0, 1.5), (2.7, 3.0))
        after = low * factor if slower == 1 else low
        runs = run_of(low, seed=2 * number), run_of(after, seed=2 * number + 1, slower=slower)
        split = split_runs(("a", "b"), runs, twin, twin="twin")
        found.update((each.metric, each.statistic) for each in split.parts if each.is_servers)
    return found


def main() -> None:
    """Print, for each twin, the draws in which the server is named."""
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for model in ("blackbox", "extended"):
        twin = fitted_twin(model)
        print(f"{model}, {twin.held_out}")
        told = {
            "load only": blamed(twin, draws=draws, slower=1.0),
            "server 15 % slower": blamed(twin, draws=draws, slower=SLOWER),
        }
        for what, found in told.items():
            said = [
                f"{metric} {statistic} {found[metric, statistic]}"
                for metric in ("ttft_us", "tpot_us", "e2e_us")
                for statistic in ("mean", "p99")
            ]
            print(f"  {what}: server named, of {draws}: {', '.join(said)}")


if __name__ == "__main__":
    main()
