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
    from traces import RunLimit, Trace
    from traces.console.options import AnswerForm


@with_code_option
@with_option_tables
@refusing(*NOT_FOR_A_SEARCH)
def tune(workload: WorkloadOptions, asked: TuneOptions) -> None:
    """Find the engine flags that serve the highest rate within latency limits.

    Every combination of the values is simulated with the same 5,000 requests, the best few with 150,000. Where queues
    take longer to grow there are more; or as many as --num-requests says. Exit code 1 if no combination meets the
    limits.
    """
    from replay.capacity.question import drawn
    from replay.console.ready import prepare_engine
    from replay.search.workload_draws import searchable, tell_too_long
    from replay.tuning.question import asked_of, notes_after, notes_before
    from traces import check_place, parse_run_slo, reading_notes
    from traces.strict.tell import tell_note

    check_output(workload, asked.live.output)
    limits = parse_run_slo(asked.twin.slo, tell=tell_note)
    searchable(workload)  # refuses what cannot be searched, before files are read
    live = None if asked.live.serve is None else _live(asked.live.serve, asked.live)
    if live is not None:
        check_place(live.folder / "best", option="--output")
    candidates, border = _read(asked)
    before = notes_before(candidates.tried[0].twin)
    for note in before:
        tell(f"note: {note}")
    traces, drawing = drawn(workload, seeds=asked.tried.seeds)
    for note in reading_notes(traces[0]):
        tell_note(note)
    tell_too_long(traces[0], [each.twin for each in candidates.tried])
    prepare_engine(candidates.tried[0].twin, trace=traces[0])
    tuned = _searched(traces, candidates, limits, keep=asked.tried.top, drawing=drawing, border=border)
    if workload.num_requests is not None:
        _check_is_long(tuned, len(traces[0]))
    after = notes_after(tuned, traces[0])
    for note in after:
        tell(f"note: {note}")
    tuned = asked_of(tuned, candidates, border, limits, warnings=(*before, *reading_notes(traces[0]), *after))
    confirmed = (
        {} if live is None else _confirmed(tuned, traces[0], limits, live=live, number=asked.live.confirm)
    )
    _show(tuned, limits, confirmed, traces[0], how=asked.result.answer)
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
    limits: Sequence[RunLimit],
    confirmed: dict[int, Confirmation],
    trace: Trace,
    *,
    how: AnswerForm,
) -> None:
    """Print the outcome on stdout."""
    from replay.search.workload_draws import lengths_text
    from replay.tuning.text import tuning_document, tuning_parts
    from traces.facts import TermRows, say_answer

    own, ranked, asked = tuned.own[1], tuned.num_ranked_with, tuned.asked
    assert asked is not None  # noqa: S101 - asked_of has told it
    draws = f"{own.num_seeds} seeds of {own.num_requests:,}" if own.is_by_seeds else f"{own.num_requests:,}"
    requests = [
        ("requests", lengths_text(trace)),
        ("", f"{ranked:,} to rank all servers by; {draws} to measure the server as it is and the best few"),
    ]
    say_answer(
        lambda: tuning_document(tuned, confirmed),
        lambda: [
            *tuning_parts(tuned, asked.candidates, limits, confirmed=confirmed),
            TermRows(requests),
        ],
        how,
    )
