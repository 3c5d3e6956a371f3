"""A pool of GPUs, simulated at the level of seats: which requests wait, are preempted, and are served when.

Coarser than an engine's steps and finer than a formula. A request holds a seat of one GPU for the iterations of its
prompt and its answer, each as long as an iteration of the requests that are there when it starts.
"""

from __future__ import annotations

import heapq
from collections import deque
from lazy_dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sim.fleet.profile import GpuProfile
from sim.fleet.workload import Lengths

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRun:
    """The outcome of each request, float64 [n] seconds: when it started for the last time, its first token, its end.

    ``start_s`` NaN: it fits into no GPU. ``gpu``: which GPU had it; ``num_preemptions``: in all; ``most_slots`` and
    ``most_blocks``: taken at once on any GPU; ``busy_slot_s``: the sum over all seats of the time that they were taken.
    """

    arrival_s: Floats
    start_s: Floats
    first_token_s: Floats
    end_s: Floats
    gpu: NDArray[np.int64]
    num_preemptions: int
    most_slots: int
    most_blocks: int
    busy_slot_s: float

    @property
    def ttft_s(self) -> Floats:
        """From arrival to first token."""
        return np.asarray(self.first_token_s - self.arrival_s)


@dataclass(slots=True)
class _Gpu:
    """One GPU as it is now. ``running``: request to (blocks, total tokens, when it started)."""

    running: dict[int, tuple[int, float, float]] = field(default_factory=dict)
    waiting: deque[int] = field(default_factory=deque)
    blocks: int = 0
    tokens: float = 0.0


class SlotPool:
    """A pool while it is simulated: ``advance`` to a time, ``accept`` the request that comes then, ``result`` at last.

    A request goes to the GPU with the fewest requests, running and waiting together (the first of equals), and waits
    there, first come first served. Where blocks are missing, the longest running request is preempted if it is longer
    than the newcomer; it starts again from its beginning, at the head of the queue.

    ``lengths`` and ``arrival_s`` are of all requests there are; those that are never accepted leave no mark.
    """

    def __init__(
        self, profile: GpuProfile, lengths: Lengths, arrival_s: Floats, *, context: int, gpus: int
    ) -> None:
        self.profile, self.arrival_s = profile, arrival_s
        self.slots = profile.slots_for(lengths, context)
        self.total = lengths.total_tokens
        self.needed = profile.held.at_end(self.total)
        self.prefill = profile.prefill_iterations(lengths)
        self.iterations = profile.iterations(lengths)
        self.compute = profile.prefill_compute_s(lengths)
        self.outside = profile.frontend_delay_s(lengths)
        self.decoding_frac = profile.busy(lengths).decoding_frac
        self.between = profile.output_token_s * np.maximum(lengths.output_tokens - 1, 0)
        self.gpus = [_Gpu() for _ in range(gpus)]
        self.load = np.zeros(gpus, np.int64)
        self.events: list[tuple[float, int, int]] = []  # (when, request, which start of it)
        self.starts = np.zeros(len(lengths), np.int64)
        self.start_s, self.first_s, self.end_s = (np.full(len(lengths), np.nan) for _ in range(3))
        self.gpu = np.full(len(lengths), -1, np.int64)
        self.num_preemptions = self.most_slots = self.most_blocks = 0
        self.busy_slot_s = 0.0

    def pressure(self) -> float:
        """Return the requests there are per GPU, running and waiting."""
        return float(self.load.sum()) / len(self.gpus)

    def load_frac(self) -> float:
        """Return the requests there are per seat, running and waiting."""
        return float(self.load.sum()) / max(len(self.gpus) * self.slots, 1)

    def accept(self, request: int, now: float) -> None:
        """Give a request to the GPU with the fewest; one that fits into none is passed over."""
        if self.slots == 0 or self.needed[request] > self.profile.num_blocks:
            return
        chosen = int(np.argmin(self.load))
        self.gpu[request] = chosen
        self.load[chosen] += 1
        self.gpus[chosen].waiting.append(request)
        self._fill(self.gpus[chosen], now)

    def result(self) -> SlotRun:
        """Return the outcomes of the requests."""
        return SlotRun(
            arrival_s=self.arrival_s,
            start_s=self.start_s,
            first_token_s=self.first_s,
            end_s=self.end_s,
            gpu=self.gpu,
            num_preemptions=self.num_preemptions,
            most_slots=self.most_slots,
            most_blocks=self.most_blocks,
            busy_slot_s=self.busy_slot_s,
        )

    def advance(self, time_s: float) -> None:
        """End all requests that are done by then."""
        while self.events and self.events[0][0] <= time_s:
            now, request, start = heapq.heappop(self.events)
            if self.starts[request] != start or np.isfinite(self.end_s[request]):
                continue  # it was preempted after that start
            gpu = self.gpus[int(self.gpu[request])]
            self._leave(gpu, request, now)
            self.load[int(self.gpu[request])] -= 1
            last_s = now + self.outside[request] + self.between[request]
            self.end_s[request] = max(last_s, self.first_s[request])
            self._fill(gpu, now)

    def _leave(self, gpu: _Gpu, request: int, now: float) -> None:
        blocks, tokens, started = gpu.running.pop(request)
        gpu.blocks -= blocks
        gpu.tokens -= tokens
        self.busy_slot_s += now - started

    def _fill(self, gpu: _Gpu, now: float) -> None:
        """Start waiting requests while there is room for the first of them."""
        while gpu.waiting and len(gpu.running) < self.slots:
            request = gpu.waiting[0]
            if not self._make_room(gpu, request, now):
                return
            gpu.waiting.remove(request)
            self._start(gpu, request, now)

    def _make_room(self, gpu: _Gpu, request: int, now: float) -> bool:
        """Say whether the blocks are there; for them the longest running request is preempted if it is longer.

        It has as many blocks as the newcomer needs, since it is longer, so no other request has to go.
        """
        if gpu.blocks + int(self.needed[request]) <= self.profile.num_blocks:
            return True
        longest = max(gpu.running, key=lambda each: (self.total[each], -each))
        if self.total[longest] <= self.total[request]:
            return False
        self._leave(gpu, longest, now)
        self.num_preemptions += 1
        self.starts[longest] += 1  # its planned end is void
        gpu.waiting.insert(1, longest)  # behind the one that takes its place
        return True

    def _start(self, gpu: _Gpu, request: int, now: float) -> None:
        blocks, tokens = int(self.needed[request]), float(self.total[request])
        gpu.running[request] = (blocks, tokens, now)
        gpu.blocks += blocks
        gpu.tokens += tokens
        active = len(gpu.running)
        iteration = self.profile.iteration_s(float(active), gpu.tokens / active)
        self.starts[request] += 1
        self.start_s[request] = now
        computed = self.prefill[request] * iteration + self.compute[request]
        handing = self.profile.handing_on_s((active - 1) * self.decoding_frac)
        self.first_s[request] = now + self.outside[request] + computed + handing
        held = self.iterations[request] * iteration + self.compute[request]
        heapq.heappush(self.events, (now + float(held), request, int(self.starts[request])))
        self.most_slots = max(self.most_slots, active)
        self.most_blocks = max(self.most_blocks, gpu.blocks)
