"""The task of a fit, and the objective of any set of coefficients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from calibrate.fit.initial_guess import natural_scale
from calibrate.fit.known_models import ServedTrace
from calibrate.fit.objective.fit_trace import FitTrace, head_of
from calibrate.fit.objective.objective import FitObjective
from calibrate.fit.objective.priors import Prior
from calibrate.fit.search import Report
from sim import LatencyModel

if TYPE_CHECKING:
    from replay import TwinConfig

HEAD = 500
"""Requests of each trace, its first ones, that the search and the model selection are made on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The task of a fit. ``names``: blackbox's coefficients that vary; ``config.latency`` is the model.

    ``priors``: what model and GPU imply. ``report``: called with the stage and the best loss. ``known``: models of this
    server that are known before any trace, candidates by name; ``tiles``: of its products (``sim.Extended.tiles``),
    where model and GPU are known.
    """

    traces: tuple[FitTrace, ...]
    config: TwinConfig
    names: tuple[str, ...]
    priors: Mapping[str, Prior]
    seed: int
    report: Report
    known: Mapping[str, LatencyModel] = field(default_factory=dict)
    tiles: tuple[tuple[int, float], ...] = ()

    @property
    def latency(self) -> LatencyModel:
        """The model whose coefficients are to be found, one that is fitted freely."""
        return self.config.latency

    def objective(self, names: Sequence[str]) -> FitObjective:
        """Return the objective in which these names vary, without priors and without scatter of steps."""
        return FitObjective(
            traces=self.traces,
            engine=self.config.engine,
            names=tuple(names),
            base=self.latency.scattered(0.0),
            scale=natural_scale(self.traces, names),
        )

    def with_tiles(self) -> Task:
        """Return the task with tiles in its products' times."""
        return replace(self, config=replace(self.config, latency=self.latency.with_tiles(self.tiles)))

    @property
    def is_slowing(self) -> bool:
        """Whether the GPU is known as one whose clock falls while it computes."""
        return "kappa" in self.priors

    def heads(self) -> tuple[FitTrace, ...]:
        """Return the beginnings of the traces."""
        return tuple(head_of(trace, HEAD) for trace in self.traces)

    def served(self, traces: Sequence[FitTrace], model: LatencyModel) -> tuple[ServedTrace, ...]:
        """Return traces with the twin, of a model that is known, that they are fitted from."""
        config = replace(self.config, latency=model)
        return tuple(ServedTrace(trace=trace, config=config) for trace in traces)
