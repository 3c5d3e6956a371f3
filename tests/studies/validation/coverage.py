"""How often 90 % intervals hold the truth: ``python -m tests.studies.validation.coverage [FITS] [blackbox|extended]``.

Small fits to simulated servers. Of the extended model, the centre of every prior is drawn anew for each fit, from a
normal around the truth that is as wide as the prior: what a prior promises holds then, and the rest is the intervals'.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import replace

import numpy as np

from calibrate.fit.objective.fit_trace import fit_trace
from calibrate.fit.objective.priors import CONCAVITY, MEMORY, SLOWDOWN, THRESHOLD, Prior
from calibrate.fit.pipeline import fit
from calibrate.fit.result import Fit
from replay import TwinConfig
from sim import Blackbox, EngineConfig, Extended
from tests.calibrate.known_servers import GUESS, SERVER, observed, workload

FITS = 200
NOISE = 0.08
PROGRESS = 50
"""Fits after which the table so far is shown."""
NUM_REQUESTS = 100
PROMPTS = {"blackbox": (250, 0.7), "extended": (600, 0.8)}
"""Median and spread of the prompts' lengths: those of the second keep the server busy for half of the time."""

EXTENDED = TwinConfig(
    engine=EngineConfig(max_num_seqs=64, async_scheduling=False),
    latency=Extended(
        alpha0=4000, alpha1=5, beta0=4000, beta1=60, beta2=900, beta3=0.2, beta4=0.004, floor=9000,
        concavity=0.5, kappa=0.6, u0=0.3, tau_s=5.0,
    ),
)  # fmt: skip
WIDTHS = {"floor": 0.2, "beta1": 0.4, "beta3": 0.5, "beta4": 0.5}
"""Relative widths of what model and GPU imply (``replay.model.expectations``)."""
SLOW = {"kappa": SLOWDOWN, "u0": THRESHOLD, "tau_s": MEMORY, "concavity": CONCAVITY}


def priors_of(truth: Extended, *, seed: int) -> dict[str, Prior]:
    """Return priors whose centres are off as their widths say."""
    generator = np.random.default_rng(9000 + seed)
    widths = {name: float(getattr(truth, name)) * share for name, share in WIDTHS.items()}
    widths |= {name: prior.width for name, prior in SLOW.items()}
    return {
        name: Prior(
            centre=max(float(getattr(truth, name)) + width * float(generator.normal()), 0.05 * width),
            width=width,
            source="drawn",
        )
        for name, width in widths.items()
    }


def fitted(model: str, *, seed: int) -> Fit:
    """Return one fit of two traces of 100 requests each."""
    server = SERVER if model == "blackbox" else EXTENDED
    traces = [
        observed(
            workload(NUM_REQUESTS, rate=rate, seed=1000 + 10 * seed + i, prompt=PROMPTS[model]),
            server,
            noise=NOISE,
            seed=seed * 2 + i,
        )
        for i, rate in enumerate((3, 9))
    ]
    ready = [fit_trace(trace, GUESS, name=str(i)) for i, trace in enumerate(traces)]
    if model == "blackbox":
        return fit(ready, GUESS, latency_model="blackbox", seed=seed)
    assert isinstance(server.latency, Extended)
    return fit(ready, GUESS, latency_model="extended", priors=priors_of(server.latency, seed=seed), seed=seed)


def main() -> None:
    """Print coverage and median width of each coefficient."""
    number = int(sys.argv[1]) if sys.argv[1:] else FITS
    model = sys.argv[2] if sys.argv[2:] else "blackbox"
    truth: Blackbox = SERVER.latency if model == "blackbox" else replace(EXTENDED.latency)  # type: ignore[assignment]
    held, widths, off, led = defaultdict(list), defaultdict(list), defaultdict(list), defaultdict(list)
    for seed in range(number):
        for each in fitted(model, seed=seed).coefficients:
            value = float(getattr(truth, each.name))
            if each.fitted and each.low is not None and each.high is not None and value > 0:
                held[each.name].append(each.low <= value <= each.high)
                widths[each.name].append((each.high - each.low) / value)
                off[each.name].append(each.value / value - 1)
                led[each.name].append(each.is_prior_led)
        if (seed + 1) % PROGRESS == 0 or seed + 1 == number:
            print(
                f"{seed + 1} fits\n\n| coefficient | coverage | median width | median of value | spread | prior-led |"
            )
            print("|---|---|---|---|---|---|")
            for name, inside in held.items():
                print(
                    f"| {name} | {np.mean(inside):.3f} | {100 * np.median(widths[name]):.1f} % | "
                    f"{100 * np.median(off[name]):+.1f} % | {100 * np.std(off[name]):.1f} % | "
                    f"{np.mean(led[name]):.2f} |"
                )
            everything = [each for inside in held.values() for each in inside]
            print(f"| all | {np.mean(everything):.3f} | | | | |\n", flush=True)


if __name__ == "__main__":
    main()
