"""What a notebook shows of a calibration, and of a fit: the report's first tables and its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrate.report.document import document_of
from calibrate.report.html import page_of
from calibrate.report.html_errors import per_request_table
from calibrate.report.html_fit import coefficients
from traces.pages.notebook import NotebookView, plain_page

if TYPE_CHECKING:
    from calibrate.findings import Calibration
    from calibrate.fit.result import Fit


def of_calibration(found: Calibration) -> NotebookView:
    """Return the errors on requests that the fit has not seen, and the report's figures."""
    page = page_of(found, document=document_of(found, command=""), command="")
    parts = [per_request_table(found.holdout, noise=found.noise_floor)] if found.holdout else []
    return NotebookView(page=page, parts=parts, more="calibrate.write_report writes the whole report.")


def of_fit(found: Fit) -> NotebookView:
    """Return the coefficients with their intervals, and how the fit went."""
    section = coefficients(found, (), None)
    title = f"{found.model}, fitted to {found.num_requests:,} requests"
    return NotebookView(
        page=plain_page("vtwin calibrate --fit", title, lead=section.lead), parts=section.parts
    )
