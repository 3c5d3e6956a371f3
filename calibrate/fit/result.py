"""What a fit finds: the fitted configuration, its coefficients with intervals, and how the fit went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from calibrate.compare.bootstrap import Floats
from calibrate.fit.model_selection import Candidate
from calibrate.fit.uncertainty import Coefficient

if TYPE_CHECKING:
    from replay import TwinConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleChoice:
    """Which way of scheduling explains the traces better: the loss with and without async scheduling."""

    async_scheduling: bool
    loss_async: float
    loss_sync: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A fitted twin: its configuration, its coefficients with intervals, and how the fit went.

    ``correlation`` [p, p] of the fitted coefficients ``names``. ``noise``: relative spread that the fit
    leaves in one request's TTFT, E2E and TPOT. ``seconds``: wall time. ``candidates``: the models that were
    compared, where the model was to be chosen. ``blackbox``: its coefficients where another of them was chosen.
    """

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
    candidates: tuple[Candidate, ...] = ()
    blackbox: tuple[Coefficient, ...] = ()

    @property
    def model(self) -> str:
        """The latency model's name in TWIN.yaml."""
        from replay.twin.config_write import name_of

        return name_of(self.config.latency)
