"""The load generator measured on this machine, as a function; ``vtwin selfcheck`` prints what it returns."""

from __future__ import annotations

from collections.abc import Callable

from observe.event_loop import run_on_fastest_loop
from observe.selfcheck.measure import start_reference_server
from observe.selfcheck.report import Report, examine
from traces.strict.arguments import Count, takes


@takes(processes=Count(1, 256))
def check_client(
    *, quick: bool = False, processes: int = 1, tell: Callable[[str], None] = lambda _: None
) -> Report:
    """Return how fast and how exact the load generator is here, against a server of known response times.

    ``quick``: half a minute instead of a minute; ``processes``: above 1 also so many together; ``tell`` is called with
    what is measured next.
    """

    async def measured() -> Report:
        async with start_reference_server() as server:
            return await examine(server, quick=quick, processes=processes, tell=tell)

    return run_on_fastest_loop(measured)
