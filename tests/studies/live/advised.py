"""What a real server does at the rate that its twin advises, under loads of other requests."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.studies.live.server import say
from traces import read_trace, request_metrics

SEEDS = (101, 102, 103)
NUM_REQUESTS = 300
ROOM = 1.25
"""The limit is so many times the TPOT p99 that the held-out load had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """``rate_per_s`` [low, high] within ``limit_ms`` by the twin; what three loads at that rate had, TPOT p99 in ms."""

    limit_ms: float
    rate_per_s: float
    low: float | None
    high: float | None
    measured_ms: tuple[float, ...]

    def text(self) -> str:
        """Return it as a line."""
        within = "" if self.low is None else f" ({self.low:.3g} to {self.high:.3g})"
        measured = ", ".join(f"{each:.1f}" for each in self.measured_ms)
        return (
            f"advised: {self.rate_per_s:.3g} requests/s{within} within TPOT p99 {self.limit_ms:.1f} ms; "
            f"the server at that rate: {measured} ms"
        )


def advised(folder: Path, held_out: Path, *, server: Sequence[str], lengths: Sequence[str]) -> Advised:
    """Return what the server does at the advised rate; traces and the twin are in ``folder``."""
    limit_ms = round(ROOM * tpot_p99_ms(held_out), 1)
    asked = [
        "capacity",
        "--config",
        str(folder / "twin.yaml"),
        "--like",
        str(held_out),
        "--json",
        "--no-binding",
    ]
    found = json.loads(vtwin(*asked, "--slo", f"tpot_p99={limit_ms}ms"))
    rate = float(found["rate"])
    measured = []
    for seed in SEEDS:
        stem = folder / "advised" / f"seed-{seed}"
        load = ["--rate", f"{rate:.4g}", "--num-requests", str(NUM_REQUESTS), "--seed", str(seed), *lengths]
        vtwin("observe", *server, *load, "--output", str(stem))
        measured.append(tpot_p99_ms(stem))
    return Advised(
        limit_ms=limit_ms,
        rate_per_s=rate,
        low=found["low"],
        high=found["high"],
        measured_ms=tuple(measured),
    )


def tpot_p99_ms(stem: Path) -> float:
    """Return the 99th percentile of a trace's TPOT, ms."""
    tpot = request_metrics(read_trace(stem))["tpot_us"].to_numpy(dtype=np.float64)
    return float(np.nanpercentile(tpot, 99)) / 1e3


def vtwin(*arguments: str) -> str:
    """Run a vtwin command as a user would; return what it prints. SystemExit with its exit code where that is not 0."""
    say("\n$ vtwin " + " ".join(arguments))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "vtwin", *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.returncode)
    return done.stdout
