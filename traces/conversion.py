"""``convert("azure", path)``: public formats to TraceV2, logs of requests and data to draw requests from alike."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from traces.errors import ConfigError
from traces.importers import PublicFormat, check_converted, read_public, read_typed
from traces.importers.reading_options import ReadingOptions, split_name
from traces.strict.arguments import PATH, TEXT, takes

if TYPE_CHECKING:
    from traces.trace import Trace
    from traces.workload.spec.servegen_data import Cut

SourceFormat = Literal[PublicFormat, "csv", "servegen"]
SOURCE_FORMATS: Final = (*get_args(PublicFormat), "csv", "servegen")


@takes(source=TEXT, path=PATH, columns=TEXT)
def convert(
    source: SourceFormat,
    path: str | Path,
    *,
    options: ReadingOptions | None = None,
    cut: Cut | None = None,
    columns: str | None = None,
) -> Trace:
    """Return the trace that ``path`` holds in the named public format; ``tracev2`` just reads one.

    ``path``: may carry options behind a ``#``, as ``read_recorded`` has it; ``options`` come before those.
    ``columns``: which column of a CSV is what, as ``--columns`` spells it (csv). ``cut``: what is drawn from data that
    are not request logs (servegen). Raises TraceError, naming file and line or row, for content that the format or a
    trace does not allow; ConfigError for an unknown format, or an option that the format does not take.
    """
    path, said = split_name(Path(path))
    options = (options or ReadingOptions()).over(said)
    if source not in SOURCE_FORMATS:
        raise ConfigError(f"--from: got {source!r}, expected one of {', '.join(SOURCE_FORMATS)}")
    if source == "tracev2":
        _refuse_public(path)
    if source in ("csv", "servegen") and (given := options.given()):
        names = ", ".join(options.option(name) for name in given)
        raise ConfigError(f"{names}: cannot be combined with --from {source}")
    if cut is not None and source != "servegen":
        raise ConfigError(
            f"--start, --duration, --rate-scale, --seed: cannot be combined with --from {source}, "
            "expected --from servegen"
        )
    if (columns is not None) != (source == "csv"):
        wrong = "cannot be combined with" if columns is not None else "got none for"
        expected = "arrival=COLUMN:UNIT,input=COLUMN,output=COLUMN" if source == "csv" else "--from csv"
        raise ConfigError(f"--columns: {wrong} --from {source}, expected {expected}")
    if source == "csv":
        from traces.importers.csvfile import parse_columns, read_csv_file

        assert columns is not None  # noqa: S101 - looked at above
        parsed = parse_columns(columns)
        trace = read_typed(lambda file: read_csv_file(file, parsed), path)
    elif source == "servegen":
        from traces.workload.servegen import read_servegen

        trace = read_servegen(path, cut=cut)
    else:
        return read_public(source, path, options=options)
    check_converted(trace, path)
    return trace


def _refuse_public(path: Path) -> None:
    """Raise ConfigError, naming the format, for a file of another tool whose format is recognised."""
    from traces.importers.recorded import format_of

    if (source := format_of(path)) is not None:
        raise ConfigError(f"--from: got tracev2, expected {source}, the format of {path}")
