"""The gate within ``vtwin calibrate``: read before any slow work, decided and printed after it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from traces.strict.tell import say, tell

if TYPE_CHECKING:
    from calibrate.findings import Calibration
    from calibrate.gate.verdict import Baseline, Gate, Verdict
    from traces.statistics.bootstrap import Estimate


def gate_of(
    thresholds: Path | None, *, junit: Path | None, baseline: Path | None
) -> tuple[Gate, Baseline | None] | None:
    """Return the gate and its baseline, read before any slow work."""
    from calibrate.ci.baseline import read_baseline
    from calibrate.gate.gate_file import loose_limits, read_gate
    from traces import ConfigError

    if thresholds is not None:
        gate = read_gate(thresholds)
        if (warning := loose_limits(gate)) is not None:
            tell(f"warning: {thresholds}: {warning}")
        return gate, None if baseline is None else read_baseline(baseline)
    if junit is not None or baseline is not None:
        given = "--baseline" if junit is None else "--junit"
        raise ConfigError(f"{given}: needs --thresholds: there is no verdict without limits")
    return None


def verdict_on(calibration: Calibration, gate: Gate, baseline: Baseline | None) -> Verdict:
    """Return the gate's verdict on the results; first it checks whether the sides are comparable."""
    from calibrate.ci.comparable import changed_since, obstacles_of
    from calibrate.gate.drift import drift_checks
    from calibrate.gate.verdict import decide, verdict_of
    from calibrate.report.warnings import unknown_flags

    obstacles = obstacles_of(calibration, require_kv_capacity=gate.require_kv_capacity)
    if baseline is not None:
        obstacles += changed_since(calibration, baseline)
    held_out = calibration.held_out
    verdict = decide(
        gate,
        held_out.errors,
        rates=held_out.rates,
        capacity=held_out.capacity,
        of_saturated=held_out.of_saturated,
        strata=calibration.strata,
        obstacles=obstacles,
        baseline=baseline,
    )
    drifts = drift_checks(
        gate.coefficients,
        _coefficients_of(calibration),
        None if baseline is None else baseline.coefficients,
        least=gate.min_samples,
    )
    verdict = verdict_of([*verdict.checks, *drifts], obstacles)
    return replace(verdict, unknown_flags=unknown_flags(calibration))


def _coefficients_of(calibration: Calibration) -> dict[str, Estimate]:
    """Return the fitted coefficients with their intervals; none where nothing was fitted."""
    from traces.statistics.bootstrap import Estimate

    if calibration.fit is None:
        return {}
    return {
        each.name: Estimate(value=each.value, low=each.low, high=each.high)
        for each in calibration.fit.coefficients
    }


def announce(verdict: Verdict, calibration: Calibration, *, junit: Path | None, is_stdout_free: bool) -> None:
    """Print the verdict and write it for the CI system; leave with its exit code.

    The verdict goes to stdout, or to stderr if stdout has a JSON document.
    """
    from calibrate.ci import outputs
    from calibrate.gate.verdict import EXIT_CODES
    from traces import write_text

    if junit is not None:
        write_text(junit, outputs.junit_of(verdict), option="--junit")
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        outputs.append_summary(Path(summary), outputs.summary_of(verdict, calibration.holdout))
    if os.environ.get("GITHUB_ACTIONS"):
        for line in outputs.annotations_of(verdict):
            tell(line)  # stdout may be a JSON document; the runner reads both
    for line in verdict.obstacles:
        say(f"not comparable: {line}", err=not is_stdout_free)
    for check in verdict.checks:
        if check.reason:
            say(f"{check.word}: {check.name}: {check.reason}", err=not is_stdout_free)
    say(f"verdict: {verdict.line}", err=not is_stdout_free)
    raise typer.Exit(EXIT_CODES[verdict.outcome])


def margins_of(margin: float | None, gate: Gate | None) -> dict[str, float]:
    """Return the margins of equivalence by metric: the gate's own, and that of all others."""
    from calibrate.gate.checks import EQUIVALENCE

    found = {"": margin} if margin else {}
    limits = () if gate is None else gate.limits
    found |= {limit.metric: limit.fail for limit in limits if limit.statistic == EQUIVALENCE and limit.fail}
    return found
