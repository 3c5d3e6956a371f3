"""``vtwin explore``. The command imports what is heavy."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from replay.explore.options import FirstLoad, FirstTwin, PageOptions
from replay.twin.own.own_code import with_code_option
from traces.strict.option_table import with_option_tables
from traces.strict.tell import say, tell
from traces.workload import WorkloadOptions

if TYPE_CHECKING:
    from replay.explore.asked_run import AskedRun
    from replay.explore.page_app import PagePlace

NUM_REQUESTS = 3_000
"""Of a turn, where nobody says another number."""


@with_code_option
@with_option_tables
def explore(load: FirstLoad, twin: FirstTwin, page: PageOptions) -> None:
    """Turn settings on a page on this machine, and look at what they change: latencies, capacity, cost.

    The page answers as `vtwin run` does, and says with which command. Ctrl-C ends it.
    """
    from replay.explore.page_server import run_page
    from replay.explore.question_process import Begun
    from replay.explore.state_answers import StateAnswers

    asked = _first(load, twin)
    answers, state = StateAnswers(asked, twin.prices), (page.state or "").removeprefix("#")
    for each in _states(state):
        answers.check(each)
    first = answers.begin.twin
    from replay.console.ready import prepare_engine

    prepare_engine(first, has_gateway=True, trace=asked.load(first))

    def announce(place: PagePlace) -> None:
        say(f"exploring {twin.config} on {place.link}")
        sys.stdout.flush()
        if page.opens:
            _open(place.link)

    run_page(Begun(asked=asked, prices=twin.prices), announce=announce, port=page.port, state=state)


def _states(link: str) -> list[dict[str, str]]:
    """Return the states of a link: its own, then those that it pins."""
    said = parse_qsl(link, keep_blank_values=True)
    pins = [dict(parse_qsl(text, keep_blank_values=True)) for name, text in said if name == "pin"]
    return [dict(each for each in said if each[0] != "pin"), *pins]


def _first(load: FirstLoad, twin: FirstTwin) -> AskedRun:
    """Return the run that the page begins with. Raises ConfigError."""
    from replay.explore.asked_run import AskedRun
    from replay.simulation.cli import check_load
    from replay.twin.keys.overlay import setting_of
    from traces import parse_slo

    workload = _with_number(load.workload)
    check_load(workload, None, sessions=load.sessions.sessions)
    if twin.slo is not None:
        parse_slo(twin.slo)
    load.sessions.starts(seed=0)
    settings = [setting_of(each) for each in twin.settings or ()]
    return AskedRun(
        config=twin.config,
        workload=workload,
        sessions=load.sessions,
        settings=tuple((each.key, each.value) for each in settings),
        instances=twin.instances,
        routing=twin.routing,
        slo=twin.slo,
        anyway=twin.anyway,
        defaults=twin.defaults,
    )


def _with_number(workload: WorkloadOptions) -> WorkloadOptions:
    """Return the load with a turn's number of requests, where nothing says how many there are."""
    has_end = any(
        each is not None
        for each in (
            workload.num_requests,
            workload.duration,
            workload.trace,
            workload.stages,
            workload.batch,
        )
    )
    return workload if has_end else replace(workload, num_requests=NUM_REQUESTS)


def _open(link: str) -> None:
    """Open the page in a browser, if there is one."""
    import webbrowser

    try:
        webbrowser.open(link)
    except webbrowser.Error:
        tell("note: found no browser: open the link yourself")
