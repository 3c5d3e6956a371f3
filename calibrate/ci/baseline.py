"""An older report.json, read for the gate's comparison: its held-out errors and fingerprints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.gate.checks import EQUIVALENCE, PER_REQUEST, RATE_LIMITED, ratio_distance
from calibrate.gate.verdict import Baseline
from calibrate.report.document import SCHEMA_VERSION
from traces import ConfigError, cut
from traces.statistics.bootstrap import Estimate
from traces.strict.json_text import finite, parse_value

Json = Mapping[str, Any]


def read_baseline(path: Path) -> Baseline:
    """Return an older report's results. Raises ConfigError if it is not a report of this schema."""
    document = _read(path)
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ConfigError(f"schema_version: got {version!r}, expected {SCHEMA_VERSION} ({path})")
    try:
        return Baseline(
            errors=_errors(document["holdout"]) | _rates(document["rates"]["holdout"]),
            strata=_strata(document["strata"]),
            fingerprints=_fingerprints(document["traces"]),
            samples=_samples(document),
            coefficients=_coefficients(document.get("fit")),
        )
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise ConfigError(
            f"--baseline: got a document without the keys of a report ({cut(str(error))}), "
            f"expected report.json ({path})"
        ) from error


def _read(path: Path) -> Json:
    try:
        document = parse_value(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"--baseline: got {error.strerror}, expected a report.json ({path})") from error
    except ValueError as error:
        raise ConfigError(
            f"--baseline: got text that is not JSON, expected a report.json ({path})"
        ) from error
    if not isinstance(document, dict):
        raise ConfigError(f"--baseline: got {type(document).__name__}, expected a JSON object ({path})")
    return document


def _errors(metrics: Json) -> dict[tuple[str, str], Estimate]:
    found: dict[tuple[str, str], Estimate] = {}
    for metric, errors in metrics.items():
        by_statistic = errors["rel_error"] | {name: errors[name] for name in (*PER_REQUEST, "ks")}
        found |= {(metric, name): _estimate(each) for name, each in by_statistic.items()}
        found[metric, EQUIVALENCE] = ratio_distance(_estimate(errors["rel_error"]["mean"]))
    return found


def _rates(rates: Json) -> dict[tuple[str, str], Estimate]:
    return {(name, kind): _estimate(rate[kind]) for name, rate in rates.items() for kind in RATE_LIMITED}


def _coefficients(fit: Json | None) -> dict[str, Estimate]:
    """Return the fitted coefficients with their intervals; none where nothing was fitted."""
    return {} if fit is None else {name: _estimate(each) for name, each in fit["coefficients"].items()}


def _strata(strata: list[Json]) -> dict[tuple[str, str, str, str], Estimate]:
    """Return the errors by (by, word or place among the kinds by that, metric, statistic): ``gate.places_of``."""
    places: dict[str, int] = {}
    found: dict[tuple[str, str, str, str], Estimate] = {}
    for stratum in strata:
        by = stratum["by"]
        place = places[by] = places.get(by, -1) + 1
        for statistic in PER_REQUEST:
            found |= {
                (by, stratum["value"] or str(place), metric, statistic): _estimate(each)
                for metric, each in stratum[statistic].items()
            }
    return found


def _samples(document: Json) -> dict[tuple[str, ...], int]:
    """Return how many requests are behind every error, by the keys of the errors."""
    found: dict[tuple[str, ...], int] = {}
    for key in _errors(document["holdout"]):
        found[key] = int(document["holdout"][key[0]]["n"])
    for key in _rates(document["rates"]["holdout"]):
        found[key] = int(document["rates"]["holdout"][key[0]]["n"])
    return found | _stratum_samples(document["strata"])


def _stratum_samples(strata: list[Json]) -> dict[tuple[str, ...], int]:
    keys: dict[str, list[int]] = {}
    for stratum in strata:
        keys.setdefault(stratum["by"], []).append(int(stratum["n"]))
    values = {(each["by"], each["value"]): int(each["n"]) for each in strata}
    found: dict[tuple[str, ...], int] = {}
    for by, which, metric, statistic in _strata(strata):
        n = values.get((by, which))
        found[by, which, metric, statistic] = keys[by][int(which)] if n is None else n
    return found


def _fingerprints(traces: list[Json]) -> frozenset[str]:
    return frozenset({trace["server"].get("system_fingerprint") or "" for trace in traces} - {""})


def _estimate(values: Json) -> Estimate:
    """Return the number and its interval; raises ValueError or TypeError on other values."""
    value, low, high = (None if values[k] is None else finite(values[k]) for k in ("value", "low", "high"))
    return Estimate(value=value, low=low, high=high)
