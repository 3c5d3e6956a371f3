"""``servegen_data`` of a specification: the clients of ServeGen's data, in place of clients and cohorts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from traces.errors import ConfigError, TraceError
from traces.workload.basics import InvalidWorkload, require
from traces.workload.spec.fields import Section, key, number, read_section, text, unsupported
from traces.workload.spec.servegen_data import Cut, Population, servegen_clients

SERVEGEN: Final[Section] = {
    "path": key(
        text,
        "path",
        "Folder of chunk-N-trace.csv and chunk-N-dataset.json. Counted from the specification's folder.",
        required=True,
    ),
    "span_start": key(number, "s", "Where in the data to begin. Default 0."),
    "span_end": key(number, "s", "Where to end. Default: the end of the data."),
    "rate_scale": key(
        number, "number > 0", "vtwin's own: factor on all rates, where aggregate_rate does not say them."
    ),
    "time_window": unsupported("say span_start and span_end"),
    "window_duration_secs": unsupported("say span_start and span_end"),
    "drain_timeout_secs": unsupported("several periods are several specifications"),
}


def read_servegen_data(value: object) -> Mapping[str, Any]:
    """Return the section, checked. Raises InvalidWorkload."""
    given = read_section(value, SERVEGEN)
    start, end = given.get("span_start", 0.0), given.get("span_end", math.inf)
    require(0 <= start < end, f"span_end: got {end:g}, expected seconds > span_start ({start:g})")
    scale = given.get("rate_scale", 1.0)
    require(0 < scale < math.inf, f"rate_scale: got {scale:g}, expected a number > 0")
    return given


def population_of(given: Mapping[str, Any], *, folder: Path) -> Population:
    """Return the clients of the data. Raises InvalidWorkload for a folder that has none."""
    start, end = given.get("span_start", 0.0), given.get("span_end", math.inf)
    cut = Cut(start_s=start, span_s=end - start, scale=given.get("rate_scale", 1.0))
    try:
        return servegen_clients(folder / given["path"], cut)
    except TraceError as error:
        raise InvalidWorkload(f"servegen_data: {error}") from error
    except ConfigError as error:
        raise InvalidWorkload(f"servegen_data.{str(error).replace('--start', 'span_start')}") from error
