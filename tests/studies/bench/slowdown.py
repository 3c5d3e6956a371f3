"""Whether a slowdown's threshold is found.

``python -m tests.studies.bench.slowdown``; simulated servers, nothing measured.

A server like a 14B model on one GPU slows down by ``kappa`` per share of recent time above ``u0`` that it computed,
averaged over ``tau_s`` seconds, as an H100 does (decision 0032). It is observed at four loads (300 requests each,
prompts around 1,000 tokens, the client adding delays of its own) and judged at a higher one. With loads below the
threshold nothing shows it.
"""

from __future__ import annotations

import time
from dataclasses import replace

from calibrate.fit.objective.fit_trace import fit_trace
from calibrate.fit.objective.priors import CONCAVITY, MEMORY, SLOWDOWN, THRESHOLD, Prior
from calibrate.fit.pipeline import fit
from replay import TwinConfig
from sim import Extended
from tests.studies.bench.extrapolation import ENGINE, GUESS, errors, observed, workload

SERVER = Extended(
    alpha0=4000, alpha1=1.5, beta0=1800, beta1=36, beta2=60, beta3=0.045, beta4=0.0011, floor=9000, concavity=0.5,
    sigma=0.02,
)  # fmt: skip
ROOFLINE = {"floor": (9500, 0.2), "beta1": (40, 0.4), "beta3": (0.049, 0.5), "beta4": (0.00106, 0.5)}
KNOWN = {"kappa": SLOWDOWN, "u0": THRESHOLD, "tau_s": MEMORY, "concavity": CONCAVITY} | {
    name: Prior(centre=value, width=value * width, source="roofline")
    for name, (value, width) in ROOFLINE.items()
}
CASES = (
    (0.55, 0.65, 0.034, (3, 6, 9, 11), 13),
    (0.55, 0.65, 0.1, (3, 6, 9, 11), 13),
    (0.35, 0.8, 0.034, (3, 6, 8, 10), 12),
    (0.55, 0.65, 0.034, (2, 4, 6, 7), 12),
    (0.0, 0.0, 0.034, (3, 6, 9, 11), 13),
)
"""u0, kappa, tau_s, the loads that are fitted and the one that is judged (requests/s)."""
PROMPT = 1000.0


def row(u0: float, kappa: float, tau_s: float, loads: tuple[float, ...], judged: float) -> str:
    """Return a row of the table: what was found of the three, and the judged load's errors."""
    truth = replace(SERVER, u0=u0, kappa=kappa, tau_s=tau_s)
    config = TwinConfig(engine=ENGINE, latency=GUESS)
    traces = [
        observed(workload(rate, n=300, seed=i, prompt=PROMPT), truth, seed=i) for i, rate in enumerate(loads)
    ]
    held = observed(workload(judged, n=400, seed=11, prompt=PROMPT), truth, seed=11)
    cpu = time.process_time()
    ready = [fit_trace(trace, config, name=str(i)) for i, trace in enumerate(traces)]
    found = fit(ready, config, latency_model="extended", priors=KNOWN)
    by_name = {each.name: each for each in found.coefficients}
    cells = []
    for name in ("u0", "kappa", "tau_s"):
        each = by_name[name]
        led = ", prior-led" if each.is_prior_led else ""
        cells.append(f"{getattr(truth, name):g}: {each.value:.2f} ({each.low:.2f} … {each.high:.2f}{led})")
    ttft, _, e2e, mape = errors(found.config, held)
    at_loads = ", ".join(f"{rate:g}" for rate in loads)
    spent = time.process_time() - cpu
    return f"| {at_loads} → {judged} | {' | '.join(cells)} | {ttft:+.1f} | {e2e:+.1f} ({mape:.1f}) | {spent:.0f} |"


def main() -> None:
    """Print the table."""
    print("| loads | u0, true: found | kappa | tau_s | TTFT % | E2E % (MAPE) | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for case in CASES:
        print(row(*case), flush=True)


if __name__ == "__main__":
    main()
