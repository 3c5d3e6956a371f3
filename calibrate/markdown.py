"""report.md: the calibration as tables that read well where only text is shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from calibrate import words
from calibrate.errors import STATISTICS, MetricErrors
from calibrate.fit import Fit
from calibrate.gate import Verdict, check_table
from calibrate.judge import Calibration
from calibrate.problem import UNITS


def markdown_of(calibration: Calibration, *, command: str, verdict: Verdict | None = None) -> str:
    """Return the report as Markdown, the gate's verdict first where there is one."""
    level = f"{calibration.bootstrap.level:.0%}".replace("%", " %")
    parts = [
        "# vtwin calibration",
        *([] if verdict is None else [verdict_markdown(verdict)]),
        f"Held out: {calibration.unseen}. Errors are simulated minus observed; intervals hold at {level}.",
        "## Held-out errors",
        headline_table(calibration.holdout),
        *(_statistics(name, found) for name, found in calibration.holdout.items()),
        "## Throughput",
        _throughput(calibration),
    ]
    if calibration.fit is not None:
        parts += [
            "## Fit",
            _fit(calibration.fit),
            "## In-sample errors",
            headline_table(calibration.in_sample),
        ]
    if calibration.strata:
        parts += ["## By kind of request", _strata(calibration)]
    parts += ["## Traces", _traces(calibration), _excluded(calibration)]
    notes = [
        *calibration.notes,
        *(f"{t.source.name}: {note}" for t in calibration.traces for note in t.notes),
    ]
    if notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in dict.fromkeys(notes))]
    parts += ["## Provenance", f"`{command}`"]
    return "\n\n".join(parts) + "\n"


def verdict_markdown(verdict: Verdict) -> str:
    """Return the verdict, what stands in its way, and a row per check."""
    parts = [f"## Verdict: {verdict.outcome}"]
    if verdict.obstacles:
        parts.append("\n".join(f"- {line}" for line in verdict.obstacles))
    head, rows = check_table(verdict.checks)
    parts.append(table(head, rows))
    return "\n\n".join(parts)


def headline_table(errors: Mapping[str, MetricErrors]) -> str:
    """Return one row per metric: n, MAPE, bias, error of the mean and of p99, Pearson's R, KS."""
    rows = [
        (
            words.METRIC_NAMES[name],
            f"{found.n:,}",
            f"{words.percent(found.mape.value)} ({words.percent_interval(found.mape)})",
            f"{words.percent(found.bias.value, signed=True)} "
            f"({words.percent_interval(found.bias, signed=True)})",
            words.percent(found.rel_error["mean"].value, signed=True),
            words.percent(found.rel_error["p99"].value, signed=True),
            words.share(found.pearson_r.value),
            words.share(found.ks.value),
        )
        for name, found in errors.items()
    ]
    return table(["metric", "n", "MAPE", "bias", "mean", "p99", "R", "KS"], rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, its first column to the left, the others to the right."""
    lines = [list(head), ["---", *["---:"] * (len(head) - 1)], *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _statistics(name: str, found: MetricErrors) -> str:
    rows = [
        (
            statistic,
            words.duration(found.observed[statistic]),
            words.duration(found.simulated[statistic]),
            words.duration(found.error[statistic].value),
            words.percent(found.rel_error[statistic].value, signed=True),
            words.percent_interval(found.rel_error[statistic], signed=True),
        )
        for statistic in STATISTICS
    ]
    head = [words.METRIC_NAMES[name], "observed", "simulated", "error", "relative", "interval"]
    return table(head, rows)


def _throughput(calibration: Calibration) -> str:
    rates = calibration.holdout_throughput
    rows = [
        (label, words.rate(observed), words.rate(simulated))
        for label, (observed, simulated) in (
            ("requests/s", rates.request_per_s),
            ("output tokens/s", rates.output_token_per_s),
        )
    ]
    return table(["", "observed", "simulated"], rows)


def _fit(fit: Fit) -> str:
    rows = [
        (
            each.name,
            words.coefficient(each.value),
            words.NONE
            if each.low is None
            else f"{words.coefficient(each.low)} … {words.coefficient(each.high)}",
            UNITS[each.name],
            "yes" if each.identifiable else each.reason or "no",
        )
        for each in fit.coefficients
    ]
    lines = [
        table(["coefficient", "value", "interval", "unit", "identifiable"], rows),
        f"Async scheduling: {str(fit.config.engine.async_scheduling).lower()}{_schedule(fit)}. "
        f"Condition number {fit.condition_number:.3g}, {fit.num_requests:,} requests, {fit.seconds:.1f} s"
        f"{'' if fit.converged else '; **the search had not settled**'}.",
    ]
    return "\n\n".join(lines)


def _schedule(fit: Fit) -> str:
    if fit.schedule is None:
        return ""
    chosen = fit.schedule
    return f" (loss {chosen.loss_async:.4g} with it, {chosen.loss_sync:.4g} without)"


def _strata(calibration: Calibration) -> str:
    metrics = list(calibration.strata[0].mape)
    rows = [
        (
            words.STRATUM_NAMES[each.by],
            f"{each.low:,.0f} to {each.high:,.0f}",
            f"{each.n:,}",
            *(
                f"{words.percent(each.mape[m].value)} ({words.percent(each.bias[m].value, signed=True)})"
                if m in each.mape
                else words.NONE
                for m in metrics
            ),
        )
        for each in calibration.strata
    ]
    head = ["by", "range", "n", *(f"{words.METRIC_NAMES[m]} MAPE (bias)" for m in metrics)]
    return table(head, rows)


def _traces(calibration: Calibration) -> str:
    rows = [
        (each.source.name, each.role, f"{len(each.source.trace):,}", f"{len(each.pairs):,}")
        for each in calibration.traces
    ]
    return table(["trace", "role", "requests", "compared"], rows)


def _excluded(calibration: Calibration) -> str:
    if not calibration.excluded:
        return "No request was left out."
    return "Left out: " + ", ".join(
        f"{count:,} {words.reason(name)}" for name, count in calibration.excluded.items()
    )
