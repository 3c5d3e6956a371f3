"""Drawn cases on disk: config.json and trace.jsonl, and whether results beside them are their own."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conformance.draw import Case

RESULTS = ("requests.csv", "steps.jsonl.gz")


def texts_of(case: Case) -> dict[str, str]:
    """Return the case's files by name."""
    lines = (json.dumps(row, separators=(",", ":")) + "\n" for row in case.rows)
    return {"config.json": json.dumps(case.settings, indent=1) + "\n", "trace.jsonl": "".join(lines)}


def is_recorded(case: Case, directory: Path) -> bool:
    """Return whether ``directory`` holds this very case with its results."""
    texts = texts_of(case)
    written = all((directory / name).is_file() for name in [*texts, *RESULTS])
    return written and all((directory / name).read_text() == text for name, text in texts.items())


def keep_only_recordings_of(recorder: str, folder: Path) -> None:
    """Take away the results in ``folder`` unless they are of this very ``recorder``, whose name is left there."""
    stamp = folder / "recorder.txt"
    if not stamp.is_file() or stamp.read_text() != recorder:
        for results in folder.glob("*/requests.csv"):
            results.unlink()
        stamp.write_text(recorder)


def write_case(case: Case, directory: Path) -> None:
    """Write the case, and take away results of another one."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in RESULTS:
        (directory / name).unlink(missing_ok=True)
    for name, text in texts_of(case).items():
        (directory / name).write_text(text)
