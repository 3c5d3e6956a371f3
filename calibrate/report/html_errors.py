"""The page's sections on errors: distributions, held-out errors, request by request, by kind, in sample."""

from __future__ import annotations

from collections.abc import Mapping

from calibrate import number_format
from calibrate.compare.metric_errors import STATISTICS, MetricErrors
from calibrate.findings import Calibration
from calibrate.report import pictures, report_tables
from traces.facts import Fact
from traces.pages import Cell, Figures, PageSection, PageTable, bold, inline, whisker

OBSERVED, SIMULATED = bold("observed", "observed"), bold("simulated", "simulated")
BOTH_SIDES = inline(OBSERVED, " and ", SIMULATED)
PER_REQUEST = ("ttft_us", "tpot_us", "e2e_us")


def distributions(calibration: Calibration, shown: list[str]) -> PageSection:
    """Return the distribution functions of both sides, with the noise band where a run was repeated."""
    basis = {calibration.holdout[name].basis for name in shown} - {None}
    of_gaps = "ITL: of single gaps." if "events" in basis else "ITL: of each request's mean, by its tokens."
    noise = calibration.noise
    band = "" if noise is None else " The shaded band is the run-to-run noise."
    return PageSection(
        title="Distributions",
        anchor="distributions",
        lead=inline("Share of requests up to each time, ", BOTH_SIDES, f".{band} {of_gaps if basis else ''}"),
        parts=[
            Figures(
                figures=pictures.distributions(
                    calibration.pairs, shown, noise=None if noise is None else noise.accuracy.pairs
                ),
                columns=2,
            )
        ],
    )


def held_out(calibration: Calibration) -> PageSection:
    """Return the tables of held-out errors: by request, by statistic, over the run, and of equivalence."""
    noise = calibration.noise_floor
    head, rows = report_tables.rates_table(calibration)
    parts = [
        per_request_table(calibration.holdout, noise=noise),
        _statistics_table(calibration.holdout, noise=noise),
        PageTable(head=head, rows=rows, align="l" + "r" * (len(head) - 1)),
    ]
    if calibration.equivalence:
        head, rows = report_tables.equivalence_table(calibration)
        parts.append(PageTable(head=head, rows=rows, align="lrrrl", wide=False))
    return PageSection(
        title="Held-out errors",
        anchor="errors",
        lead="Errors of single requests, then of each statistic: "
        f"{report_tables.reading_of(calibration)}. The dot is the value, the line its interval. "
        f"{report_tables.TERMS}.",
        parts=parts,
    )


def _statistics_table(errors: Mapping[str, MetricErrors], *, noise: Mapping[str, MetricErrors]) -> PageTable:
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
    unit, columns = _times(errors)
    times = iter(zip(*columns, strict=True))
    for name in report_tables.shown_metrics(errors):
        found, again = errors[name], noise.get(name)
        groups.append(len(rows))
        for statistic in STATISTICS:
            each = found.rel_error[statistic]
            drawn = whisker(each.value, each.low, each.high, ends=(-reach, reach), mark=0.0)
            rows.append(
                [
                    number_format.METRIC_NAMES[name] if statistic == "mean" else "",
                    statistic,
                    *next(times),
                    number_format.percent(each.value, signed=True),
                    number_format.percent_interval(each, signed=True),
                    *(
                        [
                            number_format.percent(
                                again.rel_error[statistic].value if again else None, signed=True
                            )
                        ]
                        if noise
                        else []
                    ),
                    Cell(svg=drawn),
                ]
            )
    edge = number_format.percent(reach)
    head = ["", "", *report_tables.sides(unit), "relative", "interval", *(["noise"] if noise else [])]
    align = "llrrrrr" + ("r" if noise else "") + "c"
    return PageTable(head=[*head, f"±{edge}"], rows=rows, align=align, groups=groups[1:])


def _times(errors: Mapping[str, MetricErrors]) -> tuple[str, list[list[str]]]:
    """Return the unit of all statistics, and the columns of both sides and their difference in it."""
    shown = [errors[name] for name in report_tables.shown_metrics(errors)]
    return number_format.in_one_unit(
        [found.observed[statistic] for found in shown for statistic in STATISTICS],
        [found.simulated[statistic] for found in shown for statistic in STATISTICS],
        [found.error[statistic].value for found in shown for statistic in STATISTICS],
    )


def per_request_table(errors: Mapping[str, MetricErrors], *, noise: Mapping[str, MetricErrors]) -> PageTable:
    """Return MAPE, bias, correlations and distances by metric, the noise floor's MAPE next to the twin's."""
    shown = report_tables.shown_metrics(errors)
    unit, (distances,) = number_format.in_one_unit([errors[name].wasserstein_us.value for name in shown])
    facts = [report_tables.metric_facts(errors, noise, name) for name in shown]
    told = [[fact for fact in each if fact.key not in ("mean", "p99", "distance")] for each in facts]
    rows = [[*map(_cell, each), distance] for each, distance in zip(told, distances, strict=True)]
    named = {"metric": "per request", "R": "Pearson R", "KS": "KS distance"}
    head = [named.get(fact.term or "", fact.term or "") for fact in told[0]]
    return PageTable(head=[*head, f"Wasserstein, {unit}"], rows=rows, align="l" + "r" * len(head))


def _cell(fact: Fact) -> str | Cell:
    """Return a figure with its interval beside it; of rank correlations and others' errors without."""
    is_bare = not fact.aside or fact.key in ("expected", "noise", "spearman_r")
    return fact.text if is_bare else Cell(text=fact.text, aside=fact.aside)


def requests(calibration: Calibration, metrics: list[str]) -> PageSection:
    """Return each request's simulated time over its observed one, and the errors over time, length and load."""
    residual = [name for name in ("ttft_us", "e2e_us") if name in metrics]
    return PageSection(
        title="Request by request",
        anchor="requests",
        lead="Each dot is a request. Above, the shaded band is ±10 %; below, the line is the median along the axis.",
        parts=[
            Figures(figures=pictures.scatters(calibration.pairs, metrics), columns=3),
            Figures(figures=pictures.residuals(calibration.pairs, residual), columns=3),
        ],
    )


def kinds(calibration: Calibration) -> PageSection:
    """Return the errors by kind of request."""
    metrics, names = report_tables.strata_rows(calibration)
    rows: list[list[str | Cell]] = []
    groups = []
    before = ""
    for (by, which, n), each in zip(names, calibration.strata, strict=True):
        if by != before:
            groups.append(len(rows))
        values: list[str | Cell] = []
        for name in metrics:
            mape, bias = each.mape.get(name), each.bias.get(name)
            values.append(
                number_format.NONE
                if mape is None
                else Cell(text=number_format.percent(mape.value), aside=number_format.percent_interval(mape))
            )
            values.append(
                number_format.NONE if bias is None else number_format.percent(bias.value, signed=True)
            )
        rows.append([by if by != before else "", which.replace(" to ", "\u2013"), n, *values])
        before = by
    head = [
        "",
        "",
        "n",
        *(f"{number_format.METRIC_NAMES[m]} {kind}" for m in metrics for kind in ("MAPE", "bias")),
    ]
    return PageSection(
        title="By kind of request",
        anchor="kinds",
        lead="Thirds by lengths, by how busy the observed server was and by time in the run; and by what the requests "
        "say of themselves, where they differ in it.",
        parts=[PageTable(head=head, rows=rows, align="nrr" + "r" * 2 * len(metrics), groups=groups[1:])],
    )


def in_sample(calibration: Calibration) -> PageSection:
    """Return the errors on what was fitted."""
    return PageSection(
        title="In-sample errors",
        anchor="in-sample",
        lead="The same, on the requests that were fitted.",
        parts=[per_request_table(calibration.in_sample, noise=calibration.noise_floor)],
    )
