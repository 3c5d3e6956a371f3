"""report.html: the calibration as one page, the held-out errors first."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from calibrate import number_format
from calibrate.compare.errors import MetricErrors
from calibrate.findings import Calibration
from calibrate.gate.checks import check_table
from calibrate.gate.verdict import Verdict
from calibrate.report import html_errors, html_fit, html_runs
from calibrate.report.html_errors import OBSERVED, PER_REQUEST, SIMULATED
from calibrate.report.markdown import circumstances
from calibrate.report.suggested_runs import suggested_runs
from calibrate.report.tables import is_of_gaps_only
from calibrate.report.warnings import warnings_of
from replay.pages import Headline, Page, Prose, Section, Table, render

SHOWN = ("ttft_us", "itl_us", "tpot_us", "e2e_us")


def page_of(
    calibration: Calibration, *, document: Mapping[str, Any], command: str, verdict: Verdict | None = None
) -> str:
    """Return the page as one HTML document, the gate's verdict first where there is one."""
    shown = [name for name in SHOWN if name in calibration.holdout]
    per_request = [name for name in PER_REQUEST if name in calibration.holdout]
    names = ", ".join(each.source.name for each in calibration.traces)
    sections = [
        *([] if verdict is None else [_verdict(verdict)]),
        *_warnings(calibration),
        html_errors.held_out(calibration),
        html_errors.distributions(calibration, shown),
        html_errors.requests(calibration, per_request),
        *([html_runs.origin(calibration)] if calibration.origin or calibration.worst else []),
        html_runs.load(calibration),
        *(
            [html_fit.coefficients(calibration.fit, suggested_runs(calibration), calibration.beyond)]
            if calibration.fit is not None
            else []
        ),
        *([html_fit.steps(calibration)] if any(each.steps for each in calibration.traces) else []),
        *([html_errors.kinds(calibration)] if calibration.strata else []),
        *([html_errors.in_sample(calibration)] if calibration.fit is not None else []),
        html_runs.traces(calibration),
        html_runs.provenance(document, command=command),
    ]
    page = Page(
        name=f"vtwin calibration: {names}",
        eyebrow=f"vtwin calibration report · {document['provenance']['created_at'][:10]}",
        title=("" if verdict is None else f"{verdict.line}. ") + _title(calibration, per_request),
        lead=_lead(calibration),
        headlines=_headlines(calibration, shown),
        sections=sections,
        footer=f"vtwin {document['provenance']['tool_version']} · report.json, schema "
        f"{document['schema_version']}, holds every number on this page",
    )
    return render(page)


def _warnings(calibration: Calibration) -> list[Section]:
    """Return what a reader must know before any number, empty where nothing is."""
    lines = warnings_of(calibration)
    parts = [Prose(markup=f"{escape(line)}.") for line in lines]
    return [Section(title="Warnings", anchor="warnings", parts=parts)] if lines else []


def _verdict(verdict: Verdict) -> Section:
    """Return the gate's verdict: what stands in its way, and every check."""
    head, rows = check_table(verdict.checks)
    parts: list[Prose | Table] = [Prose(markup=escape(line)) for line in verdict.obstacles]
    parts.append(Table(head=head, rows=rows, align="l" + "r" * (len(head) - 3) + "nl"))
    return Section(title=f"Verdict: {verdict.line}", anchor="verdict", parts=parts)


def _title(calibration: Calibration, metrics: list[str]) -> str:
    """Return the result in a line; of runs that were all saturated, the capacity."""
    if calibration.held_out.of_saturated:
        rate = calibration.held_out.capacity["output_token_throughput"]
        off = number_format.percent(rate.rel_error.value, signed=True)
        return f"Saturated: capacity off by {off} of output tokens per second"
    parts = [
        f"{number_format.METRIC_NAMES[name]} {number_format.percent(calibration.holdout[name].mape.value)}"
        for name in metrics
    ]
    return f"Mean error per request: {', '.join(parts)}"


def _lead(calibration: Calibration) -> str:
    """Return the sentences that say what was compared with what."""
    n = f"{len(calibration.pairs):,}"
    level = f"{calibration.bootstrap.level:.0%}".replace("%", " %")
    held_out = [each.source.name for each in calibration.held_out_traces]
    names = ", ".join(f"<b>{escape(name)}</b>" for name in held_out)
    fit = calibration.fit
    if fit is None:
        what = f"{n} requests of {names}, {OBSERVED} and {SIMULATED}; {escape(calibration.unseen)}."
    else:
        used = ", ".join(
            f"<b>{escape(each.source.name)}</b>" for each in calibration.traces if each.role != "held out"
        )
        what = (
            f"A twin fitted to {fit.num_requests:,} requests of {used}, with its errors on {n} requests of {names}: "
            f"{escape(calibration.unseen)}."
        )
    told = "".join(f" {escape(line)}." for line in circumstances(calibration))
    return f"{what} Errors are simulated minus observed, intervals hold at {level}.{told}"


def _headlines(calibration: Calibration, shown: list[str]) -> list[Headline]:
    """Return the numbers that matter: errors per request, or the capacity where every run was saturated."""
    capacity = calibration.held_out.capacity.get("output_token_throughput")
    found = [
        _gap_headline(calibration.holdout[name])
        if is_of_gaps_only(calibration.holdout, name)
        else _headline(name, calibration.holdout[name], noise=calibration.noise_floor.get(name))
        for name in shown
    ]
    if capacity is None:
        return found
    first = Headline(
        label="Capacity, output tokens per second",
        value=number_format.percent(capacity.rel_error.value, signed=True),
        details=(
            number_format.percent_interval(capacity.rel_error, signed=True),
            f"observed {number_format.rate(capacity.observed)}",
            f"simulated {number_format.rate(capacity.simulated)}",
        ),
    )
    return [first, *found]


def _gap_headline(found: MetricErrors) -> Headline:
    """Return the error of the mean gap, where a request's own mean gap is its TPOT and told there."""
    mean, p99 = found.rel_error["mean"], found.rel_error["p99"]
    return Headline(
        label=f"{number_format.METRIC_NAMES['itl_us']}, the mean gap between tokens",
        value=number_format.percent(mean.value, signed=True),
        details=(
            number_format.percent_interval(mean, signed=True),
            "of the mean over all gaps, not per request",
            f"p90 {number_format.percent(found.rel_error['p90'].value, signed=True)}",
            f"p99 {number_format.percent(p99.value, signed=True)}",
        ),
    )


def _headline(name: str, found: MetricErrors, *, noise: MetricErrors | None) -> Headline:
    floor = () if noise is None else (f"noise floor {number_format.percent(noise.mape.value)}",)
    return Headline(
        label=f"{number_format.METRIC_NAMES[name]}, {number_format.METRIC_MEANINGS[name]}",
        value=number_format.percent(found.mape.value),
        details=(
            f"{number_format.percent_interval(found.mape)}, n\u00a0{found.n:,}",
            "mean absolute error per request",
            *floor,
            f"bias per request {number_format.percent(found.bias.value, signed=True)}",
            f"p99 {number_format.percent(found.rel_error['p99'].value, signed=True)}",
        ),
    )
