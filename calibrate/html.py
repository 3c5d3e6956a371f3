"""report.html: the calibration as one page, the held-out errors first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from calibrate import pictures, words
from calibrate.errors import STATISTICS, MetricErrors
from calibrate.fit import Fit
from calibrate.gate import Verdict, check_table
from calibrate.judge import Calibration
from calibrate.problem import UNITS
from replay.pages import (
    Cell,
    Figures,
    Headline,
    Page,
    Prose,
    Section,
    Source,
    Table,
    Terms,
    render,
    whisker,
)

SHOWN = ("ttft_us", "itl_us", "tpot_us", "e2e_us")
PER_REQUEST = ("ttft_us", "tpot_us", "e2e_us")
MOST_LOADS = 4
OBSERVED, SIMULATED = '<b class="observed">observed</b>', '<b class="simulated">simulated</b>'


def page_of(
    calibration: Calibration, *, document: Mapping[str, Any], command: str, verdict: Verdict | None = None
) -> str:
    """Return the page as one HTML document, the gate's verdict first where there is one."""
    shown = [name for name in SHOWN if name in calibration.holdout]
    per_request = [name for name in PER_REQUEST if name in calibration.holdout]
    names = ", ".join(each.source.name for each in calibration.traces)
    sections = [
        *([] if verdict is None else [_verdict(verdict)]),
        _distributions(calibration, shown),
        _errors(calibration),
        _requests(calibration, per_request),
        *([_coefficients(calibration.fit)] if calibration.fit is not None else []),
        _load(calibration),
        *([_kinds(calibration)] if calibration.strata else []),
        *([_in_sample(calibration)] if calibration.fit is not None else []),
        _traces(calibration),
        _provenance(document, command=command),
    ]
    page = Page(
        name=f"vtwin calibration: {names}",
        eyebrow=f"vtwin calibration report · {document['provenance']['created_at'][:10]}",
        title=("" if verdict is None else f"{verdict.outcome}. ") + _title(calibration, per_request),
        lead=_lead(calibration),
        headlines=[_headline(name, calibration.holdout[name]) for name in shown],
        sections=sections,
        footer=f"vtwin {document['provenance']['tool_version']} · report.json, schema "
        f"{document['schema_version']}, holds every number on this page",
    )
    return render(page)


def _verdict(verdict: Verdict) -> Section:
    """Return the gate's verdict: what stands in its way, and every check."""
    head, rows = check_table(verdict.checks)
    parts: list[Prose | Table] = [Prose(markup=escape(line)) for line in verdict.obstacles]
    parts.append(Table(head=head, rows=rows, align="l" + "r" * (len(head) - 3) + "nl"))
    return Section(title=f"Verdict: {verdict.outcome}", anchor="verdict", parts=parts)


def _title(calibration: Calibration, metrics: list[str]) -> str:
    """Return the result in a line."""
    parts = [
        f"{words.METRIC_NAMES[name]} {words.percent(calibration.holdout[name].mape.value)}"
        for name in metrics
    ]
    return f"Mean error per request: {', '.join(parts)}"


def _lead(calibration: Calibration) -> str:
    """Return the sentences that say what was compared with what."""
    n = f"{len(calibration.pairs):,}"
    level = f"{calibration.bootstrap.level:.0%}".replace("%", " %")
    judged = [each.source.name for each in calibration.traces if each.role != "fitted"]
    names = ", ".join(f"<b>{escape(name)}</b>" for name in judged)
    fit = calibration.fit
    if fit is None:
        what = f"{n} requests of {names}, {OBSERVED} and {SIMULATED}; {escape(calibration.unseen)}."
    else:
        used = ", ".join(
            f"<b>{escape(each.source.name)}</b>" for each in calibration.traces if each.role != "judged"
        )
        what = (
            f"A twin fitted to {fit.num_requests:,} requests of {used}, judged on {n} requests of {names}: "
            f"{escape(calibration.unseen)}."
        )
    return f"{what} Errors are simulated minus observed, intervals hold at {level}."


def _headline(name: str, found: MetricErrors) -> Headline:
    return Headline(
        label=f"{words.METRIC_NAMES[name]}, {words.METRIC_MEANINGS[name]}",
        value=words.percent(found.mape.value),
        details=(
            f"{words.percent_interval(found.mape)}, n\u00a0{found.n:,}",
            f"bias {words.percent(found.bias.value, signed=True)}",
            f"p99 {words.percent(found.rel_error['p99'].value, signed=True)}",
        ),
    )


def _distributions(calibration: Calibration, shown: list[str]) -> Section:
    basis = {calibration.holdout[name].basis for name in shown} - {None}
    of_gaps = "ITL: of single gaps." if "events" in basis else "ITL: of each request's mean, by its tokens."
    return Section(
        title="Distributions",
        anchor="distributions",
        lead=f"Share of requests up to each time, {OBSERVED} and {SIMULATED}. {of_gaps if basis else ''}",
        parts=[Figures(figures=pictures.distributions(calibration.pairs, shown), columns=2)],
    )


def _errors(calibration: Calibration) -> Section:
    """Return the tables of held-out errors: by statistic, and by request."""
    rates = _rates_table(calibration)
    return Section(
        title="Held-out errors",
        anchor="errors",
        lead="Relative error of each statistic, then of single requests. The dot is the value, the line its interval.",
        parts=[_statistics_table(calibration.holdout), _per_request_table(calibration.holdout), rates],
    )


def _statistics_table(errors: dict[str, MetricErrors]) -> Table:
    """Return a row per metric and statistic, with its relative error drawn on one axis for all."""
    bounds = [
        bound
        for found in errors.values()
        for each in found.rel_error.values()
        for bound in (each.low, each.high, each.value)
        if bound is not None
    ]
    reach = min(max([0.01, *map(abs, bounds)]), 0.5)
    rows: list[list[str | Cell]] = []
    groups = []
    for name, found in errors.items():
        groups.append(len(rows))
        for statistic in STATISTICS:
            each = found.rel_error[statistic]
            drawn = whisker(each.value, each.low, each.high, ends=(-reach, reach), mark=0.0)
            rows.append(
                [
                    words.METRIC_NAMES[name] if statistic == "mean" else "",
                    statistic,
                    words.duration(found.observed[statistic]),
                    words.duration(found.simulated[statistic]),
                    words.duration(found.error[statistic].value),
                    words.percent(each.value, signed=True),
                    words.percent_interval(each, signed=True),
                    Cell(svg=drawn),
                ]
            )
    edge = words.percent(reach)
    head = ["", "", "observed", "simulated", "error", "relative", "interval", f"±{edge}"]
    return Table(head=head, rows=rows, align="llrrrrrc", groups=groups[1:])


def _per_request_table(errors: dict[str, MetricErrors]) -> Table:
    rows: list[list[str | Cell]] = [
        [
            words.METRIC_NAMES[name],
            f"{found.n:,}",
            Cell(text=words.percent(found.mape.value), aside=words.percent_interval(found.mape)),
            Cell(
                text=words.percent(found.bias.value, signed=True),
                aside=words.percent_interval(found.bias, signed=True),
            ),
            Cell(
                text=words.share(found.pearson_r.value),
                aside=_between(found.pearson_r.low, found.pearson_r.high),
            ),
            Cell(text=words.share(found.ks.value), aside=_between(found.ks.low, found.ks.high)),
        ]
        for name, found in errors.items()
    ]
    head = ["per request", "n", "MAPE", "bias", "Pearson R", "KS distance"]
    return Table(head=head, rows=rows, align="lrrrrr")


def _between(low: float | None, high: float | None) -> str:
    return "" if low is None else f"{words.share(low)} … {words.share(high)}"


def _rates_table(calibration: Calibration) -> Table:
    rates = calibration.holdout_throughput
    rows: list[list[str | Cell]] = []
    for label, (observed, simulated) in (
        ("requests per second", rates.request_per_s),
        ("output tokens per second", rates.output_token_per_s),
    ):
        known = observed is not None and simulated is not None and observed > 0
        error = (simulated or 0.0) / (observed or 1.0) - 1 if known else None
        rows.append([label, words.rate(observed), words.rate(simulated), words.percent(error, signed=True)])
    return Table(
        head=["throughput", "observed", "simulated", "relative"], rows=rows, align="lrrr", wide=False
    )


def _requests(calibration: Calibration, metrics: list[str]) -> Section:
    residual = [name for name in ("ttft_us", "e2e_us") if name in metrics]
    return Section(
        title="Request by request",
        anchor="requests",
        lead="Each dot is a request. Above, the shaded band is ±10 %; below, the line is the median along the axis.",
        parts=[
            Figures(figures=pictures.scatters(calibration.pairs, metrics), columns=3),
            Figures(figures=pictures.residuals(calibration.pairs, residual), columns=3),
        ],
    )


def _coefficients(fit: Fit) -> Section:
    """Return the coefficients with their intervals, correlations, and what could not be seen."""
    rows: list[list[str | Cell]] = []
    for each in fit.coefficients:
        top = max(each.value, each.high or 0.0)
        drawn = (
            whisker(each.value, each.low, each.high, ends=(0.0, top or 1.0), mark=0.0) if each.fitted else ""
        )
        rows.append(
            [
                each.name,
                words.coefficient(each.value),
                words.NONE
                if each.low is None
                else f"{words.coefficient(each.low)} … {words.coefficient(each.high)}",
                Cell(svg=drawn),
                UNITS[each.name],
                "" if each.identifiable else each.reason or "",
            ]
        )
    head = ["coefficient", "value", "interval", "from zero", "unit", ""]
    way = "on" if fit.config.engine.async_scheduling else "off"
    choice = fit.schedule
    inferred = (
        f", the better of both (loss {choice.loss_async:.4g} on, {choice.loss_sync:.4g} off)"
        if choice
        else ""
    )
    settled = "" if fit.converged else " The search had not settled when it ended."
    noise = ", ".join(
        f"{label} {words.percent(value)}"
        for label, value in zip(("TTFT", "E2E", "TPOT"), fit.noise.values(), strict=True)
    )
    told = (
        f"Async scheduling is {way}{inferred}. Fitted in {fit.seconds:.1f} s to {fit.num_requests:,} requests; "
        f"typical spread left in one request: {noise}.{settled} Intervals: {escape(fit.method)}."
    )
    return Section(
        title="Coefficients",
        anchor="coefficients",
        lead="A step lasts beta0 + beta1 · prefill tokens + beta2 · decode tokens; a request joins the queue "
        "alpha0 + alpha1 · prompt tokens after it arrives.",
        parts=[Table(head=head, rows=rows, align="lrrcnl"), _correlations(fit), Prose(markup=told)],
    )


def _correlations(fit: Fit) -> Table:
    rows: list[list[str | Cell]] = []
    for i, name in enumerate(fit.names):
        cells: list[str | Cell] = [name]
        for j in range(len(fit.names)):
            value = float(fit.correlation[i, j])
            if j < i:
                cells.append(Cell(text=words.signed(value), tint=0.45 * abs(value)))
            else:
                cells.append("" if j > i else "1")
        rows.append(cells)
    caption = f"Correlation of the fitted values; condition number {fit.condition_number:.3g}"
    return Table(
        head=["", *fit.names], rows=rows, align="l" + "r" * len(fit.names), caption=caption, wide=False
    )


def _load(calibration: Calibration) -> Section:
    judged = [each for each in calibration.traces if each.role != "fitted"]
    figures = pictures.loads({each.source.name: each.pairs for each in judged[:MOST_LOADS]})
    return Section(
        title="Load over time",
        anchor="load",
        lead=f"Compared requests between arrival and last token, {OBSERVED} and {SIMULATED}.",
        parts=[Figures(figures=figures, columns=1)],
    )


def _kinds(calibration: Calibration) -> Section:
    metrics = list(calibration.strata[0].mape)
    rows: list[list[str | Cell]] = []
    groups = []
    before = ""
    for each in calibration.strata:
        if each.by != before:
            groups.append(len(rows))
        values: list[str | Cell] = []
        for name in metrics:
            for kind, signed in ((each.mape, False), (each.bias, True)):
                found = kind.get(name)
                values.append(
                    words.NONE
                    if found is None
                    else Cell(
                        text=words.percent(found.value, signed=signed),
                        aside="" if signed else words.percent_interval(found),
                    )
                )
        label = words.STRATUM_NAMES[each.by] if each.by != before else ""
        rows.append([label, f"{each.low:,.0f}\u2013{each.high:,.0f}", f"{each.n:,}", *values])
        before = each.by
    head = ["", "", "n", *(f"{words.METRIC_NAMES[m]} {kind}" for m in metrics for kind in ("MAPE", "bias"))]
    return Section(
        title="By kind of request",
        anchor="kinds",
        lead="Thirds by prompt length, by output length, and by how busy the observed server was.",
        parts=[Table(head=head, rows=rows, align="nrr" + "r" * 2 * len(metrics), groups=groups[1:])],
    )


def _in_sample(calibration: Calibration) -> Section:
    return Section(
        title="In-sample errors",
        anchor="in-sample",
        lead="The same, on the requests that were fitted.",
        parts=[_per_request_table(calibration.in_sample)],
    )


def _traces(calibration: Calibration) -> Section:
    """Return what was compared and what was left out, with the notes."""
    rows: list[list[str | Cell]] = [
        [
            each.source.name,
            each.role,
            f"{len(each.source.trace):,}",
            f"{len(each.pairs):,}",
            ", ".join(f"{count:,} {words.reason(name)}" for name, count in each.pairs.excluded.items())
            or "none",
        ]
        for each in calibration.traces
    ]
    notes = [
        *calibration.notes,
        *(f"{t.source.name}: {note}" for t in calibration.traces for note in t.notes),
    ]
    parts: list[Table | Prose] = [
        Table(head=["trace", "role", "requests", "compared", "left out"], rows=rows, align="llrrl")
    ]
    parts += [Prose(markup=f"{escape(note)}.") for note in dict.fromkeys(notes)]
    return Section(title="Traces and exclusions", anchor="traces", parts=parts)


def _provenance(document: Mapping[str, Any], *, command: str) -> Section:
    provenance = document["provenance"]
    libraries = ", ".join(f"{name} {version}" for name, version in provenance["libraries"].items())
    intervals = provenance["intervals"]
    terms = [
        ("command", command),
        ("made", f"{provenance['created_at']} by vtwin {provenance['tool_version']}"),
        ("with", f"Python {provenance['python']}, {libraries}"),
        (
            "intervals",
            f"{intervals['method']}; {intervals['replicates']:,} replicates, level "
            f"{intervals['level']:.0%}, seed {intervals['seed']}".replace("%", " %"),
        ),
        ("paired by", provenance["pair_by"]),
        *(
            (f"trace {each['name']}", f"{each['mode'] or 'mode not stated'}; SHA-256 {each['digest']}")
            for each in document["traces"]
        ),
    ]
    parts: list[Terms | Source] = [Terms(terms=terms)]
    if document["config"] is not None:
        parts.append(Source(title="Configuration", text=json.dumps(document["config"], indent=2)))
    return Section(title="Configuration and provenance", anchor="provenance", parts=parts)
