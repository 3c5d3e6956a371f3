"""The report's folder: report.json, report.md and report.html, written together or not at all."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from calibrate.findings import Calibration
from calibrate.gate.verdict import Verdict
from calibrate.report.document import document_of
from calibrate.report.html import page_of
from calibrate.report.markdown import markdown_of
from traces.errors import ConfigError


def write_report(
    calibration: Calibration, folder: str | Path, *, command: str, verdict: Verdict | None = None
) -> dict[str, object]:
    """Write the report's three files into a folder, made if need be, and return the JSON document.

    ``verdict`` is a gate's, told first.

    All three are made before any is put in place. Raises ConfigError where the folder cannot be written.
    """
    document = document_of(calibration, command=command, verdict=verdict)
    files = {
        "report.json": json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n",
        "report.md": markdown_of(calibration, command=command, verdict=verdict),
        "report.html": page_of(calibration, document=document, command=command, verdict=verdict),
    }
    write_together(Path(folder), files)
    return document


def write_together(folder: Path, files: dict[str, str]) -> None:
    """Put files into a folder in one go: prepared beside it, then moved over the old ones."""
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        beside.mkdir(parents=True)
        for name, text in files.items():
            (beside / name).write_text(text, encoding="utf-8")
        if not folder.exists():
            beside.rename(folder)
            return
        for name in files:
            (beside / name).replace(folder / name)
    except OSError as error:
        raise ConfigError(
            f"--report: got {error.strerror}, expected a folder to write to ({folder})"
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a file atomically. Raises ConfigError where it cannot be written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(f"got {error.strerror}, expected a file to write ({path})") from error
    finally:
        temporary.unlink(missing_ok=True)
