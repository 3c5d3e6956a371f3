"""Latency limits of a single request (SLOs), which requests meet them, and goodput: ``--slo ttft=500ms,tpot=30ms``.

A limit comes from ``--slo``, from the request's ``slo_target_us`` (time to the first token), or from its service
class in the header's ``goodput_slo_targets``: for each latency the first of these that has one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypedDict

import numpy as np

from traces.errors import ConfigError
from traces.peers.peer_metrics import own_limit
from traces.run_slo import limit_us
from traces.strict.arguments import ANY_TEXT, TRACE, Number, takes

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from traces.trace import Trace

SLO_METRICS: Final = {
    "ttft": "ttft_us",
    "ttft_from_due": "ttft_from_due_us",
    "tpot": "tpot_us",
    "itl": "itl_mean_us",
    "e2e": "e2e_us",
}
"""The latencies that may be limited, with their column of ``request_metrics``; ITL is a request's mean."""

PERCENTILE: Final = re.compile(r"p(\d{1,2}(?:\.\d+)?)")
"""Behind a latency: a limit over the run (``traces.run_slo``)."""

MOST_FAILED: Final = 0.01
"""With a larger share of unanswered requests latencies are of the others only, and no objective counts as kept."""

NO_CLASS: Final = "none"
"""The name of requests without a service class in a result."""


class Attainment(TypedDict):
    """How many requests met all their limits, of those that have any; a request that failed met none.

    ``good_per_s``: of them per second (goodput). ``met_frac``: by latency, the share that met its limit.
    """

    num_requests: int
    num_good: int
    good_frac: float | None
    good_per_s: float | None
    met_frac: dict[str, float]


class Goodput(Attainment):
    """The attainment of all requests and of each service class.

    ``slo_us``: the limits of ``--slo``. ``num_without_target``: requests that have no limit, ``num_not_measured``:
    those with a limit on a latency that was not measured; both are in no count.
    """

    slo_us: dict[str, float]
    num_without_target: int
    num_not_measured: int
    by_class: dict[str, Attainment]


@takes(text=ANY_TEXT)
def parse_slo(text: str, *, tell: Callable[[str], None] | None = None) -> dict[str, float]:
    """Return the limits of ``ttft=500ms,tpot=30ms`` in µs, by metric. Raises ConfigError, for a bare number too.

    A percentile over the run, ``ttft_p99=500ms``, is taken as that limit of each request, and ``tell`` gets the
    sentence that says so.
    """
    limits: dict[str, float] = {}
    for part in text.split(","):
        given, _, value = part.strip().partition("=")
        name, percent = _of_each_request(given)
        limit = limit_us(given, value)
        if name in limits:
            raise ConfigError(f"--slo {given}: got a second limit of {name}, expected one")
        limits[name] = limit
        if percent is not None and tell is not None:
            tell(
                f"--slo {given}={value} is a limit over the run: taken as {name}={value} of each request; it is kept "
                f"where {percent} % of them meet it"
            )
    return limits


def _of_each_request(given: str) -> tuple[str, str | None]:
    """Return the latency that a limit is of, and the percentile that it was given for, None where for none."""
    if given in SLO_METRICS:
        return given, None
    name, _, statistic = given.rpartition("_")
    if name in SLO_METRICS and statistic == "mean":
        raise ConfigError(
            f"--slo: got {given!r}, a limit that no single request has, expected {name}=… or {name}_p99=…; "
            "`vtwin capacity` takes means"
        )
    if name in SLO_METRICS and (found := PERCENTILE.fullmatch(statistic)):
        return name, found[1]
    hint = own_limit(given)
    raise ConfigError(
        f"--slo: got {given!r}, expected one of {', '.join(SLO_METRICS)} (ttft=500ms,tpot=30ms; or ttft_p99=500ms)"
        f"{f'; {hint}' if hint else ''}"
    )


def meets_slo(latencies: pd.DataFrame, slo_us: Mapping[str, float]) -> NDArray[np.bool_]:
    """Return which rows meet every limit; TPOT and ITL, which a single token does not have, break none.

    A row without a TTFT has no latency of its tokens that was measured, and meets no limit on them.
    """
    good = np.ones(len(latencies), dtype=bool)
    for name, most_us in slo_us.items():
        good &= _within(latencies[SLO_METRICS[name]].to_numpy(dtype=np.float64), most_us)
        if name != "e2e" and "ttft_us" in latencies:
            good &= latencies["ttft_us"].notna().to_numpy()
    return good


def limits_of(trace: Trace, slo_us: Mapping[str, float] | None = None) -> dict[str, NDArray[np.float64]]:
    """Return the limit of each request by latency, in µs, NaN where it has none; latencies without any are left out."""
    limits = {name: np.full(len(trace), most_us) for name, most_us in (slo_us or {}).items()}
    of_class = _limits_of_classes(trace)
    own = trace.cells("slo_target_us").floats()
    of_class["ttft"] = np.where(np.isnan(own), of_class["ttft"], own)
    limits |= {name: values for name, values in of_class.items() if name not in limits}
    return {name: values for name, values in limits.items() if not np.isnan(values).all()}


@takes(trace=TRACE, duration_us=Number(0))
def goodput(trace: Trace, slo_us: Mapping[str, float] | None = None, *, duration_us: float) -> Goodput | None:
    """Return which share of the requests met their limits, in all and by class; None where there is no limit.

    ``slo_us``: limits for all requests, in place of the trace's own. ``duration_us``: what goodput is per.
    """
    limits = limits_of(trace, slo_us)
    if not limits:
        return None
    met, unmeasured = _met(trace, limits)
    has_target = np.asarray(~np.isnan(np.stack(list(limits.values()))).all(axis=0))
    judged = has_target & ~unmeasured
    classes = trace.cells("slo_class").filled(NO_CLASS)
    names = sorted(set(classes[has_target].tolist()))
    by_class = {
        str(name): _attainment(met, limits, judged & (classes == name), duration_us=duration_us)
        for name in names
    }
    return Goodput(
        **_attainment(met, limits, judged, duration_us=duration_us),
        slo_us=dict(slo_us or {}),
        num_without_target=int((~has_target).sum()),
        num_not_measured=int((has_target & unmeasured).sum()),
        by_class={} if names == [NO_CLASS] else by_class,
    )


def _limits_of_classes(trace: Trace) -> dict[str, NDArray[np.float64]]:
    limits = {name: np.full(len(trace), np.nan) for name in ("ttft", "itl", "e2e")}
    classes = trace.cells("slo_class").values
    for name, target in trace.header.goodput_slo_targets.items():
        for metric, most_us in limits.items():
            most_ms = getattr(target, f"{metric}_ms")
            if most_ms is not None:
                most_us[classes == name] = most_ms * 1e3
    return limits


def _met(
    trace: Trace, limits: Mapping[str, NDArray[np.float64]]
) -> tuple[dict[str, NDArray[np.bool_]], NDArray[np.bool_]]:
    """Return by latency which requests met its limit, and which have a limit on a latency that was not measured.

    Those that did not end well met none; what a single token does not have (TPOT, ITL) keeps any limit.
    """
    from traces.measured.stream_shape import stream_shape
    from traces.metrics import finished_ok, request_latencies

    ok, latencies, shape = finished_ok(trace), request_latencies(trace), stream_shape(trace)
    has = {"tpot": shape.has_tpot, "itl": shape.has_itl, "e2e": np.ones(len(trace), np.bool_)}
    unmeasured = np.zeros(len(trace), np.bool_)
    for name, most_us in limits.items():
        unmeasured |= ok & ~np.isnan(most_us) & ~has.get(name, shape.has_ttft)
        if name in {"ttft", "ttft_from_due"}:
            unmeasured |= ok & ~np.isnan(most_us) & np.isnan(latencies[SLO_METRICS[name]])
    met = {
        name: ok & ~unmeasured & _within(latencies[SLO_METRICS[name]], values)
        for name, values in limits.items()
    }
    return met, unmeasured


def _within(values: NDArray[np.float64], most_us: float | NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray(np.isnan(values) | np.isnan(most_us) | (values <= most_us))


def _attainment(
    met: Mapping[str, NDArray[np.bool_]],
    limits: Mapping[str, NDArray[np.float64]],
    chosen: NDArray[np.bool_],
    *,
    duration_us: float,
) -> Attainment:
    num = int(chosen.sum())
    num_good = int((chosen & np.logical_and.reduce(list(met.values()))).sum())
    limited = {name: chosen & ~np.isnan(limits[name]) for name in met}
    return Attainment(
        num_requests=num,
        num_good=num_good,
        good_frac=num_good / num if num else None,
        good_per_s=num_good / (duration_us / 1e6) if duration_us and num else None,
        met_frac={name: float(met[name][rows].mean()) for name, rows in limited.items() if rows.any()},
    )
