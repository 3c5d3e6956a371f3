"""``vtwin receive``. What is heavy is imported by the command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from traces import parse_seconds
from traces.strict.option_table import option_table, with_option_tables
from traces.strict.secrets import redact_command


@option_table
class ReceiveOptions:
    """Where spans are received, and where they are written."""

    output: Annotated[
        Path,
        typer.Option(
            metavar="STEM",
            help="Where to write: STEM-20260131T140000Z is the trace of what began in the hour from 14:00 UTC.",
        ),
    ]
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 4318
    every: Annotated[
        float,
        typer.Option(metavar="S", parser=parse_seconds, help="Time that one file holds (30m, 1h, 24h)."),
    ] = "1h"  # type: ignore[assignment]  # typer parses a default, too
    max_body_bytes: Annotated[
        int, typer.Option(min=1, metavar="BYTES", help="The longest body of a request, packed and unpacked.")
    ] = 4 * 2**20
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the files that are there, after a restart.")
    ] = False
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files of the same hours, measured or not.")
    ] = False


@with_option_tables
def receive(asked: ReceiveOptions) -> None:
    """Take vLLM's spans over OTLP/HTTP and record a trace of its requests, a file an hour, until Ctrl-C."""
    from observe.receive.question import receive_spans

    receive_spans(
        asked.output,
        host=asked.host,
        port=asked.port,
        every_s=asked.every,
        max_body_bytes=asked.max_body_bytes,
        resume=asked.resume,
        overwrite=asked.overwrite,
        command=redact_command(["vtwin", *sys.argv[1:]], os.environ),
    )
