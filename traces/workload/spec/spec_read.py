"""Reads a workload specification: BLIS's WorkloadSpec v2 in YAML, strictly.

What vtwin does not act on yet is refused by name. Where BLIS leaves a case open or passes over it, the
meaning taken here is in the key's line of the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from traces.errors import ConfigError
from traces.header import SLOTarget
from traces.strict.yaml_nodes import line_at, parse_yaml, place, plain_value, read_text
from traces.workload.basics import DEFAULT_NUM_REQUESTS, InvalidWorkload, require
from traces.workload.model import Client, OpenLoop, UserLoop, Workload
from traces.workload.spec.cohorts import build_cohort, read_cohort
from traces.workload.spec.fields import (
    Section,
    key,
    list_of,
    not_negative,
    number,
    one_of,
    read_section,
    shown,
    within,
)
from traces.workload.spec.inference_perf import Expanded, read_inference_perf
from traces.workload.spec.length_files import LengthFiles
from traces.workload.spec.sections import build_client, prefix_lengths, read_client
from traces.workload.spec.servegen_clients import population_of, read_servegen_data


def load_spec(path: str | Path) -> Workload:
    """Return the workload that the specification at ``path`` describes.

    Raises ConfigError, one line with the key and the file, for a file that cannot be read, an unknown or
    repeated key, a wrong type, a value that cannot be, and a key that vtwin does not support yet.
    """
    return parse_spec(read_text(Path(path), expected="a workload specification"), source=str(path))


def parse_spec(content: str, *, source: str) -> Workload:
    """Return the workload that ``content`` describes; ``source`` names the file in errors and headers."""
    root = parse_yaml(content, file=source)
    try:
        return _workload(read_section(plain_value(root, file=source), SPEC), source)
    except InvalidWorkload as error:
        where = error.within("workload") if str(error).startswith("got ") else error
        path, _, _ = str(error).partition(": ")
        raise ConfigError(f"{where} ({place(source, line_at(root, path))})") from error


def _version(value: object) -> str:
    if str(value) in ("1", "2"):
        return str(value)
    raise InvalidWorkload(f'got {shown(value)}, expected "2" (or "1")')


def _slo_targets(value: object) -> dict[str, SLOTarget]:
    require(isinstance(value, Mapping), f"got {shown(value)}, expected targets by service class")
    targets = {}
    for name, item in value.items():  # type: ignore[attr-defined]
        with within(str(name)):
            targets[str(name)] = SLOTarget(**read_section(item, SLO_TARGET))
    return targets


SLO_TARGET: Final[Section] = {
    "ttft_ms": key(number, "ms", "Time to the first token."),
    "itl_ms": key(number, "ms", "Time between tokens."),
    "e2e_ms": key(number, "ms", "Time to the last token."),
}

SPEC: Final[Section] = {
    "version": key(_version, "text", 'Of the format: "2"; "1" had other names for two service classes.'),
    "seed": key(not_negative, "integer", "Where --seed is not given. Default 42."),
    "category": key(
        one_of("language", "multimodal", "reasoning"),
        "language / multimodal / reasoning",
        "Kind of load, a label: the clients' own sections say what is drawn.",
    ),
    "aggregate_rate": key(
        number,
        "requests/s",
        "Of all clients together; .inf: all at once; 0: the trace_rate of each window is its rate. "
        "Required, but for a closed loop.",
    ),
    "num_requests": key(
        not_negative, "integer", "Stop after this many; 0: no such bound. Default 100 without horizon."
    ),
    "horizon": key(not_negative, "µs", "Requests due up to this time; 0: no such bound (the default)."),
    "total_tokens_max": key(
        not_negative,
        "integer",
        "Maximum of prompt and answer together: longer requests are cut (--total-tokens-max); 0: none. A key of "
        "vtwin's own.",
    ),
    "clients": key(list_of(read_client), "list", "Sources of requests, see below."),
    "cohorts": key(list_of(read_cohort), "list", "Groups of like clients, see below."),
    "goodput_slo_targets": key(
        _slo_targets, "mapping", "Targets by service class, carried in the trace's header."
    ),
    "servegen_data": key(
        read_servegen_data,
        "mapping",
        "ServeGen's data, see below, in place of clients. With an aggregate_rate above 0 the data's rates are shares "
        "of it, else they hold as they are.",
    ),
    "inference_perf": key(
        read_inference_perf, "mapping", "Stages and users of inference-perf, see below, in place of clients."
    ),
}


def _common(given: dict[str, Any]) -> dict[str, Any]:
    """Return what any specification may say, besides what is drawn."""
    most = given.get("total_tokens_max") or None
    require(most is None or most >= 2, f"total_tokens_max: got {most}, expected an integer >= 2")
    return {
        "seed": given.get("seed"),
        "goodput_slo_targets": given.get("goodput_slo_targets", {}),
        "total_tokens_max": most,
    }


def _expanded(given: dict[str, Any], expanded: Expanded, source: str) -> Workload:
    """Return the workload of inference_perf; the specification's own bounds stand where it has some."""
    for name in ("clients", "cohorts", "aggregate_rate", "servegen_data"):
        require(not given.get(name), f"{name}: cannot be combined with inference_perf")
    return Workload(
        clients=expanded.clients,
        load=expanded.load,
        num_requests=given.get("num_requests") or expanded.num_requests,
        duration_us=given.get("horizon") or expanded.duration_us,
        source=source,
        **_common(given),
    )


def _of_servegen(given: dict[str, Any], source: str) -> Workload:
    """Return the workload of servegen_data: as long as the data's span, unless the specification is shorter."""
    for name in ("clients", "cohorts"):
        require(not given.get(name), f"{name}: cannot be combined with servegen_data")
    found = population_of(given["servegen_data"], folder=Path(source).parent)
    rate = given.get("aggregate_rate") or None
    require(rate is None or rate > 0, f"aggregate_rate: got {rate}, expected requests per second >= 0")
    span_us = round(found.span_s * 1_000_000)
    return Workload(
        clients=found.clients,
        load=OpenLoop(rate_per_s=rate),
        num_requests=given.get("num_requests") or None,
        duration_us=min(given.get("horizon") or span_us, span_us),
        source=source,
        **_common(given),
    )


def _workload(given: dict[str, Any], source: str) -> Workload:
    if "inference_perf" in given:
        return _expanded(given, given["inference_perf"], source)
    if "servegen_data" in given:
        return _of_servegen(given, source)
    members = [*given.get("clients", ()), *given.get("cohorts", ())]
    require(len(members) > 0, "clients: got none, expected at least one client or cohort")
    clients = _clients(given, prefixes=prefix_lengths(members), files=LengthFiles(folder=Path(source).parent))
    num_requests, horizon = given.get("num_requests") or None, given.get("horizon") or None
    if num_requests is None and horizon is None:
        num_requests = DEFAULT_NUM_REQUESTS
    return Workload(
        clients=clients,
        load=_load(given),
        num_requests=num_requests,
        duration_us=horizon,
        source=source,
        **_common(given),
    )


def _clients(given: dict[str, Any], *, prefixes: Mapping[str, int], files: LengthFiles) -> tuple[Client, ...]:
    clients: list[Client] = []
    for i, entry in enumerate(given.get("clients", ())):
        with within(f"clients[{i}]"):
            clients.append(build_client(entry, name=f"client-{i}", prefixes=prefixes, files=files))
    for i, entry in enumerate(given.get("cohorts", ())):
        with within(f"cohorts[{i}]"):
            clients += build_cohort(entry, name=f"cohort-{i}", prefixes=prefixes, files=files)
    return tuple(clients)


def _load(given: dict[str, Any]) -> OpenLoop | UserLoop:
    """Return the loop that the one client with a concurrency closes, else an open one."""
    closed = [i for i, entry in enumerate(given.get("clients", ())) if entry.get("concurrency")]
    if not closed:
        require("aggregate_rate" in given, "aggregate_rate: got none, expected requests per second")
        rate = given["aggregate_rate"]
        require(rate >= 0, f"aggregate_rate: got {rate:g}, expected requests per second >= 0")
        return OpenLoop(rate_per_s=rate or None)
    alone = len(given["clients"]) == 1 and not given.get("cohorts")
    where = f"clients[{closed[0]}].concurrency"
    require(alone, f"{where}: cannot be combined with other clients yet")
    require(not given.get("aggregate_rate"), f"aggregate_rate: cannot be combined with {where}")
    entry = given["clients"][0]
    return UserLoop(concurrency=entry["concurrency"], think_time_us=entry.get("think_time_us", 0))
