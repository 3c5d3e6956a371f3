"""The report's folder: report.json, report.md and report.html, written together or not at all."""

from __future__ import annotations

import json
from pathlib import Path

from calibrate.findings import Calibration
from calibrate.gate.verdict import Verdict
from calibrate.report.document import document_of
from calibrate.report.html import page_of
from calibrate.report.markdown import markdown_of
from traces import write_folder
from traces.pages import render
from traces.strict.arguments import PATH, TEXT, takes


@takes(folder=PATH, command=TEXT)
def write_report(
    calibration: Calibration, folder: str | Path, *, command: str, verdict: Verdict | None = None
) -> dict[str, object]:
    """Write the report's three files into a folder, made if need be, and return the JSON document.

    ``verdict`` is a gate's, shown first.

    All three are made before any is put in place. Raises ConfigError where the folder cannot be written.
    """
    document = document_of(calibration, command=command, verdict=verdict)
    files = {
        "report.json": json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n",
        "report.md": markdown_of(calibration, command=command, verdict=verdict),
        "report.html": render(page_of(calibration, document=document, command=command, verdict=verdict)),
    }
    write_folder(Path(folder), files, option="--report")
    return document
