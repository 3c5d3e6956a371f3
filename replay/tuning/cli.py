"""``vtwin tune``. What is heavy is imported by the command."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import typer

from replay.search.searched_rate import NOT_FOR_A_SEARCH
from replay.tuning.options import LiveOptions, TriedOptions, TuneOptions
from replay.twin.own.own_code import with_code_option
from traces import ExitCode
from traces.strict.option_table import refusing, with_option_tables
from traces.strict.tell import tell
from traces.workload import WorkloadOptions, check_output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.search.workload_draws import Drawing
    from replay.tuning.candidate_search import Tuned
    from replay.tuning.candidates import Border, Candidates
    from replay.tuning.live import Confirmation, Live
    from replay.twin.twin_config import TwinConfig
    from traces import RunLimit, Trace
    from traces.console.options import AnswerForm


ASSUMED = (
    "how many seats the server has is not known: the server as it is, and the gain, are those of an assumed "
    "max_num_seqs. Observe with --scrape, or give engine.max_num_seqs"
)


@with_code_option
@with_option_tables
@refusing(*NOT_FOR_A_SEARCH)
def tune(workload: WorkloadOptions, asked: TuneOptions) -> None:
    """Find the engine flags that serve the highest rate within latency limits.

    Every combination of the values is simulated with the same 5,000 requests, the best few with 150,000. Where queues
    take longer to grow there are more; or as many as --num-requests says. Exit code 1 if no combination meets the
    limits.
    """
    from dataclasses import replace

    from replay.capacity.question import drawn
    from replay.console.ready import prepare_engine
    from replay.search.workload_draws import searchable, tell_too_long
    from traces import check_place, parse_run_slo, reading_notes
    from traces.strict.tell import tell_note

    check_output(workload, asked.live.output)
    limits = parse_run_slo(asked.twin.slo, tell=tell_note)
    searchable(workload)  # refuses what cannot be searched, before files are read
    live = None if asked.live.serve is None else _live(asked.live.serve, asked.live)
    if live is not None:
        check_place(live.folder / "best", option="--output")
    candidates, border = _read(asked)
    notes = _notes_of(candidates.tried[0].twin)
    traces, drawing = drawn(workload, seeds=asked.tried.seeds)
    of_file = reading_notes(traces[0])
    for note in of_file:
        tell_note(note)
    notes = (*notes, *of_file)
    tell_too_long(traces[0], [each.twin for each in candidates.tried])
    prepare_engine(candidates.tried[0].twin, trace=traces[0])
    tuned = _searched(traces, candidates, limits, keep=asked.tried.top, drawing=drawing, border=border)
    candidates = replace(candidates, impossible=(*candidates.impossible, *border.impossible))
    if workload.num_requests is not None:
        _check_is_long(tuned, len(traces[0]))
    warnings = (*notes, *_extrapolated(tuned, traces[0]))
    confirmed = (
        {} if live is None else _confirmed(tuned, traces[0], limits, live=live, number=asked.live.confirm)
    )
    _show(tuned, candidates, limits, confirmed, traces[0], warnings=warnings, how=asked.result.answer)
    if not tuned.best or (confirmed and not any(each.meets(limits) for each in confirmed.values())):
        raise typer.Exit(ExitCode.NEGATIVE)


def _read(asked: TuneOptions) -> tuple[Candidates, Border]:
    """Return the servers to try, and what gives more of them. Raises ConfigError."""
    from replay.model.prices import read_server_prices
    from replay.tuning.candidates import Border, candidates_of

    path, defaults, anyway = asked.twin.config, asked.result.defaults, asked.result.anyway
    prices = None if asked.tried.prices is None else read_server_prices(asked.tried.prices)
    named, option = _tried(asked.tried), "--set"
    if not asked.tried.settings:
        option = next((name for name, _, values in _own_options(asked.tried) if values is not None), option)
    candidates = candidates_of(path, defaults, named, anyway=anyway, prices=prices, option=option)
    return candidates, Border(candidates, path, defaults, anyway=anyway, prices=prices)


def _notes_of(own: TwinConfig) -> tuple[str, ...]:
    """Return, after printing them, the notes on the file."""
    from replay.capacity.assumed_seats import are_seats_assumed

    notes = (*dict.fromkeys(own.notes), *((ASSUMED,) if are_seats_assumed(own) else ()))
    for note in notes:
        tell(f"note: {note}")
    return notes


def _tried(tried: TriedOptions) -> list[str]:
    """Return the values to try as texts KEY=VALUES."""
    named = [f"{key}={values}" for _, key, values in _own_options(tried) if values is not None]
    return named + (tried.settings or [])


def _own_options(tried: TriedOptions) -> tuple[tuple[str, str, str | None], ...]:
    """Return the settings that have an option of their own: its name, the key, and the values given."""
    from replay.tuning.candidates import CHUNKED, SEATS, TOKENS, TP

    return (
        ("--tp", TP, tried.tp),
        ("--max-num-seqs", SEATS, tried.max_num_seqs),
        ("--max-num-batched-tokens", TOKENS, tried.max_num_batched_tokens),
        ("--chunked-prefill", CHUNKED, tried.chunked_prefill),
    )


def _check_is_long(tuned: Tuned, num_requests: int) -> None:
    """Raise ConfigError where runs are too short to rank servers by them."""
    from traces import ConfigError

    if tuned.asks:
        raise ConfigError(
            f"--num-requests: got runs of {num_requests:,} requests, expected {tuned.asks:,}: they end before queues "
            "have grown, and would rank servers by chance"
        )


def _live(serve: str, asked: LiveOptions) -> Live:
    """Return the settings of live trials. Raises ConfigError on an empty command line."""
    from replay.tuning.live import Live
    from traces import ConfigError

    try:
        command = tuple(shlex.split(serve))
    except ValueError as error:
        raise ConfigError(f"--serve: got {serve!r}, expected a command line ({error})") from error
    if not command:
        raise ConfigError("--serve: got nothing, expected a command that starts a server")
    if not asked.url.startswith(("http://", "https://")):
        raise ConfigError(f"--url: got {asked.url!r}, expected http://HOST:PORT")
    return Live(
        url=asked.url.rstrip("/").removesuffix("/v1"),
        command=command,
        folder=asked.output,
        duration_s=asked.confirm_duration,
        start_timeout_s=asked.start_timeout,
    )


def _searched(
    traces: Sequence[Trace],
    candidates: Candidates,
    limits: Sequence[RunLimit],
    *,
    keep: int,
    drawing: Drawing | None,
    border: Border,
) -> Tuned:
    """Search, with the progress of each step."""
    from replay.console.progress import stepping
    from replay.tuning.candidate_search import search

    with stepping() as tell_step:
        tell(f"simulating {len(candidates.tried)} servers, then the best few at length")
        return search(
            traces, candidates.tried, limits, keep=keep, drawing=drawing, border=border, tell=tell_step
        )


def _extrapolated(tuned: Tuned, trace: Trace) -> list[str]:
    """Print and return a note if runs were short, or if a best server works beyond what the twin was fitted on."""
    from replay.capacity.capacity import short_run_note

    notes = []
    if tuned.asks and not any(each.is_too_short for _, each in tuned.best[:1]):
        notes.append(
            f"{len(trace):,} requests are too few to rank all servers by. --num-requests {tuned.asks} is better"
        )
    for _, capacity in tuned.best[:1]:
        short = short_run_note(capacity, capacity.num_requests)
        notes += [each for each in (short, tuned.beyond_fit) if each is not None]
    for note in notes:
        tell(f"note: {note}")
    return notes


def _confirmed(
    tuned: Tuned, trace: Trace, limits: Sequence[RunLimit], *, live: Live, number: int
) -> dict[int, Confirmation]:
    """Try the best few on the live server, one after the other."""
    from replay.tuning.flags import flags_of
    from replay.tuning.live import confirm

    chosen = [(place, *each) for place, each in enumerate(tuned.best[:number])]
    for _, candidate, _ in chosen:
        flags_of(candidate.settings)  # a setting without a flag is reported before a server is started
    return {
        place: confirm(
            candidate, trace, capacity.rate_per_s or 0.0, limits, live=live, name=f"best-{place + 1}"
        )
        for place, candidate, capacity in chosen
    }


def _show(
    tuned: Tuned,
    candidates: Candidates,
    limits: Sequence[RunLimit],
    confirmed: dict[int, Confirmation],
    trace: Trace,
    *,
    warnings: Sequence[str],
    how: AnswerForm,
) -> None:
    """Print the outcome on stdout."""
    from replay.search.workload_draws import lengths_text
    from replay.tuning.text import tuning_document, tuning_parts
    from traces.facts import TermRows, say_answer

    own, ranked = tuned.own[1], tuned.num_ranked_with
    draws = f"{own.num_seeds} seeds of {own.num_requests:,}" if own.is_by_seeds else f"{own.num_requests:,}"
    requests = [
        ("requests", lengths_text(trace)),
        ("", f"{ranked:,} to rank all servers by; {draws} to measure the server as it is and the best few"),
    ]
    say_answer(
        lambda: tuning_document(tuned, candidates, limits, confirmed=confirmed, warnings=warnings),
        lambda: [
            *tuning_parts(tuned, candidates, limits, confirmed=confirmed),
            TermRows(requests),
        ],
        how,
    )
