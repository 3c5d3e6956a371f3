"""Named lists of loads: a sweep over rates or users, and the runs that a fit of a twin needs.

All of it is decided before anything is sent, except the server's own pace, which affects only the estimate of the time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from traces import ClosedLoop, ConfigError, Header, make_trace, prompt_tokens
from traces.workload import as_sent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traces import Trace
    from traces.workload import WorkloadOptions

    Lengths = Sequence[int] | NDArray[np.int64]

_LOW, _MIDDLE = 1 / 3, 2 / 3
"""The lower loads of a calibration, as shares of the highest."""

_SINGLE_LENGTHS, _SINGLE_ROUNDS, _SINGLE_OUTPUT = 10, 2, 16
"""One request after another: number of prompt lengths, evenly by ratio, repeats of each, tokens of an answer."""
_SHORT_PROMPT, _SHORT_OUTPUT = 16, 4
_SPREAD = (0.6, 1.4)
"""Shortest and longest of a probe's lengths, by their middle: users with equal lengths would move in step, so that all
would wait for one another's prompts, and TTFT would hang on who comes first in a step."""
_GOLDEN = (5**0.5 - 1) / 2
_PREFILL_USERS, _PREFILL_REQUESTS = 4, 32
_DECODE_USERS, _DECODE_REQUESTS, _LEAST_DECODE = 16, 48, 128
"""The last: the least answer length, so that steps without any prompt are most of the load."""
_MOST_AT_ONCE = 200
"""More would only make the queue longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedLoad:
    """One run of a list: its name, which is its trace's, what is sent, and why; ``rate_per_s``: of a swept rate."""

    name: str
    requests: Trace
    purpose: str
    rate_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdlePace:
    """What one request takes on an idle server, in µs: a constant, and per token of prompt and output."""

    constant_us: float
    prompt_us: float
    output_us: float

    def alone_us(self, requests: Trace) -> NDArray[np.float64]:
        """Return how long each request would take alone."""
        output = requests.column("output_tokens").to_numpy(dtype=np.float64)
        return self.constant_us + self.prompt_us * prompt_tokens(requests) + self.output_us * output


def sweep_loads(options: WorkloadOptions, text: str) -> list[ListedLoad]:
    """Return one load per value of the sweep, of the same lengths. Raises ConfigError."""
    from traces.workload import sweep_options

    return [
        ListedLoad(
            name=f"{what}-{value:g}",
            requests=_requests(variant),
            purpose=f"{what} {value:g}",
            rate_per_s=variant.rate,
        )
        for what, value, variant in sweep_options(options, text)
    ]


def single_load(options: WorkloadOptions) -> ListedLoad:
    """Return the one load of the options, without a name. Raises ConfigError."""
    requests = _requests(options)
    return ListedLoad(name="", requests=requests, purpose=f"{len(requests):,} requests")


def calibration_loads(options: WorkloadOptions, *, max_model_len: int | None) -> list[ListedLoad]:
    """Return the loads that a fit needs, for the mix and the highest rate of ``options``.

    Raises ConfigError if they have no rate.
    """
    rate = options.rate
    if rate is None or not math.isfinite(rate):
        raise ConfigError("--plan calibrate: needs --rate R, the highest rate of interest")
    mix = {share: _requests(replace(options, rate=rate * share)) for share in (_LOW, _MIDDLE, 1.0)}
    typical = mix[1.0]
    longest = _most(prompt_tokens(typical).max(), max_model_len, room=_SINGLE_OUTPUT)
    heavy = _most(np.quantile(prompt_tokens(typical), 0.9), max_model_len, room=_SHORT_OUTPUT)
    outputs = typical.column("output_tokens").to_numpy(dtype=np.int64)
    talk = _most(max(float(np.quantile(outputs, 0.9)), _LEAST_DECODE), max_model_len, room=_SHORT_PROMPT)
    lengths = np.unique(np.geomspace(min(_SHORT_PROMPT, longest), longest, _SINGLE_LENGTHS).round())
    singles = np.tile(lengths.astype(np.int64), _SINGLE_ROUNDS)
    all_at_once = _requests(
        replace(options, rate=math.inf, duration=None, num_requests=min(len(typical), _MOST_AT_ONCE))
    )
    alone = [_SINGLE_OUTPUT] * len(singles)
    room = round(_SHORT_OUTPUT * _SPREAD[1])
    return [
        ListedLoad(
            name="singles", requests=_users(1, singles, alone), purpose="an idle server, by prompt length"
        ),
        ListedLoad(
            name="prefill-heavy",
            requests=_users(
                _PREFILL_USERS,
                _spread(heavy, _PREFILL_REQUESTS, most=_at_most(math.inf, max_model_len, room=room)),
                _spread(_SHORT_OUTPUT, _PREFILL_REQUESTS, begin=0.5),
            ),
            purpose="long prompts, short answers",
        ),
        ListedLoad(
            name="decode-heavy",
            requests=_users(
                _DECODE_USERS,
                [_SHORT_PROMPT] * _DECODE_REQUESTS,
                _spread(talk, _DECODE_REQUESTS, most=_at_most(math.inf, max_model_len, room=_SHORT_PROMPT)),
            ),
            purpose="short prompts, long answers",
        ),
        ListedLoad(name="low", requests=mix[_LOW], purpose=f"the mix at {rate * _LOW:.3g}/s"),
        ListedLoad(name="middle", requests=mix[_MIDDLE], purpose=f"the mix at {rate * _MIDDLE:.3g}/s"),
        ListedLoad(name="high", requests=mix[1.0], purpose=f"the mix at {rate:.3g}/s"),
        ListedLoad(name="saturated", requests=all_at_once, purpose="the mix, all at once"),
        ListedLoad(name="repeat", requests=mix[_MIDDLE], purpose="middle again, for the noise floor"),
    ]


def _requests(options: WorkloadOptions) -> Trace:
    """Return the requests of the options, with the lengths that they are sent with."""
    from traces.workload import trace_from_options

    return as_sent(trace_from_options(options))


def probing_load(loads: Sequence[ListedLoad]) -> Trace:
    """Return three requests, one after another, which show the server's pace when idle."""
    prompts = np.concatenate([prompt_tokens(load.requests) for load in loads])
    typical, long = int(np.median(prompts)), int(prompts.max())
    return _users(1, [typical, typical, typical, long], [1, 1, 17, 1])


def pace_of_probe(e2e_us: Sequence[float], probe: Trace) -> IdlePace:
    """Return the pace by the probe's latencies, without the first request, which met a cold server."""
    prompts = prompt_tokens(probe)
    _, short, talk, long = e2e_us
    per_output = max(talk - short, 0.0) / 16
    spread = float(prompts[3] - prompts[1])
    per_prompt = max(long - short, 0.0) / spread if spread else 0.0
    constant = max(short - per_output - per_prompt * float(prompts[1]), 0.0)
    return IdlePace(constant_us=constant, prompt_us=per_prompt, output_us=per_output)


def estimate_s(load: ListedLoad, pace: IdlePace, *, rate_per_s: float | None) -> float:
    """Return about how long a load takes, in s: its schedule, or the work of its users one after another.

    ``rate_per_s``: a rate that the server can serve, used for a load that is due at once.
    """
    requests, loop = load.requests, load.requests.header.closed_loop
    alone_us = pace.alone_us(requests)
    if loop is not None:
        return float(alone_us.sum()) / min(loop.concurrency, len(requests)) / 1e6
    last_us = float(requests.column("arrival_time_us").max() or 0)
    backlog_s = len(requests) / rate_per_s if rate_per_s and last_us == 0 else 0.0
    return last_us / 1e6 + max(backlog_s, float(np.quantile(alone_us, 0.9)) / 1e6)


def _spread(middle: int, number: int, *, most: float = math.inf, begin: float = 0.0) -> NDArray[np.int64]:
    """Return lengths about ``middle``, none above ``most``: evenly spread, and those of neighbours far apart.

    The fractional parts of multiples of the golden ratio, from ``begin`` on.
    """
    places = np.modf(begin + _GOLDEN * np.arange(1, number + 1))[0]
    low, high = _SPREAD
    lengths = np.round(middle * (low + (high - low) * places))
    return np.asarray(np.clip(lengths, 1, most), np.int64)


def _users(concurrency: int, prompts: Lengths, outputs: Lengths) -> Trace:
    number = len(prompts)
    first = min(concurrency, number)
    return make_trace(
        Header(
            mode="generated", tool="vtwin", closed_loop=ClosedLoop(concurrency=concurrency, is_probe=True)
        ),
        {
            "request_id": [str(row) for row in range(number)],
            "arrival_time_us": [0] * first + [None] * (number - first),
            "input_tokens": prompts,
            "output_tokens": outputs,
        },
    )


def _most(wanted: float, max_model_len: int | None, *, room: int) -> int:
    """Return ``wanted`` tokens, or as many as the model allows with ``room`` further tokens."""
    return int(max(_at_most(wanted, max_model_len, room=room), 1))


def _at_most(wanted: float, max_model_len: int | None, *, room: int) -> float:
    return wanted if max_model_len is None else min(wanted, max_model_len - room)
