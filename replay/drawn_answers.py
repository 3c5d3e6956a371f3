"""What a notebook shows of each answer of this package: the command's own rows and its page's figures.

Here the answers and their pages meet; ``traces.pages.notebook`` draws what these functions return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from traces.facts import AnswerPart, Verbatim
from traces.pages.notebook import NotebookView, plain_page

if TYPE_CHECKING:
    from replay.capacity.capacity import Capacity
    from replay.capacity.sessions import SessionCapacity
    from replay.fleet.answers import SizedFleet
    from replay.rollouts.rollouts import Rollouts
    from replay.simulation.simulated_run import Run
    from replay.tuning.candidate_search import Tuned
    from replay.twin.twin_config import TwinConfig


def of_run(run: Run) -> NotebookView:
    """Return a run's rows and page; of a very long one no figures, since some need a second simulation."""
    from replay.simulation.page import run_page
    from replay.simulation.simulated_run import MOST_LOOKED_AT

    is_long = len(run.trace) > MOST_LOOKED_AT
    page = plain_page("vtwin run", repr(run)) if is_long else run_page(run, command="")
    return NotebookView(
        page=page, parts=run.answer_parts, more="vtwin run --report FILE.html draws the whole page."
    )


def of_twin(twin: TwinConfig) -> NotebookView:
    """Return a twin as TWIN.yaml, defaults filled in, and what to know before it is used."""
    from replay.twin.config_write import dump_config, name_of

    title = f"{name_of(twin.latency)}, {'one server' if twin.is_plain_server else 'a cluster'}"
    page = plain_page("TWIN.yaml", title, warnings=twin.notes)
    return NotebookView(page=page, parts=[Verbatim(dump_config(twin).splitlines())])


def of_capacity(found: Capacity) -> NotebookView:
    """Return a capacity's rows and curves; its line alone where the question is not known."""
    from replay.capacity.page import page_of
    from replay.capacity.text import capacity_parts

    if found.asked is None:
        return NotebookView(page=plain_page("vtwin capacity", str(found)))
    limits, twin, lengths = found.asked.limits, found.asked.twin, found.asked.lengths
    page = page_of(found, limits, twin=twin, lengths=lengths, notes=twin.notes)
    return NotebookView(page=page, parts=capacity_parts(found, limits, twin=twin, lengths=lengths))


def of_sessions(found: SessionCapacity) -> NotebookView:
    """Return the number of sessions, and a row for each number that was simulated."""
    from replay.capacity.session_command import session_parts

    page = plain_page("vtwin capacity --sessions", str(found))
    return NotebookView(page=page, parts=session_parts(found, found.limits))


def of_tuned(found: Tuned) -> NotebookView:
    """Return the best server in a line, and the servers side by side."""
    from replay.tuning.text import tuning_parts

    title = f"{found.best[0][0].name}: {found.best[0][1]}" if found.best else "No server meets the limits"
    parts: list[AnswerPart] = [*str(found).splitlines()]
    if found.asked is not None:
        parts = tuning_parts(found, found.asked.candidates, found.asked.limits, confirmed={})
    return NotebookView(page=plain_page("vtwin tune", title), parts=parts)


def of_fleet(found: SizedFleet) -> NotebookView:
    """Return a fleet's pools, and its engines over the load."""
    from replay.fleet.told.page import page_of
    from replay.fleet.told.text import fleet_parts

    more = "vtwin fleet size --report FILE.html draws the whole page."
    return NotebookView(page=page_of(found.plan), parts=fleet_parts(found.plan), more=more)


def of_rollouts(found: Rollouts) -> NotebookView:
    """Return the time of a batch, and every way beside the plain one."""
    from replay.rollouts.rollout_summary import summarize_rollouts
    from replay.rollouts.text import rollout_parts

    page = plain_page("vtwin rollouts", str(found).partition("\n")[0])
    return NotebookView(page=page, parts=rollout_parts(summarize_rollouts(found)))
