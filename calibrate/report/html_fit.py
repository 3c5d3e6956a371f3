"""The page's sections on the fit: coefficients, those that the traces do not determine, and single steps."""

from __future__ import annotations

from calibrate import number_format
from calibrate.findings import Calibration
from calibrate.fit.beyond import BeyondLoad
from calibrate.fit.result import Fit
from calibrate.report import pictures_runs, report_tables
from calibrate.report.suggested_runs import SuggestedRun
from traces import pages

WAY_IN = "a request joins the queue alpha0 + alpha1 · prompt tokens after it arrives."


def coefficients(
    fit: Fit, suggested: tuple[SuggestedRun, ...], beyond: BeyondLoad | None
) -> pages.PageSection:
    """Return the coefficients with their intervals, correlations, and undetermined ones."""
    head = ["coefficient", "value", "interval", "from zero", "unit", ""]
    return pages.PageSection(
        title="Coefficients",
        anchor="coefficients",
        lead=f"{fit.config.latency.in_words}; {WAY_IN}",
        parts=[
            pages.PageTable(head=head, rows=_rows(fit), align="lrrcnl"),
            *_candidates(fit),
            *_blackbox(fit),
            *(part for run in suggested for part in _suggested(run)),
            _correlations(fit),
            pages.Prose(markup=_told(fit)),
            *([] if beyond is None else [pages.Prose(markup=f"Note: {beyond.text()}.")]),
        ],
    )


def _rows(fit: Fit) -> list[list[str | pages.Cell]]:
    """Return a row per coefficient."""
    rows: list[list[str | pages.Cell]] = []
    for each in fit.coefficients:
        top = max(each.value, each.high or 0.0)
        drawn = (
            pages.whisker(each.value, each.low, each.high, ends=(0.0, top or 1.0), mark=0.0)
            if each.fitted
            else None
        )
        *cells, unit = report_tables.coefficient_cells(each)
        rows.append([*cells, pages.Cell(svg=drawn), unit, "" if each.identifiable else each.reason or ""])
    return rows


def _told(fit: Fit) -> str:
    """Return details of the fit, in sentences."""
    way = "on" if fit.config.engine.async_scheduling else "off"
    choice = fit.schedule
    inferred = (
        f", the better of both (loss {choice.loss_async:.4g} on, {choice.loss_sync:.4g} off)"
        if choice
        else ""
    )
    convergence = "" if fit.converged else " The search did not converge."
    noise = ", ".join(
        f"{label} {number_format.percent(value)}"
        for label, value in zip(("TTFT", "E2E", "TPOT"), fit.noise.values(), strict=True)
    )
    return (
        f"Async scheduling is {way}{inferred}. Fitted in {fit.seconds:.1f} s to {fit.num_requests:,} requests; "
        f"typical spread left in one request: {noise}.{convergence} Intervals: {fit.method}."
    )


def _candidates(fit: Fit) -> list[pages.PageTable]:
    """Return the table of the models that were compared, if any."""
    rows: list[list[str | pages.Cell]] = [list(row) for row in report_tables.candidate_rows(fit)]
    caption = f"Models compared on held-out requests. Chosen: {report_tables.choice_text(fit)}."
    return (
        [pages.PageTable(head=list(report_tables.CANDIDATE_HEAD), rows=rows, align="lrrrl", caption=caption)]
        if rows
        else []
    )


def _blackbox(fit: Fit) -> list[pages.PageTable]:
    """Return the table of blackbox's coefficients where another model was chosen."""
    rows: list[list[str | pages.Cell]] = [list(row) for row in report_tables.blackbox_rows(fit)]
    caption = (
        "Blackbox, fitted to the first requests of each trace, for comparison and for stored coefficients."
    )
    return (
        [pages.PageTable(head=list(report_tables.BLACKBOX_HEAD), rows=rows, align="lrrl", caption=caption)]
        if rows
        else []
    )


def _correlations(fit: Fit) -> pages.PageTable:
    rows: list[list[str | pages.Cell]] = []
    for i, name in enumerate(fit.names):
        cells: list[str | pages.Cell] = [name]
        for j in range(len(fit.names)):
            value = float(fit.correlation[i, j])
            if j < i:
                cells.append(pages.Cell(text=number_format.signed(value), tint=0.45 * abs(value)))
            else:
                cells.append("" if j > i else "1")
        rows.append(cells)
    number = f"{fit.condition_number:.3g} ({report_tables.CONDITION_NUMBER})"
    caption = f"Correlation of the fitted values; condition number {number}"
    return pages.PageTable(
        head=["", *fit.names], rows=rows, align="l" + "r" * len(fit.names), caption=caption, wide=False
    )


def _suggested(run: SuggestedRun) -> tuple[pages.Prose, pages.Code]:
    """Return the run that would show some coefficients, its command ready to copy."""
    names = pages.listed(map(pages.bold, run.coefficients))
    return pages.Prose(markup=pages.inline("To determine ", names, f": {run.shows}.")), pages.Code(
        text=run.command
    )


def steps(calibration: Calibration) -> pages.PageSection:
    """Return single steps of the engine's log and the twin's."""
    head, rows = report_tables.steps_table(calibration)
    logged = [each for each in calibration.traces if each.steps is not None]
    figures = [
        figure
        for each in logged
        if each.steps is not None
        for figure in pictures_runs.steps_picture(each.source.name, each.steps)
    ]
    return pages.PageSection(
        title="Engine steps",
        anchor="steps",
        lead="The twin's times of the steps that the engine logged, with the same prefill tokens and sequences.",
        parts=[
            pages.Figures(figures=figures, columns=2),
            pages.PageTable(head=head, rows=rows, align="lrrrrr", wide=False),
        ],
    )
