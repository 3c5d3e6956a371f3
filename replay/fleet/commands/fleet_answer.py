"""How an answer of ``vtwin fleet`` is printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from traces import ExitCode
from traces.facts import say_answer
from traces.strict.tell import tell_note

if TYPE_CHECKING:
    from replay.fleet.answers import FleetAnswer
    from traces.console.options import AnswerForm


def say_fleet_answer(
    found: FleetAnswer[Any], how: AnswerForm, *, then: Callable[[], None] = lambda: None
) -> None:
    """Print an answer, after its notes to stderr, then call ``then``; leave with 1 where nothing meets the SLO."""
    for note in found.notes:
        tell_note(note)
    say_answer(found.document, lambda: found.parts, how)
    then()
    if found.is_met is False:
        raise typer.Exit(ExitCode.NEGATIVE)
