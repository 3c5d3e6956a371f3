"""Requests in, outcomes out: the columns that cross the engine's door."""

from __future__ import annotations

from enum import IntEnum
from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


class Status(IntEnum):
    """The outcome of a request.

    ``UNFINISHED``: the engine still holds it, or the run ended before it came. ``TIMEOUT``: its last token was not seen
    by its deadline. ``STUCK``: the run is over and it could never be computed, or, in a
    closed loop, never came to arrive.
    """

    UNFINISHED = 0
    OK = 1
    REJECTED = 2
    STUCK = 3
    ABORTED = 4
    TIMEOUT = 5


UNKNOWN_LIMIT = 1 << 30
"""``max_tokens`` of a request that ended by itself and whose limit is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """The images of n prompts, int64: request r's are ``starts[r]`` and the ``counts[r] - 1`` behind it, by position.

    ``position``: of an image's first token in the prompt, prefix included. ``num_tokens``: at least 1; images of one
    prompt do not overlap. ``content``: dense integers 0..C-1; equal means the same image, of as many tokens.
    """

    starts: Int64s
    counts: Int64s
    position: Int64s
    num_tokens: Int64s
    content: Int64s

    def take(self, rows: Int64s) -> Images:
        """Return those of some requests; each time that one is taken its images are others, of the same content."""
        starts, counts = self.starts[rows], self.counts[rows]
        ends = np.cumsum(counts)
        places = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - ends + counts, counts)
        return Images(
            starts=ends - counts,
            counts=counts,
            position=self.position[places],
            num_tokens=self.num_tokens[places],
            content=self.content[places],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """n requests as columns of int64, in the caller's order (ties in time go to the lower row).

    ``arrival_us``: when the request reaches the server; need not be sorted.
    ``prompt_tokens``: prefix included. ``output_tokens``: how many it will generate.
    ``priority``: lower is more urgent, read only by ``scheduling_policy: priority``.
    ``hash_ids``: the content of request r's leading full KV blocks as dense integers 0..H-1,
    ``hash_ids[hash_offsets[r] : hash_offsets[r + 1]]``; equal ids mean equal tokens up to that block's end.
    They may run on past the prompt into its outputs. Blocks past the last id are the request's alone. Where an engine
    hashes tokens behind a block, too (``EngineConfig.num_hash_lookahead_tokens``), up to the end of those.
    ``hash_counts``: given, r's ids are so many from ``hash_offsets[r]`` on (n values then): prompts that begin
    alike, as the rounds of a session do, may name the same place, and their ids are kept once.
    ``deadline_us``: when its client gives up unless it has seen its last token, -1 never; None: no client does. In a
    closed loop a request that a completion releases has as long from its arrival as from ``arrival_us`` here; under a
    cap the time stays.
    ``max_tokens``: how many it may generate, ``UNKNOWN_LIMIT`` and more if that is not known; None: each exactly as
    many as it will. One that may generate more than it does ends by itself, at an EOS token, which an async scheduler
    sees one step too late. The front end refuses by it where it is known.
    ``kv_number``, ``goes_on_from``: a dense number of each request that others go on from, -1 of the rest; and the
    number of the request that this one goes on from, -1 none. Read only with ``session_kv_ttl_us``.
    ``is_guided``: the answer is held to a grammar. ``encoder_tokens``: the prompt's tokens that an encoder makes.
    ``images``: those of them whose places are known, which the scheduler encodes one by one.
    ``adapter``: LoRA adapters as dense integers 0..A-1, -1 none. All three cost time only where the engine's settings
    say so; None: no request has any.
    """

    arrival_us: Int64s
    prompt_tokens: Int64s
    output_tokens: Int64s
    priority: Int64s
    hash_offsets: Int64s
    hash_ids: Int64s
    hash_counts: Int64s | None = None
    deadline_us: Int64s | None = None
    max_tokens: Int64s | None = None
    is_guided: NDArray[np.bool_] | None = None
    encoder_tokens: Int64s | None = None
    images: Images | None = None
    adapter: Int64s | None = None
    kv_number: Int64s | None = None
    goes_on_from: Int64s | None = None

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.arrival_us)

    @property
    def hash_starts(self) -> Int64s:
        """Where in ``hash_ids`` each request's ids begin."""
        return self.hash_offsets[: len(self)]

    @property
    def num_hashes(self) -> Int64s:
        """How many ids each request has."""
        return np.diff(self.hash_offsets) if self.hash_counts is None else self.hash_counts

    def take(self, rows: Int64s) -> Requests:
        """Return some of the requests, in the order of ``rows``; they share the ids."""
        return Requests(
            arrival_us=self.arrival_us[rows],
            prompt_tokens=self.prompt_tokens[rows],
            output_tokens=self.output_tokens[rows],
            priority=self.priority[rows],
            hash_offsets=self.hash_starts[rows],
            hash_ids=self.hash_ids,
            hash_counts=self.num_hashes[rows],
            deadline_us=None if self.deadline_us is None else self.deadline_us[rows],
            max_tokens=None if self.max_tokens is None else self.max_tokens[rows],
            is_guided=None if self.is_guided is None else self.is_guided[rows],
            encoder_tokens=None if self.encoder_tokens is None else self.encoder_tokens[rows],
            images=None if self.images is None else self.images.take(rows),
            adapter=None if self.adapter is None else self.adapter[rows],
            kv_number=None if self.kv_number is None else self.kv_number[rows],
            goes_on_from=None if self.goes_on_from is None else self.goes_on_from[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """The outcomes of n requests, as columns in the order of the requests; times in µs, -1 where it never happened.

    ``arrival_us``: as given, or in a closed loop as it came about. ``queued_us``: joined the engine's queue (arrival +
    alpha). ``taken_in_us``: when the engine found it there, between two steps, which is where vLLM's own queue time
    begins (its QUEUED event: vllm 0.32.0 v1/core/sched/scheduler.py:add_request, called between steps; so from 0.12 to
    0.32); of a request with a grammar, too: the grammar compiles after that; -1 of one that was never
    scheduled. ``scheduled_us``: start of the step that first scheduled it. ``first_token_us``, ``last_token_us``: as
    the client sees them, alpha2 included. ``num_output_tokens``: generated. ``preempted_us``: time from being
    preempted to being scheduled again, summed. ``num_cached_tokens``: prefix-cache hit when first scheduled.
    ``num_loaded_tokens``: of those, tokens that native offloading loaded from host memory, and ``load_wait_us``: how
    long the request waited for loads, summed; -1 where there is none.
    """

    status: NDArray[np.int8]
    arrival_us: Int64s
    queued_us: Int64s
    taken_in_us: Int64s
    scheduled_us: Int64s
    first_token_us: Int64s
    last_token_us: Int64s
    num_output_tokens: Int64s
    num_preemptions: Int64s
    preempted_us: Int64s
    num_cached_tokens: Int64s
    num_loaded_tokens: Int64s
    load_wait_us: Int64s
