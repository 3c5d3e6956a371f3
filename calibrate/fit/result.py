"""The result of a fit: the fitted configuration, its coefficients with intervals, and details of the fit."""

from __future__ import annotations

import math
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from calibrate.fit.model_selection import ComparedModel
from calibrate.fit.uncertainty import Coefficient
from calibrate.run_to_run.server_pace import STATED
from replay.twin.fitted import MOST, Pace
from traces.facts import NotebookAnswer
from traces.statistics.bootstrap import Floats

if TYPE_CHECKING:
    from replay import TwinConfig

WITHIN = 0.01
"""Steps of loads within the fitted ones are off by this much, where the terms are right."""
BEYOND, BEYOND_WITH_TILES = 0.026, 0.02
"""The same beyond them: a smooth curve does not know where tiles end. With tiles, 1 % held 40 of 40 loads at 1.5 times
the fitted one, and of prompts four times as long 26 of 40 (docs/validation.md)."""
DECIMALS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleChoice:
    """The choice of scheduling that explains the traces better: the loss with and without async scheduling."""

    async_scheduling: bool
    loss_async: float
    loss_sync: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Fit(NotebookAnswer):
    """A fitted twin: its configuration, its coefficients with intervals, and how the fit went.

    ``correlation`` [p, p] of the fitted coefficients ``names``. ``noise``: relative spread that the fit
    leaves in one request's TTFT, E2E and TPOT. ``seconds``: wall time. ``candidates``: the models that were
    compared, where the model was to be chosen. ``blackbox``: its coefficients where another of them was chosen.
    ``carried_from``: the server of the twin that this one was made from, in words (``calibrate --from``).
    """

    drawn_by: ClassVar[str] = "calibrate.drawn_reports:of_fit"

    config: TwinConfig
    coefficients: tuple[Coefficient, ...]
    names: tuple[str, ...]
    correlation: Floats
    condition_number: float
    loss: float
    noise: dict[str, float]
    num_requests: int
    converged: bool
    method: str
    seconds: float
    schedule: ScheduleChoice | None = None
    candidates: tuple[ComparedModel, ...] = ()
    blackbox: tuple[Coefficient, ...] = ()
    carried_from: str | None = None

    def __str__(self) -> str:
        """Return the model and its coefficients in a line."""
        told = ", ".join(f"{each.name} {each.value:.4g}" for each in self.coefficients)
        return f"{self.model}, fitted to {self.num_requests:,} requests: {told}"

    @property
    def model(self) -> str:
        """The latency model's name in TWIN.yaml."""
        from replay.twin import name_of

        return name_of(self.config.latency)


def pace_of(fit: Fit, *, run_to_run: float = STATED) -> Pace:
    """Return the pace of a fitted twin, fractions; at least the chosen model's error on held-out requests.

    ``run_to_run``: within which fraction of its usual pace nine of ten runs are. The error of an E2E is at least that
    of its steps, so it bounds theirs.
    """
    chosen = next((each for each in fit.candidates if each.chosen), None)
    off = 0.0 if chosen is None else chosen.e2e_off
    within = max(WITHIN, math.hypot(off, run_to_run))
    beyond = max(within, BEYOND_WITH_TILES if fit.config.latency.tile_factors else BEYOND)
    return Pace(within=_rounded(within), beyond=_rounded(beyond))


def _rounded(value: float) -> float:
    return min(round(value, DECIMALS), MOST)
