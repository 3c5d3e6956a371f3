"""report.html (placeholder until the page lands)."""

from __future__ import annotations

from calibrate.judge import Calibration


def page_of(calibration: Calibration, *, document: dict[str, object], command: str) -> str:
    """Return the page."""
    return "<!doctype html><title>vtwin calibration</title>"
