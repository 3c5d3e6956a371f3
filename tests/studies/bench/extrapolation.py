"""How far a fit carries beyond what it has seen: ``python -m tests.studies.bench.extrapolation [SERVER …]``.

Servers with known coefficients (a simulation: nothing here is a measurement) are observed at two low loads and one
spread of prompt lengths, the client adding delays of its own, and judged at one and a half times the higher load and at
prompts four times as long.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from calibrate.fit.model_selection import Asked
from calibrate.fit.objective.fit_trace import fit_trace
from calibrate.fit.objective.priors import CONCAVITY, MEMORY, SLOWDOWN, THRESHOLD, Prior
from calibrate.fit.pipeline import fit
from replay import TwinConfig, simulate_trace
from sim import Blackbox, EngineConfig, Extended
from traces import Header, Trace, make_trace, request_metrics

GUESS = Blackbox(beta0=5000, beta1=20, beta2=20)
ENGINE = EngineConfig(max_num_seqs=256, max_num_batched_tokens=8192, async_scheduling=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A true server, the two loads (requests/s) it is observed at, and what its roofline would say."""

    name: str
    truth: Blackbox
    loads: tuple[float, float]
    roofline: Mapping[str, tuple[float, float]]


SERVERS = (
    Server(
        name="8B, one H100",
        truth=Extended(
            alpha0=4000, alpha1=1.5, beta0=1800, beta1=22, beta2=12, beta3=0.045, beta4=0.0011,
            floor=5400, kappa=0.5, sigma=0.02,
        ),
        loads=(3.0, 8.0),
        roofline={"floor": (5600, 0.2), "beta1": (24, 0.4), "beta3": (0.049, 0.5), "beta4": (0.00106, 0.5)},
    ),
    Server(
        name="70B, four H100",
        truth=Extended(
            alpha0=5000, alpha1=1.5, beta0=4000, beta1=65, beta2=25, beta3=0.04, beta4=0.0016,
            floor=13_500, kappa=0.35, sigma=0.02,
        ),
        loads=(1.0, 3.0),
        roofline={"floor": (12_500, 0.2), "beta1": (55, 0.4), "beta3": (0.03, 0.5), "beta4": (0.0013, 0.5)},
    ),
    Server(
        name="a straight line",
        truth=Extended(alpha0=4000, alpha1=1.5, beta0=7200, beta1=22, beta2=30, sigma=0.02),
        loads=(3.0, 8.0),
        roofline={},
    ),
)  # fmt: skip


def workload(rate: float, *, n: int, seed: int, prompt: float) -> Trace:
    """Return Poisson arrivals with lognormal lengths around ``prompt`` and 150 tokens."""
    generator = np.random.default_rng(seed)
    lengths = {
        name: np.clip(np.exp(np.log(median) + spread * generator.normal(size=n)), 4, 7000).astype(np.int64)
        for name, median, spread in (("input_tokens", prompt, 0.5), ("output_tokens", 150.0, 0.5))
    }
    return make_trace(
        Header(tool="vtwin", mode="generated"),
        {
            "request_id": [str(i) for i in range(n)],
            "arrival_time_us": np.cumsum(generator.exponential(1e6 / rate, size=n)).astype(np.int64),
            **lengths,
        },
    )


def observed(trace: Trace, truth: Blackbox, *, seed: int) -> Trace:
    """Return the true server's answers, each stamp some milliseconds late."""
    server = TwinConfig(
        engine=ENGINE, latency=replace(truth, seed=seed) if isinstance(truth, Extended) else truth
    )
    run, _ = simulate_trace(trace, server, record="spans")
    generator = np.random.default_rng(1000 + seed)
    late = generator.exponential(2500, size=(2, len(trace)))
    columns = {}
    for name, delay in (("content_first_time_us", late[0]), ("last_token_time_us", late[1])):
        columns[name] = (run.requests[name].to_numpy(np.float64) + delay).round().astype(np.int64)
    columns["last_token_time_us"] = np.maximum(
        columns["last_token_time_us"], columns["content_first_time_us"]
    )
    return run.with_columns(
        **columns,
        first_chunk_time_us=columns["content_first_time_us"],
        last_chunk_time_us=columns["last_token_time_us"],
    )


def errors(config: TwinConfig, trace: Trace) -> tuple[float, float, float, float]:
    """Return (TTFT mean error, TTFT MAPE, E2E mean error, E2E MAPE) in per cent."""
    real, made = request_metrics(trace), request_metrics(simulate_trace(trace, config)[0])
    found: list[float] = []
    for name in ("ttft_us", "e2e_us"):
        a, b = (table[name].to_numpy(np.float64) for table in (real, made))
        found += [100 * (b.mean() / a.mean() - 1), 100 * float(np.mean(np.abs(b / a - 1)))]
    return found[0], found[1], found[2], found[3]


def main() -> None:
    """Print a table per server."""
    for server in SERVERS:
        if sys.argv[1:] and not any(word in server.name for word in sys.argv[1:]):
            continue
        low, high = server.loads
        fitted = [
            observed(workload(rate, n=300, seed=i, prompt=400), server.truth, seed=i)
            for i, rate in enumerate((low, high))
        ]
        tests = {
            "1.5 x the load": observed(
                workload(1.5 * high, n=400, seed=11, prompt=400), server.truth, seed=11
            ),
            "4 x the prompts": observed(workload(low, n=300, seed=12, prompt=1600), server.truth, seed=12),
            "both": observed(workload(high * 0.75, n=400, seed=13, prompt=1600), server.truth, seed=13),
        }
        roofline = {
            name: Prior(centre=value, width=value * width, source="roofline")
            for name, (value, width) in server.roofline.items()
        }
        print(f"\n{server.name}\n")
        print("| model | " + " | ".join(f"{name}: TTFT, E2E" for name in tests) + " | CPU s |")
        known = {"kappa": SLOWDOWN, "u0": THRESHOLD, "tau_s": MEMORY, "concavity": CONCAVITY, **roofline}
        ways: tuple[tuple[str, Asked | None, dict[str, Prior]], ...] = (
            ("truth", None, {}),
            ("blackbox", "blackbox", {}),
            ("extended", "extended", {}),
            ("auto", "auto", {}),
            ("extended, GPU and model known", "extended", known),
            ("auto, GPU and model known", "auto", known),
        )
        for label, model, priors in ways:
            config = TwinConfig(engine=ENGINE, latency=server.truth)
            cpu = time.process_time()
            if model is not None:
                ready = [fit_trace(trace, config, name=str(i)) for i, trace in enumerate(fitted)]
                config = replace(config, latency=GUESS)
                found = fit(ready, config, latency_model=model, priors=priors)
                config = found.config
                for candidate in found.candidates:
                    print("   ", candidate, file=sys.stderr)
                for each in found.coefficients:
                    if each.fitted:
                        led = " (prior)" if each.is_prior_led else ""
                        print(
                            f"    {each.name} {each.value:.5g} ({each.low:.4g} … {each.high:.4g}){led}",
                            file=sys.stderr,
                        )
            cells = []
            for trace in tests.values():
                ttft, ttft_mape, e2e, e2e_mape = errors(config, trace)
                cells.append(f"{ttft:+.1f} ({ttft_mape:.1f}), {e2e:+.1f} ({e2e_mape:.1f})")
            print(f"| {label} | " + " | ".join(cells) + f" | {time.process_time() - cpu:.0f} |", flush=True)


if __name__ == "__main__":
    main()
