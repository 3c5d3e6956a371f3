"""What makes no sense where nothing is generated: options that speak of an answer's tokens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from traces import ConfigError
from traces.workload import LENGTH_NAMES, WorkloadOptions, flag

if TYPE_CHECKING:
    from observe.options import AnswerOptions, ListOptions, RecordOptions
    from observe.settings import Settings
    from traces.workload import Cancellation

_OF_WORKLOAD = (
    *(name for name in LENGTH_NAMES if name.startswith("output_")),
    *("total_tokens_max", "rounds", "context_growth"),
)
_OF_ANSWERS = ("no_streaming", "guided")
_LIMIT = re.compile(r"(?:^|,)\s*([a-z0-9_]+)\s*=")


def refuse_output_options(
    settings: Settings,
    workload: WorkloadOptions,
    answers: AnswerOptions,
    record: RecordOptions,
    *,
    several: ListOptions,
    cuts: Cancellation | None,
) -> None:
    """Raise ConfigError for an option that needs answers with tokens."""
    given = [name for name in _OF_WORKLOAD if getattr(workload, name, None)]
    given += [name for name in _OF_ANSWERS if getattr(answers, name)]
    if several.plan is not None:
        given.append("plan")
    if several.resume:
        given.append("resume")
    if cuts is not None and cuts.unit == "tokens":
        given.append("cancel_after")
    if given:
        raise ConfigError(
            f"{flag(given[0])}: cannot be combined with --api {settings.api}, which generates no tokens"
        )
    for name in _LIMIT.findall((record.slo or "").lower()):
        if not name.startswith("e2e"):
            raise ConfigError(
                f"--slo: got {name} with --api {settings.api}, expected e2e: nothing is streamed"
            )
