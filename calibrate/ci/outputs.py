"""A verdict for CI systems: JUnit XML, GitHub's step summary and its annotations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from calibrate import number_format
from calibrate.compare.metric_errors import MetricErrors
from calibrate.gate.checks import Check
from calibrate.gate.verdict import Verdict
from calibrate.report.markdown import headline_table, verdict_markdown
from traces import ConfigError
from traces.strict.escape import annotation, annotation_property, xml

MOST_BYTES = 1_000_000
"""GitHub drops a step's summary above 1 MiB."""


def junit_of(verdict: Verdict) -> str:
    """Return JUnit XML: a case per check, and one that says whether the two sides are comparable."""
    cases = [_case("comparable", "server and twin", body=_element("error", "; ".join(verdict.obstacles)))]
    cases += [_case_of(check) for check in verdict.checks]
    num = {kind: sum(f"<{kind} " in case for case in cases) for kind in ("failure", "error", "skipped")}
    counts = (
        f'tests="{len(cases)}" failures="{num["failure"]}" errors="{num["error"]}" skipped="{num["skipped"]}"'
    )
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f"<testsuites {counts}>",
            f'<testsuite name="vtwin calibrate" {counts}>',
            *cases,
            "</testsuite>",
            "</testsuites>\n",
        ]
    )


def annotations_of(verdict: Verdict) -> Iterator[str]:
    """Yield GitHub's workflow commands: errors for checks that fail the step, warnings for others."""
    for line in verdict.obstacles:
        yield _annotation("error", "vtwin: not comparable", line)
    for check in verdict.checks:
        if check.outcome != "PASS":
            level = "notice" if check.excused or check.is_set_aside else "error"
            title = "limit not used" if check.is_set_aside else check.outcome
            yield _annotation(level, f"vtwin: {title}", f"{check.name}: {check.reason}")
        elif check.warned:
            yield _annotation("warning", "vtwin: WARN", f"{check.name}: {check.reason}")


def summary_of(verdict: Verdict, errors: Mapping[str, MetricErrors]) -> str:
    """Return the step's summary: verdict, checks and held-out errors, below GitHub's limit."""
    text = f"{verdict_markdown(verdict)}\n\n### Held-out errors\n\n{headline_table(errors)}\n\n"
    if len(text.encode()) <= MOST_BYTES:
        return text
    return text.encode()[: MOST_BYTES - 10].decode(errors="ignore") + "\n\n…\n"


def append_summary(path: Path, text: str) -> None:
    """Add text to the step's summary. Raises ConfigError where the file cannot be written."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(
            f"GITHUB_STEP_SUMMARY: got {error.strerror}, expected a file to write ({path})"
        ) from error


def _case_of(check: Check) -> str:
    body = ""
    if check.excused or check.is_set_aside:
        body = _element("skipped", check.reason)
    elif check.outcome == "FAIL":
        body = _element("failure", check.reason)
    elif check.outcome == "INCONCLUSIVE":
        body = _element("error", f"INCONCLUSIVE: {check.reason}")
    limit = check.limit.warn if check.limit.fail is None else check.limit.fail
    where = number_format.NAMES.get(check.limit.metric, check.limit.metric) + (
        "" if check.stratum is None else f", {check.stratum}"
    )
    return _case(
        where,
        f"{number_format.statistic(check.limit.statistic)} within {number_format.percent(limit)}",
        body=body,
    )


def _case(where: str, name: str, *, body: str) -> str:
    return f'<testcase classname="{xml(where)}" name="{xml(name)}">{body}</testcase>'


def _element(kind: str, message: str) -> str:
    return f'<{kind} message="{xml(message)}"/>' if message else ""


def _annotation(level: str, title: str, message: str) -> str:
    """Return a workflow command."""
    return f"::{level} title={annotation_property(title)}::{annotation(message)}"
