"""gate.yaml, read strictly: every complaint is one line with the key, the file and the line."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from calibrate.compare.metric_errors import METRICS
from calibrate.compare.rates import RATES
from calibrate.compare.strata import METRICS as STRATUM_METRICS
from calibrate.gate.checks import DRIFT, EQUIVALENCE, LIMITED, PER_REQUEST, RATE_LIMITED, ErrorLimit
from calibrate.gate.drift import NAMES
from calibrate.gate.verdict import MIN_SAMPLES, Gate
from traces import PEER_METRICS
from traces.strict.section import Section, read_section

TOP = ("min_samples", "require_kv_capacity", "metrics", "rates", "equivalence", "coefficients", "strata")


def read_gate(path: str | Path) -> Gate:
    """Return the limits in gate.yaml. Raises ConfigError at the first error."""
    root = read_section(Path(path))
    root.refuse_unknown(TOP)
    limits = (
        *_limits(root, "metrics", metrics=tuple(METRICS), statistics=LIMITED),
        *_limits(root, "rates", metrics=RATES, statistics=RATE_LIMITED),
        *_margins(root),
    )
    coefficients = _drifts(root)
    if not limits and not coefficients:
        root.fail("metrics", got="nothing", expected="metrics with limits: {e2e_us: {mape: {fail: 0.1}}}")
    least = root.integer("min_samples", least=1)
    needs_kv = root.boolean("require_kv_capacity")
    return Gate(
        limits=limits,
        coefficients=coefficients,
        strata=_limits(root, "strata", metrics=STRATUM_METRICS, statistics=PER_REQUEST),
        min_samples=MIN_SAMPLES if least is None else least,
        require_kv_capacity=True if needs_kv is None else needs_kv,
    )


def loose_limits(gate: Gate) -> str | None:
    """Return the warning that limits are above 100 %, which is a fraction of 1, None where none is.

    ``fail: 10`` most likely means 10 %. But an error may be that large, so such a gate is not refused.
    """
    loose = [
        f"{limit.metric} {limit.statistic}: {level:g} is {100 * level:,.4g} %"
        for limit in (*gate.limits, *gate.coefficients, *gate.strata)
        if (level := limit.warn if limit.fail is None else limit.fail) is not None
        and level > 1
        and _is_fraction(limit)
    ]
    if not loose:
        return None
    return f"limits above 100 %: {', '.join(loose)}; 10 % is 0.1"


def _is_fraction(limit: ErrorLimit) -> bool:
    """Return whether a level is a fraction: a rate's plain error, as of preemptions, is in the rate's own unit."""
    return limit.statistic != "error" or limit.metric.endswith("_frac")


def _drifts(root: Section) -> tuple[ErrorLimit, ...]:
    """Return how far coefficients may move from the baseline's, as fractions: ``{beta0: {fail: 0.1}}``."""
    section = root.section("coefficients")
    if section is None:
        return ()
    section.refuse_unknown(NAMES)
    return tuple(_limit(section, name, statistic=name, kind=DRIFT) for name in section.nodes)


def _margins(root: Section) -> tuple[ErrorLimit, ...]:
    """Return the margins of equivalence: by how much the ratio of the means may be off, either way."""
    section = root.section("equivalence")
    if section is None:
        return ()
    section.refuse_unknown(tuple(METRICS))
    expected = "a fraction > 0, 0.05 for ratios of means between 1/1.05 and 1.05"
    found = []
    for metric in section.nodes:
        margin = section.decimal(metric, expected=expected)
        if margin is None or margin <= 0:
            section.fail(metric, got=str(margin), expected=expected)
        found.append(ErrorLimit(metric=metric, statistic=EQUIVALENCE, warn=None, fail=float(margin)))
    return tuple(found)


def _limits(
    root: Section, key: str, *, metrics: tuple[str, ...], statistics: tuple[str, ...]
) -> tuple[ErrorLimit, ...]:
    """Return the limits under one key, in the order of the file."""
    section = root.section(key)
    if section is None:
        return ()
    section.refuse_unknown(metrics, elsewhere=_of_peers(metrics))
    found = []
    for metric in section.nodes:
        by_statistic = section.section(metric)
        if by_statistic is None:
            continue
        by_statistic.refuse_unknown(statistics)
        found += [_limit(by_statistic, metric, statistic=name) for name in by_statistic.nodes]
    return tuple(found)


def _of_peers(metrics: Sequence[str]) -> dict[str, str]:
    """Return by another tool's name of a figure the metric that it is one of."""
    found = {name: each.path.partition(".")[0] for name, each in PEER_METRICS.items()}
    return {name: metric for name, metric in found.items() if metric in metrics and name not in metrics}


def _limit(section: Section, metric: str, *, statistic: str, kind: str = "") -> ErrorLimit:
    """Return the levels under a key; ``kind``: what they limit, where that is not the key's name."""
    expected = "{warn: FRACTION, fail: FRACTION}, at least one of them"
    levels = section.section(statistic, expected=expected)
    if levels is None or not levels.nodes:
        section.fail(statistic, got="nothing", expected=expected)
    levels.refuse_unknown(("warn", "fail"))
    warn, fail = (levels.decimal(name, expected="a fraction >= 0, 0.1 for 10 %") for name in ("warn", "fail"))
    if warn is not None and fail is not None and warn > fail:
        levels.fail("warn", got=str(warn), expected=f"at most fail, which is {fail}")
    return ErrorLimit(metric=metric, statistic=kind or statistic, warn=_float(warn), fail=_float(fail))


def _float(value: Decimal | None) -> float | None:
    return None if value is None else float(value)
