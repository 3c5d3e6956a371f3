"""What a state of the page asks for: a run, as ``vtwin run`` has it, and the words of that command."""

from __future__ import annotations

import shlex
from functools import lru_cache
from lazy_dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from replay.console.twins import load_twins
from replay.simulation.run_plan import RunSettings, plan
from replay.simulation.simulated_run import Run, carry_out
from traces import ConfigError, parse_slo
from traces.workload import SessionOptions, WorkloadOptions, recorded_load, started, trace_from_options
from traces.workload import flag as flag_of

if TYPE_CHECKING:
    from replay.twin.twin_config import TwinConfig
    from traces import Trace

KEPT_LOADS = 4
"""Loads that are kept drawn: turning a server's settings draws none anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRun:
    """A run as the options of ``vtwin run`` say it. ``settings``: keys of TWIN.yaml and their values.

    ``built``: what stands in ``config`` once somebody saves it there: a twin that the page's form made; None: a file.
    """

    config: Path
    workload: WorkloadOptions
    sessions: SessionOptions = field(default_factory=SessionOptions)
    settings: tuple[tuple[str, str], ...] = ()
    instances: int | None = None
    routing: str | None = None
    slo: str | None = None
    anyway: bool = False
    defaults: Path | None = None
    built: str | None = None

    def words(self) -> list[str]:
        """Return the command."""
        words = ["vtwin", "run", "--config", str(self.config)]
        for table in (self.workload, self.sessions):
            for each in fields(table):
                value = getattr(table, each.name)
                if value is not None and value != each.default:
                    words += [flag_of(each.name), str(value).removesuffix(".0")]
        for key, value in self.settings:
            words += ["--set", f"{key}={value}"]
        for name in ("instances", "routing", "slo", "defaults"):
            if getattr(self, name) is not None:
                words += [f"--{name}", str(getattr(self, name))]
        return [*words, "--anyway"] if self.anyway else words

    def command(self) -> str:
        """Return the command as a shell takes it."""
        return shlex.join(self.words())

    def twin(self) -> TwinConfig:
        """Return the twin with its settings. Raises ConfigError."""
        found = load_twins(
            self.config,
            self.defaults,
            [f"{key}={value}" for key, value in self.settings],
            instances=self.instances,
            routing=self.routing,
            anyway=self.anyway,
            text=self.built,
        )
        if len(found) > 1:
            raise ConfigError(
                "--set: got several values of a key, expected one: the page has them one by one"
            )
        return found[0][1]

    def load(self, twin: TwinConfig) -> Trace:
        """Return the requests. Raises ConfigError and TraceError."""
        seed = twin.seed if self.workload.seed is None else self.workload.seed
        return _load(self.workload, self.sessions, seed)

    def settings_of_run(self) -> RunSettings:
        """Return how it is simulated. Raises ConfigError."""
        return RunSettings(slo_us=parse_slo(self.slo) if self.slo else {})

    def run(self, twin: TwinConfig | None = None) -> Run:
        """Return the run; ``twin``: its own, where it was read already. Raises ConfigError and TraceError."""
        read = self.twin() if twin is None else twin
        return carry_out(plan(self.load(read), read, self.settings_of_run()))

    def sharper(self, num_requests: int) -> AskedRun:
        """Return the same with so many requests."""
        return replace(self, workload=replace(self.workload, num_requests=num_requests))


@lru_cache(maxsize=KEPT_LOADS)
def _load(workload: WorkloadOptions, sessions: SessionOptions, seed: int) -> Trace:
    drawn = trace_from_options(workload) if workload.trace is None else recorded_load(workload)
    starts = sessions.starts(seed=seed)
    return started(drawn, starts) if starts.changes_anything else drawn
