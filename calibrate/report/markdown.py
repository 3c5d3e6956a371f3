"""report.md: the calibration as tables for viewers of plain text."""

from __future__ import annotations

from collections.abc import Mapping

from calibrate import number_format
from calibrate.compare.metric_errors import STATISTICS, MetricErrors
from calibrate.compare.phases import BASES
from calibrate.findings import Calibration
from calibrate.fit.result import Fit
from calibrate.gate.checks import check_table
from calibrate.gate.verdict import Verdict
from calibrate.report import report_tables
from calibrate.report.suggested_runs import SuggestedRun, suggested_runs
from calibrate.report.warnings import warnings_of
from calibrate.verdict_text import verdict_text
from traces.facts import markdown_table
from traces.strict.escape import markdown, terminal


def markdown_of(calibration: Calibration, *, command: str, verdict: Verdict | None = None) -> str:
    """Return the report as Markdown, the gate's verdict first where there is one, then the twin's."""
    level = f"{calibration.bootstrap.level:.0%}".replace("%", " %")
    noise = calibration.noise_floor
    shown = report_tables.shown_metrics(calibration.holdout)
    warned = warnings_of(calibration)
    parts = [
        "# vtwin calibration",
        *([] if verdict is None else [verdict_markdown(verdict)]),
        f"**{verdict_text(calibration, has_warnings=bool(warned))}**",
        *([] if not warned else ["## Warnings\n\n" + "\n".join(f"- {markdown(line)}" for line in warned)]),
        f"Held out: {markdown(calibration.unseen)}. Errors are simulated minus observed; intervals hold at {level}."
        + "".join(f" {markdown(line)}." for line in circumstances(calibration)),
        "## Held-out errors",
        headline_table(calibration.holdout, noise=noise),
        f"{report_tables.reading_of(calibration)}. {report_tables.TERMS}.",
        *(_statistics(name, calibration.holdout[name], noise=noise.get(name)) for name in shown),
        "## Over the run",
        markdown_table(*report_tables.rates_table(calibration)),
    ]
    if calibration.equivalence:
        parts.append(markdown_table(*report_tables.equivalence_table(calibration)))
    if calibration.fit is not None:
        parts += ["## Fit", _fit(calibration.fit)]
        parts += [f"Note: {markdown(each.text())}." for each in (calibration.beyond,) if each is not None]
        parts += [_suggested(each) for each in suggested_runs(calibration)]
        parts += ["## In-sample errors", headline_table(calibration.in_sample, noise=noise)]
    parts += _origin(calibration)
    if calibration.strata:
        parts += ["## By kind of request", _strata(calibration)]
    parts += ["## Traces", _traces(calibration), _excluded(calibration)]
    parts.append(markdown_table(report_tables.SATURATION_HEAD, report_tables.saturation_rows(calibration)))
    head, rows = report_tables.steps_table(calibration)
    if rows:
        parts += ["## Engine steps", markdown_table(head, rows)]
    notes = [
        *calibration.notes,
        *(f"{t.source.name}: {note}" for t in calibration.traces for note in t.notes),
    ]
    if notes:
        parts += ["## Notes", "\n".join(f"- {markdown(note)}" for note in dict.fromkeys(notes))]
    parts += ["## Provenance", f"`{terminal(command)}`"]
    return "\n\n".join(parts) + "\n"


def verdict_markdown(verdict: Verdict) -> str:
    """Return the verdict, its obstacles, and a row per check."""
    parts = [f"## Verdict: {markdown(verdict.line)}"]
    if verdict.obstacles:
        parts.append("\n".join(f"- {markdown(line)}" for line in verdict.obstacles))
    head, rows = check_table(verdict.checks)
    parts.append(markdown_table(head, rows))
    return "\n\n".join(parts)


def circumstances(calibration: Calibration) -> list[str]:
    """Return notes to read before the numbers: saturation, the noise floor's runs, network, SLO."""
    lines = []
    saturated = [each.source.name for each in calibration.traces if each.is_saturated]
    if saturated:
        names = ", ".join(saturated)
        lines.append(
            f"Overloaded runs ({names}) are compared by throughput: their latencies only reflect run length"
        )
    if calibration.noise is not None:
        couples = "; ".join(f"{other} repeats {one}" for one, other in calibration.noise.couples)
        lines.append(f"Noise floor: two runs of the same load on the server ({couples})")
    network = calibration.options.network
    if network is not None:
        width = (
            ""
            if network.bandwidth_mbit_per_s is None
            else f" and {network.bandwidth_mbit_per_s:g} Mbit/s at {network.bytes_per_token:g} bytes a token"
        )
        rtt = number_format.duration(network.rtt_us)
        lines.append(f"The client's network was added to the simulated side: a round trip of {rtt}{width}")
    slo_us = calibration.options.slo_us
    if slo_us:
        kept = ", ".join(f"{name} ≤ {number_format.duration(most)}" for name, most in slo_us.items())
        lines.append(f"A good request meets {kept}")
    return lines


def headline_table(
    errors: Mapping[str, MetricErrors], *, noise: Mapping[str, MetricErrors] | None = None
) -> str:
    """Return one row per metric: errors per request, of the mean and of p99, correlations and distances."""
    facts = [
        report_tables.metric_facts(errors, noise or {}, name) for name in report_tables.shown_metrics(errors)
    ]
    rows = [
        [
            f"{fact.text} ({fact.aside})" if fact.key in ("mape", "bias") and fact.aside else fact.text
            for fact in each
        ]
        for each in facts
    ]
    if not facts:
        return "no metric could be compared"
    return markdown_table([fact.term or "" for fact in facts[0]], rows)


def _statistics(name: str, found: MetricErrors, *, noise: MetricErrors | None) -> str:
    unit, columns = number_format.in_one_unit(
        [found.observed[statistic] for statistic in STATISTICS],
        [found.simulated[statistic] for statistic in STATISTICS],
        [found.error[statistic].value for statistic in STATISTICS],
    )
    rows = [
        [
            statistic,
            *times,
            number_format.percent(found.rel_error[statistic].value, signed=True),
            number_format.percent_interval(found.rel_error[statistic], signed=True),
            *(
                []
                if noise is None
                else [number_format.percent(noise.rel_error[statistic].value, signed=True)]
            ),
        ]
        for statistic, times in zip(STATISTICS, zip(*columns, strict=True), strict=True)
    ]
    head = [number_format.METRIC_NAMES[name], *report_tables.sides(unit), "relative", "interval"]
    return markdown_table([*head, *([] if noise is None else ["noise floor"])], rows)


def _origin(calibration: Calibration) -> list[str]:
    """Return where the error comes from, and the worst requests."""
    parts = []
    if calibration.origin is not None:
        parts += ["## Where the error comes from", markdown_table(*report_tables.origin_table(calibration))]
        parts.append(f"Phases: {BASES[calibration.origin.basis]}; {calibration.origin.n:,} requests.")
    if calibration.worst:
        parts += ["## The worst requests", markdown_table(*report_tables.worst_table(calibration))]
        parts.append(
            "Times are phases one after another: client and network, queue, prefill, decode; or first token and rest."
        )
    return parts


def _suggested(run: SuggestedRun) -> str:
    """Return the run that would show some coefficients, ready to copy."""
    names = ", ".join(run.coefficients)
    return f"To determine {names}: {run.shows}.\n\n```sh\n{run.command}\n```"


def _fit(fit: Fit) -> str:
    rows = [
        [*report_tables.coefficient_cells(each), "yes" if each.identifiable else each.reason or "no"]
        for each in fit.coefficients
    ]
    lines = [
        markdown_table(["coefficient", "value", "interval", "unit", "identifiable"], rows),
        f"Async scheduling: {str(fit.config.engine.async_scheduling).lower()}{_schedule(fit)}. "
        f"Condition number {fit.condition_number:.3g} ({report_tables.CONDITION_NUMBER}), "
        f"{fit.num_requests:,} requests, {fit.seconds:.1f} s"
        f"{'' if fit.converged else '; **the search did not converge**'}.",
    ]
    if compared := report_tables.candidate_rows(fit):
        lines += [
            markdown_table(report_tables.CANDIDATE_HEAD, compared),
            f"Chosen: {report_tables.choice_text(fit)}.",
        ]
    if beside := report_tables.blackbox_rows(fit):
        lines.append(markdown_table(report_tables.BLACKBOX_HEAD, beside))
    return "\n\n".join(lines)


def _schedule(fit: Fit) -> str:
    if fit.schedule is None:
        return ""
    chosen = fit.schedule
    return f" (loss {chosen.loss_async:.4g} with it, {chosen.loss_sync:.4g} without)"


def _strata(calibration: Calibration) -> str:
    metrics, kinds = report_tables.strata_rows(calibration)
    rows = [
        [
            *kind,
            *(
                f"{number_format.percent(each.mape[m].value)} "
                f"({number_format.percent(each.bias[m].value, signed=True)})"
                if m in each.mape
                else number_format.NONE
                for m in metrics
            ),
        ]
        for kind, each in zip(kinds, calibration.strata, strict=True)
    ]
    head = ["by", "which", "n", *(f"{number_format.METRIC_NAMES[m]} MAPE (bias)" for m in metrics)]
    return markdown_table(head, rows)


def _traces(calibration: Calibration) -> str:
    rows = [
        (each.source.name, each.role, f"{len(each.source.trace):,}", f"{len(each.pairs):,}")
        for each in calibration.traces
    ]
    return markdown_table(["trace", "role", "requests", "compared"], rows)


def _excluded(calibration: Calibration) -> str:
    if not calibration.excluded:
        return "No request was left out."
    return "Left out: " + ", ".join(
        f"{count:,} {number_format.reason(name)}" for name, count in calibration.excluded.items()
    )
