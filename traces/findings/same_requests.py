"""Whether two runs sent the same requests, so that one repeats the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traces.trace import Trace


def same_requests(one: Trace, other: Trace) -> bool:
    """Return whether two observations sent the same requests at the same times.

    Equal are ids, lengths of prompts and outputs asked for, and when each was due; in a closed loop, where the server
    decides on that, the users.
    """
    if len(one) != len(other) or one.header.closed_loop != other.header.closed_loop:
        return False
    names = ["request_id", "input_tokens", "prefix_length"]
    if one.header.closed_loop is None:
        names.append("arrival_time_us")
    planned = "max_tokens" if one.column("max_tokens").notna().all() else "output_tokens"
    return all(one.column(name).equals(other.column(name)) for name in [*names, planned])
