"""Fits to servers whose steps are known to jump, or to slow down.

``python -m tests.studies.validation.tiles [FITS] [TRUTHS]``.

Emulated servers, Qwen3-14B on an H100 by its roofline: with tiles and no slowdown, with a slowdown and no tiles, with
both, with neither. Each is fitted to loads of 2 and 8 requests/s by ``auto``, with and without the tiles known, and
judged on loads that it has not seen: how far the mean E2E is off, and whether the pace band holds it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from calibrate.fit.objective.fit_trace import fit_trace
from calibrate.fit.objective.known_server import KnownServer
from calibrate.fit.objective.priors import known_priors
from calibrate.fit.pipeline import fit
from calibrate.fit.result import Fit, pace_of
from replay import TwinConfig, simulate_trace
from replay.model import find_gpu, read_model_config
from replay.model.matmuls.tiles import tiles_of
from replay.simulation.pace_band import paced
from sim import EngineConfig, Extended
from tests.calibrate.known_servers import GUESS, observed, workload
from traces import Trace, request_metrics

SHAPE, GPU = read_model_config("Qwen/Qwen3-14B"), find_gpu("H100")
TILES = tiles_of(SHAPE, GPU).factors
ENGINE = EngineConfig(max_num_seqs=256, max_num_batched_tokens=8192, async_scheduling=True)
STEADY = Extended(
    alpha0=3000, alpha1=3, beta0=1500, beta1=36, beta2=150, beta3=0.06, beta4=0.0012, floor=10_500,
    concavity=0.4, sigma=0.03,
)  # fmt: skip
SLOW = {"kappa": 0.5, "u0": 0.3, "tau_s": 5.0}
TRUTHS = {
    "tiles": replace(STEADY, tiles=TILES),
    "slowdown": replace(STEADY, **SLOW),  # type: ignore[arg-type]  # numbers
    "both": replace(STEADY, tiles=TILES, **SLOW),  # type: ignore[arg-type]  # numbers
    "neither": STEADY,
}
FITTED_RATES = (2.0, 8.0)
CHAT, LONG = (900, 0.6), (4000, 0.3)
JUDGED = {
    "6/s": (6.0, CHAT, False),
    "10/s": (10.0, CHAT, True),
    "12/s": (12.0, CHAT, True),
    "long": (1.5, LONG, True),
}
"""By name: requests/s, prompts, and whether that lies beyond what was fitted."""
NUM_FITTED, NUM_JUDGED = 300, 600
NOISE = 0.02
FEWER = 4
"""So many times as few fits are made without the tiles known."""


def trace_of(server: TwinConfig, rate: float, *, prompt: tuple[float, float], num: int, seed: int) -> Trace:
    """Return what a client sees of a load."""
    asked = workload(num, rate=rate, seed=seed, prompt=prompt, output=(150, 0.5))
    return observed(asked, server, noise=NOISE, seed=seed)


def fitted(server: TwinConfig, *, seed: int, knows_tiles: bool, num: int = NUM_FITTED) -> Fit:
    """Return the fit of two light loads."""
    config = TwinConfig(engine=ENGINE, latency=GUESS.latency)
    traces = [
        trace_of(server, rate, prompt=CHAT, num=num, seed=100 * seed + i)
        for i, rate in enumerate(FITTED_RATES)
    ]
    ready = [fit_trace(trace, config, name=str(i)) for i, trace in enumerate(traces)]
    priors = known_priors(KnownServer(shape=SHAPE, gpu=GPU, gpu_name=GPU.name))
    return fit(
        ready, config, latency_model="auto", priors=priors, tiles=TILES if knows_tiles else (), seed=seed
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """How far a mean E2E is off, a fraction, and whether the pace band holds it."""

    off: float
    is_held: bool


def judged(fit: Fit, server: TwinConfig, *, seed: int) -> dict[str, Judged]:
    """Return what a fit says of loads that it has not seen."""
    twin = replace(fit.config, pace=pace_of(fit))
    assert twin.pace is not None
    found = {}
    for name, (rate, prompt, is_beyond) in JUDGED.items():
        real = trace_of(server, rate, prompt=prompt, num=NUM_JUDGED, seed=9000 + seed)
        delta = twin.pace.of(is_beyond=is_beyond)
        low, middle, high = (
            _mean(simulate_trace(real, each)[0])
            for each in (paced(twin, 1 - delta), twin, paced(twin, 1 + delta))
        )
        found[name] = Judged(off=middle / _mean(real) - 1, is_held=low <= _mean(real) <= high)
    return found


def _mean(trace: Trace) -> float:
    return float(np.nanmean(request_metrics(trace)["e2e_us"].to_numpy(float)))


def main() -> None:
    """Print a row per truth and kind of fit."""
    number = int(sys.argv[1]) if sys.argv[1:] else 40
    names = sys.argv[2].split(",") if sys.argv[2:] else list(TRUTHS)
    print(
        "| server | tiles known | chosen | "
        + " | ".join(f"{load}: off (median, p90), held" for load in JUDGED)
        + " |"
    )
    print("|---|---|---|" + "---|" * len(JUDGED))
    for name in names:
        for knows in (True, False):
            cells, chosen = defaultdict(list), defaultdict(int)
            for seed in range(number if knows else number // FEWER):
                server = TwinConfig(engine=ENGINE, latency=replace(TRUTHS[name], seed=seed))
                found = fitted(server, seed=seed, knows_tiles=knows)
                chosen[next(each.name for each in found.candidates if each.chosen)] += 1
                for load, each in judged(found, server, seed=seed).items():
                    cells[load].append(each)
            taken = ", ".join(f"{each} {count}" for each, count in chosen.items())
            print(
                f"| {name} | {'yes' if knows else 'no'} | {taken} | "
                + " | ".join(map(_cell, cells.values()))
                + " |",
                flush=True,
            )


def _cell(found: list[Judged]) -> str:
    off = np.array([each.off for each in found])
    held = sum(each.is_held for each in found)
    return f"{np.median(off):+.1%}, {np.quantile(np.abs(off), 0.9):.1%}, {held} of {len(found)}"


if __name__ == "__main__":
    main()
