"""The options of ``vtwin explore``: the load and the twin that the page begins with, and where it listens."""

from __future__ import annotations

from typing import Annotated

import typer

from replay.capacity.options import PricesOption
from replay.console.twins import AnywayOption, InstancesOption, RoutingOption
from replay.numbers.argument_ranges import PORT
from traces.console.options import ConfigOption, DefaultsOption
from traces.strict.option_table import option_table
from traces.workload import SessionOptions, WorkloadOptions


@option_table
class FirstLoad:
    """The load."""

    workload: WorkloadOptions
    sessions: SessionOptions = SessionOptions()


@option_table
class FirstTwin:
    """The twin, and what it is held against."""

    config: ConfigOption
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A key of TWIN.yaml in place of the file's, as in run. Repeatable.",
        ),
    ] = None
    instances: InstancesOption = None
    routing: RoutingOption = None
    slo: Annotated[
        str | None,
        typer.Option(
            metavar="LIMITS",
            help="Latency limits of each request, ttft=500ms,tpot=30ms,e2e=10s: drawn in, and the capacity with them.",
        ),
    ] = None
    prices: PricesOption = None
    anyway: AnywayOption = False
    defaults: DefaultsOption = None


@option_table
class PageOptions:
    """The page."""

    port: Annotated[
        int,
        typer.Option(
            min=PORT.least, max=PORT.most, help="Port of 127.0.0.1 to listen on; 0 picks a free one."
        ),
    ] = 0
    opens: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="LINK",
            help="What a link of the page has behind #: begin there (rate=8&instances=2).",
        ),
    ] = None
