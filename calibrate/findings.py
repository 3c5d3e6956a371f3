"""The inputs and results of ``calibrate``: traces with their simulations, errors, and explanations."""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from calibrate.compare.engine_steps import EngineSteps, StepErrors
from calibrate.compare.equivalence import Equivalence
from calibrate.compare.metric_errors import Bootstrap, MetricErrors
from calibrate.compare.network import NetworkFigures
from calibrate.compare.pair import PairBy, Pairs
from calibrate.compare.phases import Origin
from calibrate.compare.rates import Counters, Rate
from calibrate.compare.served import RateCurve
from calibrate.compare.strata import Stratum
from calibrate.compare.worst_requests import WorstRequest
from calibrate.fit.objective.coefficients import FITTED
from calibrate.flags.shown import Shown
from calibrate.run_to_run.bands import MetricBand
from calibrate.run_to_run.server_pace import RunToRun
from traces import Saturation
from traces.facts import NotebookAnswer
from traces.strict.arguments import ANY_SEED, TEXT, Count, check_fields

if TYPE_CHECKING:
    from calibrate.fit.beyond import BeyondLoad
    from calibrate.fit.model_selection import Asked
    from calibrate.fit.result import Fit
    from calibrate.run_to_run.pace_today import PaceToday
    from replay import Judged, TwinConfig
    from traces import Trace

Role = Literal["compared", "fitted", "first half fitted, second half held out", "held out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTrace:
    """A trace, its name (its stem), and the SHA-256 of its table if it has a file.

    ``steps``: the engine's steps while it was observed, where they were logged. ``shown``: the server's flags as the
    run shows them. ``remarks``: for the report's notes.
    """

    name: str
    trace: Trace
    digest: str | None = None
    steps: EngineSteps | None = None
    shown: tuple[Shown, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to compare and fit. ``names``: the coefficients that vary.

    ``latency_model``: which to fit, None as configured. ``model_config`` (a config.json, or a model that ships),
    ``gpu`` and ``tp``: if the traces' headers do not have them, or have others; the extended model's coefficients that
    they imply are the fit's prior. ``network``: added to the simulated side. ``slo_us``: the limits of a good request
    (``--slo``). ``margins``: by metric, within which ratio of means two sides are equivalent; ``""`` is that of all
    others. ``max_concurrency``: the cap of the client that recorded the traces, where their headers do not say it.
    ``run_to_run``: how far a server's pace differs from one run to the next. ``from_twin``: another server's fitted
    twin, from which this one's is made.
    """

    pair_by: PairBy = "request_id"
    seed: int = 42
    names: tuple[str, ...] = FITTED
    infer_async: bool = False
    latency_model: Asked | None = None
    model_config: str | None = None
    gpu: str | None = None
    tp: int | None = None
    replicates: int = 1000
    network: NetworkFigures | None = None
    slo_us: Mapping[str, float] = field(default_factory=dict)
    margins: Mapping[str, float] = field(default_factory=dict)
    max_concurrency: int | None = None
    run_to_run: RunToRun = field(default_factory=RunToRun)
    from_twin: Path | None = None

    def __post_init__(self) -> None:
        """Check the numbers. Raises ConfigError."""
        check_fields(self, seed=ANY_SEED, tp=Count(1, 65_536), max_concurrency=Count(1))
        check_fields(self, replicates=Count(0, 1_000_000), model_config=TEXT, gpu=TEXT)

    def bootstrap(self) -> Bootstrap:
        """Return how intervals are drawn."""
        return Bootstrap(seed=self.seed, replicates=self.replicates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One observed trace with its simulation; ``partner``: the trace that it was compared with, if given.

    ``judged``: whether the twin of it kept up with the load, None where the load has no rate.
    """

    source: NamedTrace
    role: Role
    pairs: Pairs
    notes: tuple[str, ...]
    saturation: Saturation
    counters: Counters = field(default_factory=Counters)
    steps: StepErrors | None = None
    judged: Judged | None = None
    partner: NamedTrace | None = None

    @property
    def is_saturated(self) -> bool:
        """Whether its latencies are those of an overloaded server."""
        return self.saturation.state == "saturated"

    @property
    def is_client_limited(self) -> bool:
        """Whether the client, not the server, set the pace: its latencies are partly the client's."""
        client = self.source.trace.header.client
        return client is not None and bool(client.limited)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """The errors of some requests: by metric, over the run, and ``pairs``, the requests behind them.

    ``capacity``: the rates of the saturated runs among them, empty without. ``of_saturated``: even the latencies are of
    saturated runs, there being no others.
    """

    errors: dict[str, MetricErrors]
    rates: dict[str, Rate]
    capacity: dict[str, Rate]
    of_saturated: bool
    pairs: Pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFloor:
    """The server's run-to-run noise: its errors against a second run, and which runs these are."""

    accuracy: Accuracy
    couples: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Calibration(NotebookAnswer):
    """The results of ``calibrate``. ``unseen``: why the requests behind ``holdout`` are new to the fit.

    ``fitted_on`` and ``held_out``: errors in sample and held out; the same if nothing was fitted.
    ``noise``: None without a repeat run. ``beyond``: what a slowdown could do to loads above the fitted ones.
    ``rate_curve``: the twin's latency over the rate; None where two traces were compared, or no load has its own times.
    ``bands``: of one request's latencies, by metric; empty without a fit. ``pace_today``: of a server that has become
    slower or faster than its twin, which was good; None where nothing shows that.
    """

    drawn_by: ClassVar[str] = "calibrate.drawn_reports:of_calibration"

    fit: Fit | None
    config: TwinConfig | None
    fitted_on: Accuracy
    held_out: Accuracy
    noise: NoiseFloor | None
    equivalence: dict[str, Equivalence]
    origin: Origin | None
    worst: tuple[WorstRequest, ...]
    unseen: str
    strata: tuple[Stratum, ...]
    traces: tuple[Compared, ...]
    excluded: dict[str, int]
    notes: tuple[str, ...]
    bootstrap: Bootstrap
    options: Options
    beyond: BeyondLoad | None = None
    rate_curve: RateCurve | None = None
    bands: Mapping[str, MetricBand] = field(default_factory=dict)
    pace_today: PaceToday | None = None

    def __str__(self) -> str:
        """Return what was compared, in a line; a notebook shows the verdict."""
        names = ", ".join(each.source.name for each in self.traces)
        return f"{len(self.pairs):,} requests of {names}, {self.unseen}"

    @property
    def in_sample(self) -> dict[str, MetricErrors]:
        """The errors on the fitted requests, by metric."""
        return self.fitted_on.errors

    @property
    def holdout(self) -> dict[str, MetricErrors]:
        """The errors on requests that the fit has not seen, by metric."""
        return self.held_out.errors

    @property
    def held_out_traces(self) -> tuple[Compared, ...]:
        """The traces behind ``holdout``: those named with --holdout, else those that were not only fitted."""
        named = tuple(each for each in self.traces if each.role == "held out")
        return named or tuple(each for each in self.traces if each.role != "fitted")

    @property
    def noise_floor(self) -> dict[str, MetricErrors]:
        """The server's errors against itself, empty without a repeat run."""
        return {} if self.noise is None else self.noise.accuracy.errors

    @property
    def pairs(self) -> Pairs:
        """The requests behind ``holdout``."""
        return self.held_out.pairs
