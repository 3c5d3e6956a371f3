"""Requests that do not fit the server's context, told before the load is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from traces import ServerInfo, Trace


def too_long_notes(
    trace: Trace, server: ServerInfo, *, limit_of: Sequence[int], num_inputs: int = 1
) -> tuple[str, ...]:
    """Return a line on prompts beyond the server's ``max_model_len``, and one on prompts that leave the answer no room.

    ``limit_of``: the output tokens that each request asks for; ``num_inputs``: of how many inputs it is. Lengths are
    the workload's own: a chat template's tokens come on top. Of later rounds of a session, whose prompts grow with the
    answers, only what is known counts.
    """
    from traces import prompt_tokens

    most = server.max_model_len
    if most is None or len(trace) == 0:
        return ()
    prompt, asked = prompt_tokens(trace) // num_inputs, np.array(limit_of, dtype=np.int64)
    beyond = prompt >= most
    cut = ~beyond & (prompt + asked > most)
    said: list[str] = []
    if beyond.any():
        said.append(
            f"{int(beyond.sum()):,} of {len(trace):,} prompts are longer than the server's max_model_len {most:,} "
            f"allows (up to {int(prompt[beyond].max()):,} tokens): it will refuse them"
        )
    if cut.any():
        said.append(
            f"{int(cut.sum()):,} of {len(trace):,} requests ask for more tokens than max_model_len {most:,} leaves "
            f"behind their prompt (up to {int((prompt + asked)[cut].max()):,} in all): the server will refuse them or "
            "cut their answers short"
        )
    return tuple(said)
