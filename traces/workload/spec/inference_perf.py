"""``inference_perf`` of a specification: stages of rates, and users who share system prompts, as clients.

It is expanded as in BLIS: a single stage sends an exact number of requests, with Poisson's gaps scaled so that each
user's last one is due at the stage's end; several stages are Poisson. With chat, each user has one session per stage
whose rounds come a think time of users / rate after each answer, prompts not growing.
"""

from __future__ import annotations

import math
from lazy_dataclasses import dataclass
from typing import Any, Final

from traces.workload.basics import InvalidWorkload, require
from traces.workload.lengths import Constant, Separate
from traces.workload.model import ONE_ROUND, ActiveWindow, Arrival, Client, OpenLoop, Rounds
from traces.workload.spec.fields import (
    Section,
    boolean,
    integer,
    key,
    list_of,
    not_negative,
    number,
    read_section,
)

MAX_USERS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A rate of requests, and for how long."""

    rate_per_s: float
    span_us: int

    @property
    def num_requests(self) -> int:
        """How many requests the stage has in all."""
        return int(self.rate_per_s * self.span_us / 1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expanded:
    """The clients, their load and when it ends."""

    clients: tuple[Client, ...]
    load: OpenLoop
    num_requests: int | None
    duration_us: int | None


def _stage(value: object) -> Stage:
    given = read_section(value, STAGE)
    rate, seconds = given["rate"], given["duration"]
    require(0 < rate < math.inf, f"rate: got {rate:g}, expected requests per second > 0")
    require(seconds >= 1, f"duration: got {seconds}, expected seconds >= 1")
    stage = Stage(rate_per_s=rate, span_us=seconds * 1_000_000)
    require(stage.num_requests >= 1, f"rate: got {rate:g} for {seconds} s, expected at least one request")
    return stage


def _users(value: object) -> dict[str, Any]:
    given = read_section(value, SHARED_PREFIX)
    for name in ("num_unique_system_prompts", "num_users_per_system_prompt"):
        require(given[name] >= 1, f"{name}: got {given[name]}, expected an integer >= 1")
    users = given["num_unique_system_prompts"] * given["num_users_per_system_prompt"]
    require(
        users <= MAX_USERS, f"num_users_per_system_prompt: got {users} users, expected at most {MAX_USERS}"
    )
    return given


STAGE: Final[Section] = {
    "rate": key(number, "requests/s", "Of all users together.", required=True),
    "duration": key(integer, "s", "How long it lasts.", required=True),
}

SHARED_PREFIX: Final[Section] = {
    "num_unique_system_prompts": key(integer, "integer >= 1", "Prefix groups.", required=True),
    "num_users_per_system_prompt": key(integer, "integer >= 1", "Clients of each.", required=True),
    "system_prompt_len": key(not_negative, "tokens", "The shared prefix.", required=True),
    "question_len": key(not_negative, "tokens", "The prompt's own part; 0 is taken for 1.", required=True),
    "output_len": key(not_negative, "tokens", "The answer; 0 is taken for 1.", required=True),
    "enable_multi_turn_chat": key(
        boolean, "true / false", "Whether a user's requests are one session. Default false."
    ),
}

INFERENCE_PERF: Final[Section] = {
    "stages": key(list_of(_stage), "list", "Rates one after another: rate and duration each.", required=True),
    "shared_prefix": key(_users, "mapping", "The users, their prompts and answers.", required=True),
}


def read_inference_perf(value: object) -> Expanded:
    """Return the clients that the section describes. Raises InvalidWorkload."""
    given = read_section(value, INFERENCE_PERF)
    stages: tuple[Stage, ...] = given["stages"]
    users: dict[str, Any] = given["shared_prefix"]
    if not stages:
        raise InvalidWorkload("stages: got none, expected at least one")
    if len(stages) == 1:
        stage = stages[0]
        clients = _of_stage(stage, users, start_us=None, prefix="")
        alone = None if users.get("enable_multi_turn_chat") else stage.span_us
        return Expanded(
            clients=clients,
            load=OpenLoop(rate_per_s=stage.rate_per_s),
            num_requests=stage.num_requests,
            duration_us=alone,
        )
    start_us = 0
    several: list[Client] = []
    for place, stage in enumerate(stages):
        several += _of_stage(stage, users, start_us=start_us, prefix=f"stage-{place}-")
        start_us += stage.span_us
    return Expanded(
        clients=tuple(several), load=OpenLoop(rate_per_s=None), num_requests=None, duration_us=start_us
    )


def _of_stage(
    stage: Stage, users: dict[str, Any], *, start_us: int | None, prefix: str
) -> tuple[Client, ...]:
    """Return the users who send in a stage; ``start_us`` None: it is the only one."""
    groups, each = users["num_unique_system_prompts"], users["num_users_per_system_prompt"]
    number = groups * each
    base, more = divmod(stage.num_requests, number)
    chat = users.get("enable_multi_turn_chat", False)
    clients = []
    for place in range(number):
        group, user = divmod(place, each)
        count = base + (place < more)
        if count == 0:
            continue
        windows: tuple[ActiveWindow, ...] = ()
        if start_us is not None:
            end_us = start_us + stage.span_us
            windows = (
                ActiveWindow(start_us=start_us, end_us=end_us, trace_rate_per_s=stage.rate_per_s / number),
            )
        exact = start_us is None and not chat
        clients.append(
            Client(
                id=f"{prefix}prompt-{group}-user-{user}",
                tenant_id=f"prompt-{group}",
                slo_class="standard",
                lengths=Separate(
                    prompt=Constant(value=max(users["question_len"], 1)),
                    output=Constant(value=max(users["output_len"], 1)),
                ),
                arrival=Arrival(exactly=(count, stage.span_us) if exact else None),
                prefix_group=f"prompt-{group}",
                prefix_length=users["system_prompt_len"],
                windows=windows,
                rounds=_rounds(count, think_time_us=int(number / stage.rate_per_s * 1e6))
                if chat
                else ONE_ROUND,
            )
        )
    return tuple(clients)


def _rounds(count: int, *, think_time_us: int) -> Rounds:
    return Rounds(number=count, think_time_us=think_time_us, accumulate=False, once=True)
