"""``python -m tests.conformance DIR… [--async]``: compare recordings of vLLM's scheduler with the engine.

A DIR is a case or a folder of cases. Prints "identical, N steps" or the first difference per case. Exit
codes: 0 all identical, 1 any difference, 2 usage, 3 nothing to compare or a recording that cannot be read.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import typer

from sim import InvalidConfig
from tests.conformance.compare import compare
from tests.conformance.recording import find, is_async_steps, read_recording


def cases_in(directories: list[Path]) -> list[Path]:
    """Return every directory, or directory in one, that holds a config.json."""
    found = []
    for directory in directories:
        inside = [directory] if (directory / "config.json").is_file() else sorted(directory.glob("*/"))
        found += [case for case in inside if (case / "config.json").is_file()]
    return found


def results_of(case: Path, *, is_async: bool) -> tuple[Path, bool] | None:
    """Return where a case's results lie and whether they are an async engine's, None when there are none."""
    if is_async and find(case / "async", "steps.jsonl") is not None:
        return case / "async", True
    steps = find(case, "steps.jsonl")
    if steps is None:
        return None
    recorded_async = is_async_steps(steps)
    if is_async and not recorded_async:
        return None
    return case, recorded_async


def answer_for(case: Path, *, is_async: bool) -> tuple[str, bool] | None:
    """Return a case's line and whether it is identical, None when it has nothing to compare."""
    results = results_of(case, is_async=is_async)
    if results is None:
        return None
    recording = read_recording(case, results[0], is_async=results[1])
    difference = compare(recording)
    mode = "async" if results[1] else "sync"
    told = difference or f"identical, {len(recording.steps)} steps"
    return f"{case.name} ({mode}): {told}", difference is None


def main(arguments: list[str] | None = None) -> int:
    """Compare and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("directories", metavar="DIR", nargs="+", type=Path)
    parser.add_argument("--async", dest="is_async", action="store_true", help="compare DIR/async")
    options = parser.parse_args(arguments)
    answers = []
    for case in cases_in(options.directories):
        try:
            answer = answer_for(case, is_async=options.is_async)
        except (KeyError, ValueError, OSError, json.JSONDecodeError, InvalidConfig) as error:
            typer.echo(f"{case}: got {type(error).__name__}: {error}, expected a recording", err=True)
            return 3
        if answer is not None:
            typer.echo(answer[0])
            answers.append(answer)
    if not answers:
        typer.echo("nothing to compare: expected directories with config.json and steps.jsonl[.gz]", err=True)
        return 3
    return 0 if all(is_identical for _, is_identical in answers) else 1


if __name__ == "__main__":
    raise SystemExit(main())
