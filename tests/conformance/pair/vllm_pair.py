"""A prefill and a decode engine of vLLM's own schedulers on one clock that is only a number.

Runs under a Python that has vLLM. README.md has the conventions: when a transfer starts, when an engine hears of its
end, and what an engine does that has nothing to compute.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any

from vllm.config import KVTransferConfig
from vllm.v1.outputs import KVConnectorOutput

from tests.conformance.vllm_engine import Batch, VllmEngine, leads_nowhere, number_of

ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
PARAMETERS = {"prefill": {"do_remote_decode": True}, "decode": {"do_remote_prefill": True}}


def engine_settings(config: dict[str, Any], role: str) -> dict[str, Any]:
    """Return the settings of one side: those of both, and its own over them."""
    common = {
        key: value for key, value in config.items() if key not in ("prefill", "decode", "transfer", "note")
    }
    connector = KVTransferConfig(
        kv_connector="PullConnector",
        kv_connector_module_path="tests.conformance.pair.connector",
        kv_role=ROLES[role],
    )
    return {**common, **config.get(role, {}), "kv_transfer_config": connector}


@dataclass(slots=True)
class PairEngine(VllmEngine):
    """One side. ``coming``: (time, request) that will join; ``news``: (time, request) of transfers that have ended."""

    role: str = "prefill"
    clock_us: int = 0
    coming: list[tuple[int, int]] = field(default_factory=list)
    came_us: dict[int, int] = field(default_factory=dict)
    news: list[tuple[int, int, int]] = field(default_factory=list)
    in_flight: list[Batch] = field(default_factory=list)
    is_blocked: bool = False
    num_tokens_of: dict[int, int] = field(default_factory=dict)

    # -- requests --------------------------------------------------------------------------------------------

    def more_sampling_params(self) -> dict[str, Any]:
        return {"extra_args": {"kv_transfer_params": dict(PARAMETERS[self.role])}}

    def arrival_us(self, number: int) -> int:
        return self.came_us[number]

    def come(self, number: int, time_us: int) -> None:
        """Let a request join at ``time_us``."""
        heapq.heappush(self.coming, (time_us, number))

    def add_come(self) -> None:
        while self.coming and self.coming[0][0] <= self.clock_us:
            time_us, number = heapq.heappop(self.coming)
            self.came_us[number] = time_us
            self.add(number)
            self.num_added += 1
            self.is_blocked = False

    # -- time ------------------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        return bool(self.news) and self.news[0][0] <= self.clock_us

    def next_us(self) -> int | None:
        """Return when this engine next does anything, None if never."""
        if self.in_flight or (self.scheduler.has_unfinished_requests() and not self.is_blocked):
            return self.clock_us
        times = [entry[0][0] for entry in (self.coming, self.news) if entry]
        return max(self.clock_us, min(times)) if times else None

    def turn(self) -> list[tuple[int, int]]:
        """Go on at ``clock_us``; return (time, request) of everybody who finished."""
        self.add_come()
        if self.settings["async_scheduling"]:
            return self.turn_async()
        if not self.scheduler.has_unfinished_requests() and not self.has_news:
            return []
        batch = self.schedule(self.clock_us)
        self.clock_us += batch.line["dur"]
        self.update(batch, self.clock_us)
        self.is_blocked = leads_nowhere(batch, []) and not bears_news(batch)
        return [(self.clock_us, number) for number in batch.line["finished"]]

    def turn_async(self) -> list[tuple[int, int]]:
        if not self.in_flight and not self.scheduler.has_unfinished_requests() and not self.has_news:
            return []
        if self.scheduler.has_requests():
            batch = self.schedule(self.clock_us)
            under_way = [*self.in_flight, batch]
            if leads_nowhere(batch, self.in_flight) and not any(map(bears_news, under_way)):
                if batch.goes_in_circles:
                    self._launch(batch, self.clock_us)
                self.in_flight, self.is_blocked = [], True
                return [pair for useless in under_way for pair in self.take_in(useless)]
            self._launch(batch, self.clock_us)
            self.in_flight.append(batch)
            if len(self.in_flight) < 2 and (batch.has_tokens or self.scheduler.has_requests()):
                return []
        return self.take_in(self.in_flight.pop(0))

    def take_in(self, batch: Batch) -> list[tuple[int, int]]:
        self.clock_us = max(self.clock_us, batch.line.get("exec_end", self.clock_us))
        if bears_news(batch):
            self.is_blocked = False
        self.update(batch, self.clock_us)
        return [(self.clock_us, number) for number in batch.line["finished"]]

    # -- transfers -------------------------------------------------------------------------------------------

    def schedule(self, now_us: int) -> Batch:
        """Let the scheduler decide; the worker that launches the step reports what has ended by now."""
        batch = VllmEngine.schedule(self, now_us)
        del batch.line["failed"]  # not asked of a pair
        heard = []
        while self.news and self.news[0][0] <= now_us:
            heard.append(heapq.heappop(self.news)[2])
        pulls = self.scheduler.connector.pulls
        batch.line["pulls"] = [[number_of(identity), num_blocks] for identity, num_blocks in pulls]
        batch.line["sent" if self.role == "prefill" else "received"] = heard
        pulls.clear()
        return batch

    def more_results(self, _batch: Batch) -> dict[str, Any]:
        side = "sent" if self.role == "prefill" else "received"
        identities = [f"r{number:08d}" for number in _batch.line[side]]
        # lists, not sets: in the order in which the transfers ended
        key = "finished_sending" if self.role == "prefill" else "finished_recving"
        return {"kv_connector_output": KVConnectorOutput(**{key: identities})}


MOST_TURNS = 50_000
"""Of the two engines together. Five thousand were the most that a case of a hundred requests took."""


def bears_news(batch: Batch) -> bool:
    """Return whether a batch's results say of any transfer that it has ended."""
    return bool(batch.line.get("sent") or batch.line.get("received"))


class VllmPair:
    """Both engines and the transfers between them. ``run`` it once, then read ``engines`` and ``transfers``."""

    def __init__(
        self, config: dict[str, Any], rows: list[dict[str, Any]], *, with_blocks: bool = False
    ) -> None:
        self.transfer = config["transfer"]
        prompts = [{**row, "output_len": min(1, row["output_len"])} for row in rows]
        self.engines = {
            role: PairEngine(engine_settings(config, role), each, with_blocks, role=role)
            for role, each in (("prefill", prompts), ("decode", rows))
        }
        self.transfers: list[dict[str, int]] = []
        for number, row in enumerate(rows):
            self.engines["prefill"].come(number, int(row["arrival_us"]))

    def run(self, *, most_turns: int = MOST_TURNS) -> bool:
        """Let the engine go on whose next time is earliest, the prefill side first, until neither has one.

        False when they had not come to an end after so many turns: two engines may preempt each other's work for ever.
        """
        for _ in range(most_turns):
            times = [(engine.next_us(), i, engine) for i, engine in enumerate(self.engines.values())]
            known = [(time_us, i, engine) for time_us, i, engine in times if time_us is not None]
            if not known:
                return True
            time_us, _, engine = min(known, key=lambda each: each[:2])
            engine.clock_us = time_us
            num_lines = engine.num_scheduled_steps
            finished = engine.turn()
            if engine.role == "prefill":
                for ended_us, number in finished:
                    self.engines["decode"].come(number, ended_us)
            elif engine.num_scheduled_steps > num_lines:
                self.start_transfers(engine, num_lines)
        return False

    def start_transfers(self, engine: PairEngine, step: int) -> None:
        """Let the KV begin its way that was asked for when a step was scheduled."""
        lines = [batch.line for batch in engine.in_flight] + engine.steps
        line = next(line for line in lines if line["step"] == step)
        for number, num_blocks in line["pulls"]:
            ended_us = line["t"] + self.duration_us(num_blocks, engine.settings["block_size"])
            self.transfers.append(
                {"request": number, "blocks": num_blocks, "start_us": line["t"], "end_us": ended_us}
            )
            for side in self.engines.values():
                heapq.heappush(side.news, (ended_us, len(self.transfers), number))

    def duration_us(self, num_blocks: int, block_size: int) -> int:
        """Return how long a transfer takes that shares no link."""
        num_bytes = num_blocks * block_size * self.transfer["kv_bytes_per_token"]
        per_us = Fraction(str(self.transfer["kv_bandwidth_gbps"])) * 1000
        return int(self.transfer["kv_base_latency_us"]) + ceil(num_bytes / per_us)
