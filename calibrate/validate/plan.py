"""The plan of ``vtwin validate``: which loads are observed, fitted and held out, as arguments of vtwin's commands."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from lazy_dataclasses import dataclass
from pathlib import Path

CAPACITY_USERS = 32
CAPACITY_REQUESTS = 5 * CAPACITY_USERS
"""With fewer, the ramp-up and the last few requests take a large part of the time."""
BUSY_SHARE = 0.8
"""Highest rate of the plan, as a share of the measured capacity."""
HOLDOUT_SHARE = 0.85
"""Rate of the held-out load, as a share of the plan's highest: a load that the plan does not have."""
HOLDOUT_SEED = 1001
FITTED_LOADS = ("singles", "prefill-heavy", "decode-heavy", "low", "middle", "high", "saturated", "repeat")
"""The loads of ``observe --plan calibrate``, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationPlan:
    """The observations, their folders, and the fit. ``load``: options of every observation."""

    folder: Path
    load: tuple[str, ...]
    rate_per_s: float

    def observations(self) -> list[list[str]]:
        """Return the arguments of every ``observe`` command, in order: the plan, the held-out load, and that again."""
        loads = [*self.load, "--plan", "calibrate", "--rate", f"{self.rate_per_s:.4g}", "--yes"]
        held_out = [*self.load, "--seed", str(HOLDOUT_SEED), "--sweep", self._holdout_rate()]
        return [
            [*loads, "--output", str(self.folder / "plan")],
            [*held_out, "--output", str(self.folder / "holdout")],
            [*held_out, "--output", str(self.folder / "again")],
        ]

    def steps(self) -> list[str]:
        """Return a heading for every observation and for the fit, which shows the progress."""
        return [
            f"step 1 of 4: {len(FITTED_LOADS)} loads for the fit",
            "step 2 of 4: the held-out load",
            "step 3 of 4: the held-out load again, for the server's own noise",
            "step 4 of 4: fit, compare, report",
        ]

    def holdout_trace(self) -> Path:
        """Return the held-out trace."""
        return self.folder / "holdout" / f"rate-{float(self._holdout_rate()):g}"

    def server_trace(self) -> Path:
        """Return the trace whose header says how the server is configured."""
        return self.folder / "plan" / "low"

    def calibration(self, config: Path, options: Sequence[str]) -> list[str]:
        """Return the arguments of the ``calibrate`` command: fit the plan's loads, hold out the other, twice."""
        stem = self.holdout_trace().name
        return [
            *(str(self.folder / "plan" / name) for name in FITTED_LOADS),
            *("--config", str(config), "--fit", "--accept-flags"),
            *(
                "--holdout",
                str(self.folder / "holdout" / stem),
                "--repeat",
                str(self.folder / "again" / stem),
            ),
            *options,
            *("--report", str(self.folder / "report"), "--write-config", str(self.twin())),
        ]

    def twin(self) -> Path:
        """Return where the fitted twin is written."""
        return self.folder / "twin.yaml"

    def _holdout_rate(self) -> str:
        return f"{HOLDOUT_SHARE * self.rate_per_s:.4g}"


def capacity_observation(load: Sequence[str], folder: Path) -> tuple[list[str], Path]:
    """Return the arguments of the ``observe`` command that measures the capacity, and the trace that it writes."""
    output = folder / "capacity"
    users = ["--sweep", f"concurrency={CAPACITY_USERS}", "--output", str(output)]
    return [*_enough_for_capacity(load), *users], output / f"concurrency-{CAPACITY_USERS}"


def busy_rate(capacity_per_s: float) -> float:
    """Return the highest rate of the plan, requests/s."""
    return BUSY_SHARE * capacity_per_s


def capacity_note(capacity_per_s: float, num_requests: int) -> str:
    """Return the line that tells the capacity, with a warning where few requests measured it."""
    few = f"; only {num_requests} requests, so it may be far off: set the rate with --rate"
    return (
        f"capacity: about {capacity_per_s:.3g} requests/s with {CAPACITY_USERS} users"
        f"{few if num_requests < CAPACITY_REQUESTS else ''}"
    )


def _enough_for_capacity(load: Sequence[str]) -> list[str]:
    """Return the options with a number of requests that is enough for the users; a time that is given stays."""
    parts = [part for option in load for part in option.split("=", 1)]
    if "--duration" in parts:
        return list(load)
    given = [later for part, later in pairwise(parts) if part == "--num-requests"]
    is_enough = bool(given) and given[-1].isdecimal() and int(given[-1]) >= CAPACITY_REQUESTS
    return [*load, *([] if is_enough else ["--num-requests", str(CAPACITY_REQUESTS)])]
