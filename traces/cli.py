"""``vtwin trace``: check, describe, draw and convert traces. Each command imports what is heavy."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from traces.console.options import FormatOption, JsonOption
from traces.conversion import SourceFormat
from traces.errors import ExitCode
from traces.exporters.target import TargetFormat
from traces.strict.option_table import option_table, with_option_tables
from traces.strict.secrets import redact_command
from traces.strict.tell import say, say_text, tell, tell_note
from traces.units import counted, four_digits, parse_seconds, terminal_width
from traces.workload.cancellation import CancelOptions
from traces.workload.contradictions import check_output
from traces.workload.options import WorkloadOptions

if TYPE_CHECKING:
    from traces.facts.answer import AnswerPart
    from traces.importers.reading_options import ReadingOptions
    from traces.statistics.quantities import Quantity
    from traces.trace import Trace
    from traces.trace_summary import DescribedFile, Summary
    from traces.workload.spec.servegen_data import Cut

trace_app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Check, describe, draw, convert traces."
)

_SLOW_BYTES: Final = 100_000_000  # read or written in about two seconds

TraceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="STEM",
        help="The trace's stem, header or table, or a file of another tool. Of a file with several runs FILE#N is the "
        "N-th.",
    ),
]
OutputOption = Annotated[
    Path, typer.Option(metavar="STEM", help="Where to write; Parquet if it ends in .parquet, else CSV.")
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace what --output names even if it was measured.")
]
DialectOption = Annotated[
    Literal["vtwin", "blis"], typer.Option(help="blis: only the columns and keys that BLIS reads.")
]


@option_table
class CutOptions:
    """Which part of ServeGen's data is drawn, and how."""

    start: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            parser=parse_seconds,
            help="For ServeGen data: start at this time (10h). Default: the busiest time.",
        ),
    ] = None
    duration: Annotated[
        float | None,
        typer.Option(metavar="S", parser=parse_seconds, help="For ServeGen data: duration. Default: 10m."),
    ] = None
    rate_scale: Annotated[
        float | None,
        typer.Option(metavar="X", help="For ServeGen data: multiply every rate by this. Default: 1."),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Seed for requests drawn from ServeGen data. Default: 42."),
    ] = None


@option_table
class ReadingTable:
    """How a file of another tool is read, where it does not say so itself."""

    part: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Of a file with several runs (guidellm, vllm bench --append-result, …), the N-th, from 1. As FILE#N, "
            "which every command takes.",
        ),
    ] = None
    block_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="TOKENS",
            help="Tokens that one hash of a prompt's blocks stands for (mooncake). Default: as the numbers of hashes "
            "show. As FILE#block_size=N.",
        ),
    ] = None
    time_unit: Annotated[
        Literal["s", "ms", "us"] | None,
        typer.Option(help="Unit of the file's times (mooncake). Default: the format's. As FILE#time_unit=s."),
    ] = None

    @property
    def options(self) -> ReadingOptions:
        """The options as reading takes them."""
        from traces.importers.reading_options import ReadingOptions

        return ReadingOptions(part=self.part, block_size=self.block_size, time_unit=self.time_unit)


@option_table
class ConvertOptions:
    """All options of ``vtwin trace convert``."""

    file: Annotated[Path, typer.Argument(metavar="FILE", help="File (or folder of a run) to convert.")]
    source: Annotated[
        SourceFormat, typer.Option("--from", help="Format of FILE; tracev2: any trace, BLIS's too.")
    ]
    output: Annotated[
        Path,
        typer.Option(
            metavar="STEM",
            help="Where to write; Parquet if it ends in .parquet, else CSV. With --to: the file itself.",
        ),
    ]
    to: Annotated[
        TargetFormat | None,
        typer.Option(
            help="Write the requests for another tool: mooncake for aiperf and guidellm, vllm-bench for its "
            "timed_trace, burstgpt, azure; or their outcomes: blis-simresult and blis-metrics, BLIS's JSON; "
            "vllm-bench-result, guidellm-report and genai-perf-summary, for dashboards that read these tools' results; "
            "or a specification that describes them: spec. "
            "Default: a trace."
        ),
    ] = None
    dialect: DialectOption = "vtwin"
    reading: ReadingTable
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=COLUMN[:UNIT],…",
            help="Of a CSV: which column is what, as arrival=arrived_at:s,input=prompt,output=answer; other "
            "columns by TraceV2's names. Units of times: s, ms, us.",
        ),
    ] = None
    cut: CutOptions
    overwrite: OverwriteOption = False


@trace_app.command(epilog="Example: vtwin trace check run")
@with_option_tables
def check(
    trace: TraceArgument,
    reading: ReadingTable,
    as_json: JsonOption = False,
) -> None:
    """List everything that is wrong with a trace; exit code 1 if anything is, 3 if there is no trace.

    Of a public file only the first fault is shown, with exit code 3.
    """
    from traces.importers.recorded import check_recorded

    with _working("reading", trace):
        found = check_recorded(trace, options=reading.options)
    problems = found.problems
    for note in found.notes:
        tell_note(note)
    if as_json:
        _print_json(found.document())
    else:
        for problem in problems:
            say(str(problem))
    verdict = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}" if problems else "no problems"
    tell(f"{trace}: {verdict}")
    if problems:
        raise typer.Exit(ExitCode.NEGATIVE)


@trace_app.command(epilog="Example: vtwin trace info run")
@with_option_tables
def info(
    trace: TraceArgument,
    reading: ReadingTable,
    as_json: JsonOption = False,
    form: FormatOption = None,
) -> None:
    """Describe a trace: how many requests, how fast, how long, how cacheable, and their outcomes.

    Of a file with several runs each is described, unless one is named.
    """
    from traces.facts.pasted import refuse_two_forms, say_pasted
    from traces.trace_summary import describe_file

    refuse_two_forms(as_json=as_json, form=form)
    with _working("reading", trace):
        found = describe_file(trace, options=reading.options)
    if as_json:
        _print_json(found.document())
    elif form is not None:
        say_pasted(form, lambda: _parts(found), found.rows)
    elif found.is_one:
        say(*describe(found.summaries[0], width=terminal_width()))
    else:
        for name, summary in zip(found.names, found.summaries, strict=True):
            say(f"{name}:", *describe(summary, width=terminal_width()), "")


@trace_app.command(epilog="Example: vtwin trace convert azure_conv.csv --from azure --output azure")
@with_option_tables
def convert(asked: ConvertOptions) -> None:
    """Bring a public trace format to TraceV2, or a trace to another dialect, file type or tool."""
    from traces.conversion import convert as convert_file
    from traces.importers.recorded import reading_notes

    cut = _cut(asked.cut)
    with _working("reading", asked.file):
        trace = convert_file(
            asked.source, asked.file, options=asked.reading.options, cut=cut, columns=asked.columns
        )
    notes = [f"note: {each}" for each in reading_notes(trace)]
    if asked.to is None:
        _write(trace, asked.output, dialect=asked.dialect, overwrite=asked.overwrite)
        tell(*notes)
        return
    from traces.exporters import export
    from traces.exporters.replay_commands import replay_commands
    from traces.warm_up import without_warmup

    if asked.to in ("mooncake", "vllm-bench", "burstgpt", "azure"):
        trace = without_warmup(trace)  # which no other tool sends again
    path = export(trace, asked.to, asked.output)
    notes += [f"note: {line}" for line in replay_commands(trace, asked.to, path)]
    tell(f"{counted(len(trace), 'request')} -> {path}", *notes)
    if asked.to == "spec":
        comments = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# ")]
        tell(*(f"note: {line.removeprefix('# ')}" for line in comments))


def _cut(asked: CutOptions) -> Cut | None:
    """Return what to draw from ServeGen's data, None if no option selects it."""
    given = {
        "start_s": asked.start,
        "span_s": asked.duration,
        "scale": asked.rate_scale,
        "seed": asked.seed,
    }
    if all(value is None for value in given.values()):
        return None
    from traces.errors import ConfigError
    from traces.workload.spec.servegen_data import Cut

    for name, value, least in (
        ("--start", asked.start, 0.0),
        ("--duration", asked.duration, 1e-6),
        ("--rate-scale", asked.rate_scale, 1e-9),
    ):
        if value is not None and not least <= value < float("inf"):
            raise ConfigError(f"{name}: got {value:g}, expected a number {'>=' if least == 0 else '>'} 0")
    return Cut(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]


@trace_app.command(epilog="Example: vtwin trace synth --workload load.yaml --output day")
@with_option_tables
def synth(
    workload: WorkloadOptions,
    cancel: CancelOptions,
    output: OutputOption,
    dialect: DialectOption = "vtwin",
    overwrite: OverwriteOption = False,
) -> None:
    """Draw a workload into a trace without outcomes, to be observed or simulated later."""
    check_output(workload, output)
    from traces.workload import clipping_notes, limit_note, seed_of, trace_from_options, with_cancellations
    from traces.workload.recorded.served_lengths import served_note

    drawn = with_cancellations(trace_from_options(workload), cancel.asked(), seed=seed_of(workload))
    for note in clipping_notes(workload):
        tell(f"warning: {note}")
    if (served := served_note(drawn)) is not None:
        tell(f"note: {served}; `vtwin observe` sends what was asked for")
    if (limit := limit_note(drawn)) is not None:
        tell(f"note: {limit}")
    _write(drawn, output, dialect=dialect, overwrite=overwrite)


@trace_app.command("export", epilog="Example: vtwin trace export run --metrics --output run.parquet")
def export_table(
    trace: Annotated[Path, typer.Argument(metavar="STEM", help="The trace, or a public file of requests.")],
    output: Annotated[
        Path, typer.Option(metavar="FILE", help="The table: FILE.csv or FILE.parquet, one row per request.")
    ],
    metrics: Annotated[
        bool,
        typer.Option(
            "--metrics", help="Add each request's latencies as columns: ttft_us, tpot_us, e2e_us, queue_us, …"
        ),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE.")] = False,
) -> None:
    """Write a trace as one flat table, for pandas, a spreadsheet or SQL."""
    from traces.errors import ConfigError
    from traces.exporters.flat_table import write_table
    from traces.files.overwrite import refuse_name_of_trace
    from traces.importers.recorded import read_recorded

    refuse_name_of_trace(output)
    if output.exists() and not overwrite:
        raise ConfigError(f"--output: {output} is there already, expected another place, or --overwrite")
    recorded = read_recorded(trace)
    write_table(recorded, output, metrics=metrics)
    tell(f"{counted(len(recorded), 'request')} -> {output}")


def describe(summary: Summary, *, width: int | None = None) -> list[str]:
    """Return the summary as lines for a terminal; ``width``: its columns, None for no limit."""
    lines = [f"{name:<20}{text}" for name, text in _said(summary)]
    return [
        *lines,
        *_columns(_quantities(summary), width=width),
        *(f"note: {note}" for note in summary.notes),
    ]


def _said(summary: Summary) -> list[tuple[str, str]]:
    """Return the terms of a summary that it has."""
    from traces.findings.run_findings import OVERLOADED

    is_overloaded = any(each.kind == OVERLOADED for each in summary.findings)
    said = [
        ("requests", f"{summary.num_requests:,}"),
        ("mode", f"imported from {summary.imported_from}" if summary.imported_from else summary.mode),
        ("status", ", ".join(f"{num:,} {name}" for name, num in summary.num_by_status.items())),
        ("warmup requests", f"{summary.num_warmup:,}" if summary.num_warmup else None),
        ("events", f"{summary.num_events:,}" if summary.num_events else None),
        ("span", _rounded(summary.span_us, unit="s", scale=1e-6)),
        ("arrival rate", _per_s(summary.rate_per_s)),
        ("CV of the gaps", _rounded(summary.gap_cv, unit="")),
        ("duration", _rounded(summary.duration_us, unit="s", scale=1e-6)),
        ("verdict", "OVERLOADED: more is sent than is answered" if is_overloaded else None),
        ("throughput", _per_s(summary.request_throughput)),
        *_throughput(summary),
        ("closed loop", f"{summary.concurrency:,} users" if summary.concurrency else None),
        ("prefix groups", f"{summary.num_prefix_groups:,}" if summary.num_prefix_groups else None),
        ("sessions", f"{summary.num_sessions:,}{_shape(summary)}" if summary.num_sessions else None),
        (
            "different blocks",
            None
            if summary.distinct_prompt_tokens is None
            else f"{summary.distinct_prompt_tokens:,} tokens of prompts, each once",
        ),
        (
            "prefix hit ceiling",
            None
            if summary.prefix_hit_ceiling_frac is None
            else f"{summary.prefix_hit_ceiling_frac:.1%} of prompt tokens",
        ),
        ("unknown columns", ", ".join(summary.foreign_columns)),
    ]
    return [(name, text) for name, text in said if text]


def _throughput(summary: Summary) -> list[tuple[str, str | None]]:
    """Return the lines of what came of a request: its tokens, or where it generates none its inputs."""
    if summary.num_inputs is None:
        return [("", _rounded(summary.output_token_throughput, unit="output tokens/s"))]
    inputs = _rounded(summary.input_throughput, unit=f"inputs/s, {summary.num_inputs:,} a request")
    return [("", inputs), ("", _rounded(summary.prompt_token_throughput, unit="prompt tokens/s"))]


def _parts(found: DescribedFile) -> list[AnswerPart]:
    """Return the runs of a file for readers, all columns of each."""
    from traces.facts.answer import AlignedRows, TermRows

    parts: list[AnswerPart] = []
    for name, summary in zip(found.names, found.summaries, strict=True):
        cells = _cells(_quantities(summary))
        rows = [
            ["", *cells],
            *zip(*([[row[0] for row in _quantities(summary)], *cells.values()]), strict=True),
        ]
        parts += [
            *([] if found.is_one else [f"{name}:"]),
            TermRows(_said(summary)),
            AlignedRows(rows),
            *summary.notes,
        ]
    return parts


def _quantities(summary: Summary) -> list[tuple[str, Quantity, float]]:
    """Return what is distributed: its name, and the factor to the unit that is shown."""
    quantities: list[tuple[str, Quantity | None, float]] = [
        ("prompt tokens", summary.prompt_tokens, 1.0),
        ("new in a round", summary.new_prompt_tokens, 1.0),
        ("output tokens", summary.output_tokens, 1.0),
        ("rounds a session", summary.rounds_per_session, 1.0),
        ("TTFT, ms", summary.ttft_us, 1e-3),
        ("E2E, ms", summary.e2e_us, 1e-3),
        ("ITL, ms" if summary.num_events else "mean ITL, ms", summary.itl_us, 1e-3),
        ("TPOT, ms", summary.tpot_us, 1e-3),
        ("queue, ms", summary.queue_us, 1e-3),
        ("dispatch lag, ms", summary.dispatch_lag_us, 1e-3),
        *((f"{name}, ms", found, 1e-3) for name, found in summary.slow_phases()),
    ]
    return [(name, quantity, scale) for name, quantity, scale in quantities if quantity is not None]


def _cells(quantities: Sequence[tuple[str, Quantity, float]]) -> dict[str, list[str]]:
    """Return the cells of each column."""
    return {
        column: [
            f"{quantity.n:,}" if column == "n" else four_digits(getattr(quantity, column) * scale)
            for _, quantity, scale in quantities
        ]
        for column in _COLUMNS
    }


def _shape(summary: Summary) -> str:
    """Return how often sessions branch and join, nothing where they never do."""
    if not (summary.num_branches or summary.num_joins):
        return ""
    return f", {counted(summary.num_branches, 'branch point')}, {counted(summary.num_joins, 'join')}"


_COLUMNS = ("n", "mean", "stdev", "min", "p50", "p90", "p99", "max")
_FIRST_TO_GO = ("stdev", "min", "p90", "max", "mean")


def _columns(quantities: Sequence[tuple[str, Quantity, float]], *, width: int | None) -> list[str]:
    """Return a row per quantity; columns that do not fit into ``width`` are left out, and named."""
    if not quantities:
        return []
    cells = _cells(quantities)
    label = max(len(name) for name, _, _ in quantities)
    wide = {column: max(len(column), *map(len, texts)) + 2 for column, texts in cells.items()}
    left_out: list[str] = []
    for column in _FIRST_TO_GO:
        if width is None or label + sum(wide.values()) <= width:
            break
        del wide[column]
        left_out.append(column)
    lines = [" " * label + "".join(f"{column:>{each}}" for column, each in wide.items())]
    for i, (name, _, _) in enumerate(quantities):
        lines.append(f"{name:<{label}}" + "".join(f"{cells[column][i]:>{wide[column]}}" for column in wide))
    return [*lines, f"not shown, for want of width: {', '.join(left_out)}"] if left_out else lines


def _rounded(value: float | None, *, unit: str, scale: float = 1.0) -> str | None:
    return None if value is None else f"{four_digits(value * scale)} {unit}".rstrip()


def _per_s(rate: float | None) -> str | None:
    return None if rate is None else counted(rate, "request/s", written=four_digits(rate))


def _write(trace: Trace, output: Path, *, dialect: Literal["vtwin", "blis"], overwrite: bool) -> None:
    from traces.files.overwrite import note_replaced
    from traces.files.write import write_trace
    from traces.findings.run_findings import marked

    if (note := note_replaced(output, overwrite=overwrite)) is not None:
        tell(f"note: {note}")
    command = redact_command(["vtwin", *sys.argv[1:]], os.environ)
    paths = write_trace(marked(trace.with_header(command=command)), output, dialect=dialect)
    tell(f"{counted(len(trace), 'request')} -> {', '.join(str(path) for path in paths)}")


def _print_json(document: object) -> None:
    import json

    say_text(json.dumps(document, allow_nan=False))


@contextmanager
def _working(what: str, path: Path) -> Iterator[None]:
    """Show work that takes seconds on stderr: a spinner, or a line without a terminal."""
    folder, stem = path.parent, path.name.split(".")[0]
    size = sum(file.stat().st_size for file in folder.glob(f"{stem}*") if file.is_file())
    if size < _SLOW_BYTES and not path.is_dir():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    from traces.strict.escape import terminal

    console = Console(stderr=True)
    message = f"{what} {path}" + (f" ({size / 1e6:,.0f} MB)" if size else "")
    if not console.is_terminal:
        tell(message)
        yield
        return
    with console.status(Text(terminal(message))):
        yield
