"""``vtwin sweep``. What is heavy is imported by the command."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from replay.sweeps.options import SweepOptions
from replay.twin.own.own_code import with_code_option
from traces import ExitCode
from traces.facts import say_answer
from traces.strict.option_table import with_option_tables
from traces.strict.secrets import redact_command
from traces.strict.tell import tell

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    import pandas as pd

    from replay.sweeps.grid import Grid, SweepRun
    from replay.sweeps.one_run import Row

EVERY_S = 10.0
"""Without a terminal, a line of progress is printed this often."""


@with_code_option
@with_option_tables
def sweep(options: SweepOptions) -> None:
    """Simulate configurations x workloads x seeds into one table, and show the Pareto front.

    After Ctrl-C or a kill, the same command goes on where it was. Exit code 1 if a run has no result; its row says why.
    """
    from replay.model.prices import list_prices
    from replay.sweeps.grid import doubts_of_configs, notes_of_files, read_grid
    from replay.sweeps.shards import in_shard, parse_shard, shard_table
    from traces import ConfigError, check_place, parse_slo, sole_owner
    from traces.strict.tell import tell_note

    shard = None if options.shard is None else parse_shard(options.shard)
    if shard is not None and (options.report or options.answer.as_json or options.answer.markdown):
        raise ConfigError(
            "--shard: cannot be combined with a report, --json or --markdown: a share has no front"
        )
    output = options.output or shard_table(options.grid, shard)
    if output.suffix != ".parquet":
        raise ConfigError(f"--output: got {output}, expected a name that ends in .parquet")
    asked = read_grid(options.grid)
    if shard is not None:
        whole, asked = len(asked.runs), replace(asked, runs=in_shard(asked.runs, shard))
        if not asked.runs:
            tell(f"share {shard[0]} of {shard[1]} has no run: the grid has {whole:,}. Nothing is written")
            return
    for slo in dict.fromkeys(run.slo for run in asked.runs if run.slo):
        parse_slo(slo, tell=tell_note)
    for source in sorted({each.source for each in list_prices().values()}) if asked.has_list_prices else ():
        tell(f"note: prices: USD per GPU and hour on demand, {source}")
    for note in (*doubts_of_configs(asked.runs), *notes_of_files(asked.runs)):
        tell_note(note)
    if not options.dry_run:
        check_place(output, option="--output")
        check_place(options.report, option="--report")
    with nullcontext() if options.dry_run else sole_owner(output):
        _run(asked, output, options)


def _run(asked: Grid, output: Path, options: SweepOptions) -> None:
    """Simulate what is not in the table yet, and show the whole."""
    from replay.sweeps.front import figures_looked_for
    from replay.sweeps.one_run import check_any_starts
    from replay.sweeps.shards import tables_of
    from replay.sweeps.sweep_table import known_rows, write_table
    from traces.strict.tell import tell_note

    rows: dict[str, Row] = {}
    for table in (*tables_of(options.merge or ()), output):
        known = known_rows(table, asked.runs, option="--output" if table == output else "--merge")
        if told_damage := known.note():
            tell_note(told_damage)
        if table != output and not known.rows:
            tell_note(f"--merge {table}: no run of it is one of this grid's")
        rows.update(known.rows)
    left = [run for run in asked.runs if run.digest not in rows]
    tell(f"{len(asked.runs):,} runs, {len(asked.runs) - len(left):,} of them done before")
    if options.dry_run:
        return
    check_any_starts(left)
    jobs = options.jobs or os.cpu_count() or 1
    told = _told(left, backend=options.backend, jobs=jobs, address=options.address)
    with _kill_as_interrupt(), _saying_what_is_kept(rows, of=len(asked.runs)), closing(told):
        for row in figures_looked_for(
            told, left, x=options.x, y=options.y
        ):  # interrupts come between rows, too
            _keep(output, row)
            rows[str(row["run"])] = row
    frame = write_table(output, asked.runs, rows)
    tell(f"wrote {output}")
    if options.shard is None:
        _show(frame, asked, options)
    else:
        tell(f"the front comes with --merge '{options.grid.stem}.shard-*.parquet', once all shares are done")
    failed = frame[frame["error"].notna()]
    if len(failed):
        tell(f"{len(failed):,} runs without a result; the first: {failed['error'].iloc[0]}")
        raise typer.Exit(ExitCode.NEGATIVE)


@contextmanager
def _kill_as_interrupt() -> Iterator[None]:
    """Take a plain kill (SIGTERM) for Ctrl-C while this lasts: the exit code is 130, and workers end too."""
    if threading.current_thread() is not threading.main_thread():  # only there Python takes signals
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _saying_what_is_kept(rows: Mapping[str, Row], *, of: int) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        tell(f"interrupted: {len(rows):,} of {of:,} runs are kept; the same command goes on")
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _keep(output: Path, row: Row) -> None:
    from replay.sweeps.sweep_table import keep

    keep(output, row)


def _told(
    runs: Sequence[SweepRun], *, backend: Literal["processes", "dask", "ray"], jobs: int, address: str | None
) -> Generator[Row, None, None]:
    """Yield the rows as they come, with a bar in a terminal and now and then a line elsewhere."""
    import time

    from replay.console.ready import load_engine
    from replay.sweeps.backends import rows_of

    if not runs:
        return
    load_engine()  # once, before several processes would compile it side by side
    rows = rows_of(runs, backend=backend, jobs=jobs, address=address)
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        parts = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*parts, console=Console(stderr=True), transient=True) as progress:
            yield from progress.track(rows, total=len(runs))
        return
    told = time.monotonic()
    for number, row in enumerate(rows, start=1):
        yield row
        if time.monotonic() - told > EVERY_S:
            told = time.monotonic()
            tell(f"{number:,} of {len(runs):,} runs")


def _show(table: pd.DataFrame, asked: Grid, options: SweepOptions) -> None:
    """Print the front, and write its page where one is asked for."""
    from replay.sweeps.question import front_of_runs
    from replay.sweeps.show import front_parts, write_page

    if bool(table["error"].notna().all()):
        return
    found = front_of_runs(asked.runs, table, x=options.x, y=options.y)
    say_answer(found.document, lambda: front_parts(found.front), options.answer)
    if options.report is not None:
        command = redact_command(["vtwin", *sys.argv[1:]], os.environ)
        num_failed = int(table["error"].notna().sum())
        write_page(options.report, found.front, num_runs=len(table), num_failed=num_failed, command=command)
        tell(f"wrote {options.report}")
