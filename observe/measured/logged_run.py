"""What is logged of a run, whichever tool keeps it: parameters, metrics, files."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from lazy_dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from observe.measured.served_load import ServedLoad
from traces import Header, companion_file, file_at, stem_of
from traces.strict.secrets import Secrets, environment_secrets, redact_text

_OF_HEADER: Final = (
    *("mode", "tool", "tool_version", "command", "seed", "workload_seed", "workload_spec"),
    *("session_context_growth", "rate_per_s", "config_digest", "start_unix_us", "server", "closed_loop"),
)
_OF_CLIENT: Final = (
    *("api", "library", "num_processes", "prompt_source", "ignore_eos", "num_inputs", "num_choices", "tools"),
    *("max_concurrency", "max_retries", "rate_asked_per_s", "guided_schema", "limited", "reason"),
)
_NOT_MEASURED: Final = ("mode", "imported_from", "tool", "foreign_columns", "findings", "notes")
"""Of ``trace info``'s document: texts, which are parameters or stand in the files."""
_ENDINGS: Final = (
    *(".yaml", ".csv", ".parquet", ".itl.csv", ".itl.parquet"),
    *(".gauges.csv", ".probes.csv", ".steps.csv"),
)
_LONGEST: Final = 500
"""Letters of a parameter: what MLflow takes before 2.10."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRun:
    """One run: ``params`` are what was asked and of which server, ``metrics`` the numbers of ``trace info --json``.

    Both by the document's names, those of nested values behind a dot: ``server.model``, ``ttft_us.p99``. ``files``:
    those of the trace, and the page. ``start_ms``: Unix time of its start, None where it is not known.
    """

    name: str
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    files: Sequence[Path]
    start_ms: int | None


def logged_run(load: ServedLoad, *, page: Path) -> LoggedRun:
    """Return what is logged of a measured, or simulated, run; no key that this machine knows is in a parameter."""
    header = load.trace.header
    known = Secrets.of(environment_secrets(os.environ))
    params = {name: redact_text(known.redact(text))[:_LONGEST] for name, text in _params(header)}
    shown = {name: value for name, value in asdict(load.summary).items() if name not in _NOT_MEASURED}
    more: dict[str, object] = {"goodput": load.goodput, "mean_in_flight": load.in_flight}
    more |= {
        name: asdict(each) for name in ("power", "probes", "spec_decode") if (each := getattr(header, name))
    }
    return LoggedRun(
        name=load.name,
        params=params,
        metrics=dict(_numbers({**shown, **more})),
        files=[*_files(load.path), page],
        start_ms=None if header.start_unix_us is None else header.start_unix_us // 1000,
    )


def _params(header: Header) -> Iterator[tuple[str, str]]:
    """Yield what was asked, by name; what is not known is left out."""
    document = asdict(header)
    client = document["client"] or {}
    chosen = {name: document[name] for name in _OF_HEADER} | {
        "client": {name: client.get(name) for name in _OF_CLIENT}
    }
    for name, value in _leaves(chosen):
        if value is not None and not name.startswith("server.sources.") and value != ():
            yield name, " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _numbers(document: Mapping[str, object]) -> Iterator[tuple[str, float]]:
    for name, value in _leaves(document):
        if isinstance(value, int | float) and math.isfinite(value):
            yield name, float(value)


def _leaves(document: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    """Yield each value that is no mapping, by its names from the top."""
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _files(path: Path) -> list[Path]:
    """Return a trace's files, and those of what went on beside it; of another tool its one file."""
    file = file_at(path)
    stem = stem_of(file)
    if companion_file(stem, ".yaml").is_file():
        return [each for ending in _ENDINGS if (each := companion_file(stem, ending)).is_file()]
    return [file]
