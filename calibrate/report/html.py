"""report.html: the calibration as one page, the verdict and the warnings first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibrate import number_format
from calibrate.compare.metric_errors import MetricErrors
from calibrate.findings import Calibration
from calibrate.gate.checks import check_table
from calibrate.gate.verdict import Verdict
from calibrate.report import html_errors, html_fit, html_runs
from calibrate.report.html_errors import BOTH_SIDES, PER_REQUEST
from calibrate.report.markdown import circumstances
from calibrate.report.report_tables import is_of_gaps_only
from calibrate.report.suggested_runs import suggested_runs
from calibrate.report.warnings import warnings_of
from calibrate.verdict_text import parted, verdict_text
from traces.pages import Headline, Markup, Page, PageSection, PageTable, Prose, bold, inline, listed

SHOWN = ("ttft_us", "itl_us", "tpot_us", "e2e_us")


def page_of(
    calibration: Calibration, *, document: Mapping[str, Any], command: str, verdict: Verdict | None = None
) -> Page:
    """Return the page, the gate's verdict first where there is one."""
    shown = [name for name in SHOWN if name in calibration.holdout]
    per_request = [name for name in PER_REQUEST if name in calibration.holdout]
    names = ", ".join(each.source.name for each in calibration.traces)
    warned = warnings_of(calibration)
    sections = [
        *([] if verdict is None else [_verdict(verdict)]),
        html_runs.server(calibration),
        html_errors.distributions(calibration, shown),
        html_errors.held_out(calibration),
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
    first, second, further = parted(verdict_text(calibration, has_warnings=bool(warned)))
    return Page(
        name=f"vtwin calibration: {names}",
        eyebrow="vtwin calibration report",
        title=("" if verdict is None else f"{verdict.outcome}. ") + first,
        warnings=[f"{line}." for line in warned],
        lead=second or f"Errors of {len(calibration.pairs):,} requests, simulated minus observed.",
        more=[
            *([f"{verdict.line}."] if verdict is not None and verdict.line != verdict.outcome else []),
            *further,
            _compared(calibration),
        ],
        headlines=_headlines(calibration, shown),
        sections=sections,
        footer=f"vtwin {document['provenance']['tool_version']} · report.json, schema "
        f"{document['schema_version']}, holds every number on this page",
    )


def _verdict(verdict: Verdict) -> PageSection:
    """Return the gate's verdict: its obstacles, and every check."""
    head, rows = check_table(verdict.checks)
    parts: list[Prose | PageTable] = [Prose(markup=line) for line in verdict.obstacles]
    parts.append(PageTable(head=head, rows=rows, align="l" + "r" * (len(head) - 3) + "nl"))
    return PageSection(title=f"Verdict: {verdict.line}", anchor="verdict", parts=parts)


def _compared(calibration: Calibration) -> Markup:
    """Return sentences about what was compared."""
    n = f"{len(calibration.pairs):,}"
    level = f"{calibration.bootstrap.level:.0%}".replace("%", " %")
    held_out = [each.source.name for each in calibration.held_out_traces]
    names = listed(map(bold, held_out))
    fit = calibration.fit
    if fit is None:
        what = inline(f"{n} requests of ", names, ", ", BOTH_SIDES, f"; {calibration.unseen}.")
    else:
        used = listed(bold(each.source.name) for each in calibration.traces if each.role != "held out")
        what = inline(
            f"A twin fitted to {fit.num_requests:,} requests of ",
            used,
            f", with its errors on {n} requests of ",
            names,
            f": {calibration.unseen}.",
        )
    told = "".join(f" {line}." for line in circumstances(calibration))
    return inline(what, f" Errors are simulated minus observed, intervals hold at {level}.{told}")


def _headlines(calibration: Calibration, shown: list[str]) -> list[Headline]:
    """Return the numbers that matter: errors per request, or the capacity where every run was saturated."""
    capacity = calibration.held_out.capacity.get("output_token_throughput")
    holdout = calibration.holdout
    found = [
        _headline(name, holdout, noise=calibration.noise_floor.get(name))
        for name in shown
        if not is_of_gaps_only(holdout, name)
    ]
    if capacity is None:
        return found
    first = Headline(
        label="Capacity, output tokens per second",
        value=number_format.percent(capacity.rel_error.value, signed=True),
        details=(
            "error of the rate over the run",
            number_format.percent_interval(capacity.rel_error, signed=True),
            f"observed {number_format.rate(capacity.observed)}",
            f"simulated {number_format.rate(capacity.simulated)}",
        ),
    )
    return [first, *found]


def _headline(name: str, errors: Mapping[str, MetricErrors], *, noise: MetricErrors | None) -> Headline:
    """Return a metric's card: MAPE on every card. The p90 of ITL stands where it is off by more than twice as much.

    Where a request's mean ITL is its TPOT, the card of TPOT is that of both.
    """
    found, itl = errors[name], errors.get("itl_us")
    is_of_both = name == "tpot_us" and is_of_gaps_only(errors, "itl_us")
    floor = () if noise is None else (f"noise floor {number_format.percent(noise.mape.value)}",)
    gaps = _far_gaps(found, itl) if itl is not None and (is_of_both or name == "itl_us") else ()
    meaning = number_format.METRIC_MEANINGS[name]
    both = " (a request\u2019s mean ITL)" if is_of_both else ""
    return Headline(
        label=f"{number_format.METRIC_NAMES[name]}, {meaning}{both}",
        value=number_format.percent(found.mape.value),
        details=(
            "mean absolute error per request",
            f"{number_format.percent_interval(found.mape)}, n\u00a0{found.num_ratios:,}",
            *floor,
            *gaps,
            f"bias per request {number_format.percent(found.bias.value, signed=True)}",
            f"error of the p99 {number_format.percent(found.rel_error['p99'].value, signed=True)}",
        ),
    )


def _far_gaps(found: MetricErrors, itl: MetricErrors) -> tuple[str, ...]:
    """Return the error of the p90 of single gaps where it is more than twice a card's figure."""
    p90, figure = itl.rel_error["p90"].value, found.mape.value
    if p90 is None or figure is None or abs(p90) <= 2 * figure:
        return ()
    return (f"error of the p90 of single gaps (ITL) {number_format.percent(p90, signed=True)}",)
