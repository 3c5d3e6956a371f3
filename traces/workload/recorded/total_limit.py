"""A limit on prompt and answer together: longer requests are cut, and how many is a note in the trace's header.

The prompt is cut and the answer stays, so that a model's context holds both; where the answer alone fills the limit, it
keeps all but one token of it. A round of a session whose prompts grow is not cut, since the next one repeats it: the
session ends before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.errors import ConfigError
from traces.header import Source
from traces.metrics import own_prompt_tokens, prompt_tokens, served_output
from traces.tables.session_tree import has_tree
from traces.trace import Trace, select_rows
from traces.workload.recorded.scaling import clip_lengths

OPTION: Final = "--total-tokens-max"
"""Names the limit in the note."""


def with_total_limit(trace: Trace, most: int | None) -> Trace:
    """Return a trace whose requests have at most this many tokens, prompt and answer together; None: any number.

    Raises ConfigError for sessions that branch, and where no request is left.
    """
    if most is None:
        return trace
    if has_tree(trace.table):
        raise ConfigError(f"{OPTION}: got sessions that branch, expected requests, or sessions of one line")
    prompt = np.maximum(prompt_tokens(trace), own_prompt_tokens(trace))
    output = served_output(trace).filled(0)
    too_long = prompt + output > most
    ended = _from_there_on(trace, too_long & _grows(trace))
    kept_output = np.minimum(output, most - 1)
    kept_prompt = np.where(too_long, np.minimum(prompt, most - kept_output), prompt)
    room = np.where(too_long, most - kept_prompt, np.iinfo(np.int64).max)
    cut = too_long & ~ended
    limited = clip_lengths(trace, prompt=kept_prompt, output=room) if cut.any() else trace
    if ended.all():
        raise ConfigError(f"{OPTION}: got {most:,}, which no session's first request fits into")
    if ended.any():
        limited = select_rows(limited, ~ended)
    return _noted(limited, limit_text(len(trace), int(cut.sum()), int(ended.sum()), most))


def limit_text(of: int, num_cut: int, num_left_out: int, most: int) -> str:
    """Return how many requests a limit has cut or left out, in a sentence without its end."""
    cut = f"{num_cut:,} of {of:,} requests cut to {most:,} tokens, prompt and answer together ({OPTION})"
    gone = f"; {num_left_out:,} left out, with which sessions would grow beyond" if num_left_out else ""
    return cut + gone


def limit_note(trace: Trace) -> str | None:
    """Return how many of a workload's requests a limit has cut; None where there was no limit."""
    source = trace.header.source
    return None if source is None else next((each for each in source.notes if OPTION in each), None)


def _grows(trace: Trace) -> NDArray[np.bool_]:
    """Return which requests are rounds of sessions whose prompts hold the rounds before."""
    is_round = trace.cells("session_id").is_known
    grows = trace.header.session_context_growth == "accumulate" or "new_input_tokens" in trace.table
    return is_round if grows else np.zeros(len(trace), np.bool_)


def _from_there_on(trace: Trace, ends: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return these rounds, and all later ones of their sessions."""
    if not ends.any():
        return ends
    session, names = trace.cells("session_id").codes()
    place = trace.cells("round_index").values
    first = np.full(len(names) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, session[ends], place[ends])
    found: NDArray[np.bool_] = trace.cells("session_id").is_known & (place >= first[session])
    return found


def _noted(trace: Trace, note: str) -> Trace:
    source = trace.header.source or Source(format="tracev2", file="")
    return trace.with_header(source=replace(source, notes=(*source.notes, note)))
