"""One measured run in the numbers on its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from lazy_dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from observe.measured.beside_the_load import BesideTheLoad, read_beside
from observe.repeats.repeated_load import RepeatedLoad, RepeatedLoads, grouped, load_name
from observe.repeats.run_figures import run_figures
from traces import (
    MOST_FAILED,
    Goodput,
    Summary,
    TraceError,
    finding_lines,
    goodput,
    load_alone,
    read_recorded,
    reading_notes,
    request_metrics,
    summarize_trace,
    without_warmup,
)

if TYPE_CHECKING:
    from traces import Trace

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedLoad:
    """A run without its warm-up: ``latencies_us`` by metric, NaN where a request has none; ``sent_us`` row for row.

    ``path``: as it was asked for.

    ``goodput``: None where neither the user nor the trace sets limits. ``in_flight``: the mean over the run.
    """

    name: str
    path: Path
    trace: Trace
    summary: Summary
    goodput: Goodput | None
    sent_us: Floats
    latencies_us: Mapping[str, Floats]
    in_flight: float | None
    beside: BesideTheLoad

    def quantile(self, metric: str, q: float) -> float | None:
        """Return a quantile of a latency, µs; None where no request has it."""
        values = self.latencies_us[metric]
        known = values[np.isfinite(values)]
        return float(np.quantile(known, q)) if len(known) else None

    @property
    def place(self) -> float | None:
        """Its place on the axis of loads: its users if answers set the pace, else its rate, requests/s."""
        users = self.summary.concurrency
        return float(users) if users else self.summary.rate_per_s

    def notes(self) -> list[str]:
        """Return what is to know of how a file was read."""
        return [f"{self.name}: {line}" for line in reading_notes(self.trace)]

    def warnings(self) -> list[str]:
        """Return the warnings that come before any number."""
        found: list[str] = []
        client = self.trace.header.client
        if client is not None and client.limited:
            found.append(
                f"{self.name}: the client did not keep up ({client.reason}): latencies are partly its own"
            )
        if client is not None and client.interrupted:
            found.append(f"{self.name}: the run was interrupted")
        by_status = self.summary.num_by_status
        failed = self.summary.num_requests - by_status.get("ok", 0) - by_status.get("cancelled", 0)
        if failed > MOST_FAILED * self.summary.num_requests:
            counts = ", ".join(f"{n:,} {status}" for status, n in self.summary.num_by_status.items())
            found.append(f"{self.name}: {counts}; latencies are of those that ended well")
        return [*found, *(f"{self.name}: {line}" for line in finding_lines(self.trace))]


def read_load(path: Path, *, name: str, slo_us: Mapping[str, float]) -> ServedLoad:
    """Return a run in numbers. Raises TraceError if there is no trace, or none of its requests was answered."""
    trace = without_warmup(load_alone(read_recorded(path, events=True)))
    metrics = request_metrics(trace)
    if not np.isfinite(metrics["e2e_us"].to_numpy(np.float64)).any():
        raise TraceError(
            f"{path}: got a trace without an answered request, expected a measured (or simulated) run"
        )
    summary = summarize_trace(trace)
    sent = trace.column("send_time_us").fillna(trace.column("arrival_time_us"))
    return ServedLoad(
        name=name,
        path=path,
        trace=trace,
        summary=summary,
        goodput=goodput(trace, slo_us or None, duration_us=float(summary.duration_us or 0)),
        sent_us=sent.to_numpy(np.float64, na_value=np.nan),
        latencies_us={name: metrics[f"{name}_us"].to_numpy(np.float64) for name in ("ttft", "tpot", "e2e")},
        beside=read_beside(path),
        in_flight=_mean_in_flight(metrics["e2e_us"].to_numpy(np.float64), summary.duration_us),
    )


def of_served(runs: Sequence[ServedLoad]) -> RepeatedLoads:
    """Return the runs grouped by the requests that they sent, in the order of the loads."""
    named = {each.name: each for each in runs}
    loads = []
    for group in grouped({each.name: each.trace for each in runs}):
        figures = {
            name: run_figures({**asdict(named[name].summary), "goodput": named[name].goodput})
            for name in group
        }
        loads.append(RepeatedLoad(name=load_name(group), runs=figures))
    return RepeatedLoads(loads=tuple(loads))


def _mean_in_flight(e2e_us: Floats, duration_us: int | None) -> float | None:
    """Return the mean number of requests in flight, by Little's law: the sum of their times over the run's."""
    return float(np.nansum(e2e_us) / duration_us) if duration_us else None
