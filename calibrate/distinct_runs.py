"""Whether the traces of a call are different runs, which is checked before a fit, and the name of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from traces import ConfigError, stem_of
from traces.strict.escape import terminal

if TYPE_CHECKING:
    from calibrate.findings import NamedTrace
    from traces import Trace

TOLD = ("request_id", "arrival_time_us", "send_time_us", "last_chunk_time_us", "last_token_time_us")
"""Columns that two different runs do not share to the microsecond."""


FEWEST_ALIKE = 10
"""This many equal prompts in a row cannot be chance."""


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """Return each trace's name: its stem's, with the folders that differ if several have the same.

    One line of printable characters for any file name.
    """
    stems = [stem_of(path.absolute()) for path in paths]
    alike = ([other for other in stems if other.name == stem.name] for stem in stems)
    return [terminal(_distinct_name(*each)) for each in zip(stems, alike, strict=True)]


def _distinct_name(stem: Path, alike: Sequence[Path]) -> str:
    """Return the name of one of several stems that end alike."""
    folders = [other.parent.parts[::-1] for other in alike]
    own = stem.parent.parts[::-1]
    differing = [
        part
        for depth, part in enumerate(own)
        if len({parts[depth] if depth < len(parts) else None for parts in folders}) > 1
    ]
    return "/".join([*differing[::-1], stem.name])


def check_distinct(
    observed: Sequence[NamedTrace], *, holdout: Sequence[NamedTrace] = (), repeats: Sequence[NamedTrace] = ()
) -> None:
    """Raise ConfigError if one run is given twice, also under another name."""
    seen: list[tuple[str, NamedTrace]] = []
    for option, sources in (("OBSERVED", observed), ("--holdout", holdout), ("--repeat", repeats)):
        for source in sources:
            for place, other in seen:
                if is_same_run(source, other):
                    raise ConfigError(
                        f"{option}: got {source.name}, which is the same run as {place} {other.name}, expected another "
                        "run: a fit cannot be tested on a run that it has seen, and a run does not repeat itself"
                    )
            seen.append((option, source))


def is_same_run(one: NamedTrace, other: NamedTrace) -> bool:
    """Return whether two sources hold one run: the same file's content, the same start, or the same times."""
    if one.digest is not None and one.digest == other.digest:
        return True
    return _same_times(one.trace, other.trace)


def _same_times(one: Trace, other: Trace) -> bool:
    if len(one) != len(other):
        return False
    starts = (one.header.start_unix_us, other.header.start_unix_us)
    if starts[0] is not None and starts[0] == starts[1]:
        return bool(one.column("request_id").equals(other.column("request_id")))
    return all(one.column(name).equals(other.column(name)) for name in TOLD)


def has_lengths_of(one: Trace, other: Trace) -> bool:
    """Return whether the shorter of two traces has the prompts and answers of the other, in the same order.

    False if all of them are equal: then every run has the same.
    """
    n = min(len(one), len(other))
    columns = ("server_input_tokens", "input_tokens", "max_tokens")
    known = [name for name in columns if one.column(name).notna().any() and other.column(name).notna().any()]
    return (
        n >= FEWEST_ALIKE
        and any(one.column(name)[:n].nunique() > 1 for name in known)
        and all(
            one.column(name)[:n].reset_index(drop=True).equals(other.column(name)[:n].reset_index(drop=True))
            for name in known
        )
    )
