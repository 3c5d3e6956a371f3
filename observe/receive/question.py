"""Receiving spans, as a function; ``vtwin receive`` calls it."""

from __future__ import annotations

from pathlib import Path

from observe.receive.receiver import run_receiver
from observe.receive.time_windows import Windows, check_output
from traces import ConfigError, sole_owner, stem_of
from traces.strict.arguments import PATH, Count, Written, takes

LEAST_S = 60.0
MOST_S = 7 * 86_400.0
"""The range of ``every_s``: from a minute to a week per file."""


@takes(output=PATH, host=Written("an address"), port=Count(0, 65_535), max_body_bytes=Count(1))
def receive_spans(
    output: Path | str,
    *,
    host: str = "127.0.0.1",
    port: int = 4318,
    every_s: float = 3600.0,
    max_body_bytes: int = 4 * 2**20,
    resume: bool = False,
    overwrite: bool = False,
    command: str = "observe.receive_spans",
) -> None:
    """Record a server's OpenTelemetry spans as traces, a file for each ``every_s``, until SIGINT or SIGTERM.

    ``output``: the files' stem; ``port``: 0 takes a free one, which stdout tells; ``max_body_bytes``: of a post, packed
    and unpacked; ``resume``: go on with files that are there, ``overwrite``: replace them. For the main thread of a
    process. Raises ConfigError for an address in use, or files that are there; TraceError, in the end, if a file could
    not be put in order.
    """
    if not LEAST_S <= every_s <= MOST_S:
        raise ConfigError(f"--every: got {every_s:g} s, expected a time from 1 minute to 7 days")
    output = Path(output)
    check_output(output, resume=resume, overwrite=overwrite)
    with sole_owner(stem_of(output)):
        windows = Windows(output, every_s=every_s, resume=resume, command=command)
        run_receiver(windows, host=host, port=port, max_body_bytes=max_body_bytes)
