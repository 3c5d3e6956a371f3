"""vLLM's scheduler written once more, as simply as it goes: lists, dicts and a deque, one step after the other.

It shares nothing with ``sim/engine``: no arrays, no jumps, no dense keys, fractions for time. Slow, short, and equal to
the engine in every step and every block (``test_reference.py``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from sim import Blackbox, EngineConfig, Requests, Status
from sim.versions import rules_of

NEVER = -1
ENDLESS = 1 << 60


@dataclass(eq=False, slots=True, kw_only=True)
class Request:
    """A request; ``num_tokens`` counts the known ones, prompt and outputs."""

    number: int
    arrival_us: int
    delay_us: int
    num_prompt: int
    max_tokens: int
    priority: int
    hash_ids: list[int]
    is_refused: bool
    num_tokens: int
    deadline_us: int | None = None
    is_guided: bool = False
    num_encoder_tokens: int = 0
    adapter: int = NEVER
    place: int = 0  # among those of one deadline
    preempted_us: int = 0
    preempted_since_us: int = NEVER
    taken_in_us: int = NEVER
    sampled_us: int = 0  # when the newest token comes out of the last stage
    next_decode_step: int = 0
    has_arrived: bool = True
    computed: int = 0
    placeholders: int = 0
    in_flight: int = 0
    stale: int = 0
    num_cached: int = 0
    blocks: list[int] = field(default_factory=list)
    status: Status = Status.UNFINISHED
    scheduled_us: int = NEVER
    hit: int = NEVER
    num_preemptions: int = 0
    token_times: list[int] = field(default_factory=list)

    @property
    def queued_us(self) -> int:
        return self.arrival_us + self.delay_us

    @property
    def gives_up_us(self) -> int:
        """Return when its client gives up, which has a deadline; who sends after it gives up then."""
        return max(self.deadline_us or 0, self.arrival_us)

    def content(self, block: int) -> Hashable:
        """Return what a full block holds, equal for equal contents."""
        return self.hash_ids[block] if block < len(self.hash_ids) else (self.number, block)


class Blocks:
    """The pool: given out from the front, remembered until given out again."""

    def __init__(self, num_blocks: int) -> None:
        self.free = deque(range(1, num_blocks))
        self.references = [0] * num_blocks
        self.contents: dict[int, Hashable] = {}
        self.holders: dict[Hashable, list[int]] = {}  # oldest first

    def new(self) -> int:
        block = self.free.popleft()
        if block in self.contents:
            self.holders[self.contents.pop(block)].remove(block)
        self.references[block] = 1
        return block

    def share(self, block: int) -> None:
        if self.references[block] == 0:
            self.free.remove(block)
        self.references[block] += 1

    def remember(self, block: int, content: Hashable) -> None:
        self.contents[block] = content
        self.holders.setdefault(content, []).append(block)

    def release(self, blocks: list[int]) -> None:
        """Hashed blocks go to the back, the others to the front, each request's last block first."""
        unheld = []
        for block in reversed(blocks):
            self.references[block] -= 1
            if self.references[block] == 0:
                unheld.append(block)
        self.free.extend(block for block in unheld if block in self.contents)
        self.free.extendleft(block for block in reversed(unheld) if block not in self.contents)


@dataclass(eq=False, slots=True, kw_only=True)
class Batch:
    """What was decided in one step, under the recordings' keys, and who computes and samples in it."""

    row: dict[str, Any]
    shares: dict[Request, int]
    samples: set[Request]
    end_us: int = 0
    num_encoder_tokens: int = 0


class Reference:
    """The scheduler and its loop; ``steps`` are rows in the order in which results came in."""

    def __init__(
        self,
        requests: Requests,
        config: EngineConfig,
        latency: Blackbox,
        *,
        closed_loop: tuple[int, int] | None = None,
    ) -> None:
        names = ("alpha0", "alpha1", "alpha2", "beta0", "beta1", "beta2")
        self.config, self.us = config, {name: Fraction(str(getattr(latency, name))) for name in names}
        self.requests = [self._request(requests, i) for i in range(len(requests))]
        self.concurrency, self.think_us = closed_loop or (len(requests), 0)
        self.held = deque(self.requests[self.concurrency :])
        self.heard: set[Request] = set()
        self.pending = sorted(self.requests[: self.concurrency], key=lambda r: r.queued_us)
        if closed_loop:
            for r in self.held:
                r.has_arrived = False
        num_places = config.max_loras or len(requests)
        self.places = [[NEVER, NEVER] for _ in range(num_places)]
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.pool = Blocks(config.num_gpu_blocks)
        self.steps: list[dict[str, Any]] = []
        self.clock = self.end_us = self.num_steps = 0
        self.is_blocked = self.has_finished = False
        self.awaited_us: list[int] = []  # when grammars are there that the last step missed
        self.stages = [0] * config.pipeline_parallel_size  # when each has done with all that is in flight
        self.async_pipeline = (
            rules_of(config.vllm_version).async_pipeline if config.async_scheduling else "none"
        )
        self.fruitless_since: tuple[int, int] | None = None  # tokens given, and who had come
        self.num_fruitless = self.num_joined = 0

    def _request(self, requests: Requests, i: int) -> Request:
        prompt, asked = int(requests.prompt_tokens[i]), int(requests.output_tokens[i])
        limit, is_refused = self.config.max_model_len, False
        if self.config.frontend == "openai":
            is_refused = prompt >= limit or asked > limit
            asked = min(asked, limit - prompt)
        deadline_us = NEVER if requests.deadline_us is None else int(requests.deadline_us[i])
        ids = requests.hash_ids[requests.hash_starts[i] :][: requests.num_hashes[i]].tolist()
        is_refused = is_refused or prompt < 1 or asked < 1
        return Request(
            number=i,
            arrival_us=int(requests.arrival_us[i]),
            delay_us=round(self.us["alpha0"] + self.us["alpha1"] * prompt),
            num_prompt=prompt,
            max_tokens=asked,
            priority=int(requests.priority[i]),
            hash_ids=ids,
            is_refused=is_refused,
            num_tokens=prompt,
            deadline_us=None if deadline_us == NEVER else deadline_us,
            is_guided=requests.is_guided is not None and bool(requests.is_guided[i]),
            num_encoder_tokens=0 if requests.encoder_tokens is None else int(requests.encoder_tokens[i]),
            adapter=NEVER if requests.adapter is None else int(requests.adapter[i]),
            place=i,
            status=Status.REJECTED if is_refused else Status.UNFINISHED,
        )

    def urgency(self, request: Request) -> tuple[float, int, int]:
        """Return the place in every queue but fcfs: the lowest goes first, the highest is preempted."""
        base = {"sjf": request.num_prompt, "reverse-priority": -request.priority}
        sign = {"constant": 0, "slo-based": 1, "inverted-slo": -1}[self.config.priority_scoring]
        age = sign * self.config.priority_age_weight / 1e6 * request.arrival_us
        place = base.get(self.config.scheduling_policy, request.priority) + age
        return place, request.arrival_us, request.number

    def num_blocks(self, num_tokens: int) -> int:
        return -(-min(num_tokens, self.config.max_model_len) // self.config.block_size)

    # -- schedule ---------------------------------------------------------------------------------------------

    def schedule(self) -> Batch:
        config, self.has_finished = self.config, False
        batch = Batch(row={"preempted": [], "hits": []}, shares={}, samples=set())
        num_eligible = len(self.running) + len(self.waiting)
        cap = config.long_prefill_token_threshold if num_eligible > 1 else 0
        if cap and config.long_prefill_token_threshold_adaptive:
            cap = max(cap, config.max_num_batched_tokens // num_eligible)
        self.cap = cap or ENDLESS
        self.budget = config.max_num_batched_tokens
        self.schedule_running(batch)
        if not batch.row["preempted"]:
            self.schedule_waiting(batch)
        self.describe(batch)
        return batch

    def schedule_running(self, batch: Batch) -> None:
        skipped: set[Request] = set()
        while self.budget > 0:
            request = next((r for r in self.running if r not in batch.shares and r not in skipped), None)
            if request is None:
                return
            n = request.num_tokens + request.placeholders - request.computed
            n = min(n, self.cap, self.budget, self.config.max_model_len - request.computed - 1)
            # vLLM takes a second token in flight for a draft, so that it does not see that the last one is among them
            nth_output = request.num_tokens - request.num_prompt + min(1, request.placeholders)
            is_last_in_flight = nth_output >= request.max_tokens
            if n <= 0 or is_last_in_flight or self.is_out_of_turn(request):
                skipped.add(request)
                continue
            while not self.allocate(request, n):
                victim = self.running[-1]
                if self.config.scheduling_policy != "fcfs":
                    victim = max(self.running, key=lambda r: self.urgency(r)[:2])
                self.preempt(victim, batch)
                if victim is request:
                    return
            batch.shares[request] = n
            self.budget -= n

    def is_out_of_turn(self, request: Request) -> bool:
        if len(self.stages) == 1:
            return False
        if self.async_pipeline == "waits for output":
            return request.placeholders > 0
        return self.async_pipeline == "staggered" and self.num_steps < request.next_decode_step

    def preempt(self, victim: Request, batch: Batch) -> None:
        self.running.remove(victim)
        self.budget += batch.shares.pop(victim, 0)
        self.pool.release(victim.blocks)
        victim.blocks, victim.num_cached, victim.computed, victim.placeholders = [], 0, 0, 0
        victim.stale = victim.in_flight
        victim.num_preemptions += 1
        victim.preempted_since_us = self.clock
        batch.row["preempted"].append(victim.number)
        self.waiting.insert(0, victim)

    def schedule_waiting(self, batch: Batch) -> None:
        skipped: list[Request] = []
        self.awaited_us = []
        self.admit(batch, skipped)
        self.waiting[:0] = skipped

    def skips(self, batch: Batch, request: Request) -> bool:
        """Return whether a request's adapter is one too many for the batch."""
        adapters = {r.adapter for r in batch.shares} - {NEVER}
        is_full = 0 < self.config.max_loras <= len(adapters)
        return request.adapter != NEVER and is_full and request.adapter not in adapters

    def admit(self, batch: Batch, skipped: list[Request]) -> None:
        config = self.config
        while self.budget > 0 and self.waiting and len(self.running) < config.max_num_seqs:
            if config.scheduling_policy != "fcfs":
                self.waiting.sort(key=self.urgency)
            head = self.waiting[0]
            if self.grammar_us(head) > self.clock:
                self.awaited_us.append(self.grammar_us(head))
                skipped.append(self.waiting.pop(0))
                continue
            if head.stale or self.skips(batch, head):
                skipped.append(self.waiting.pop(0))
                continue
            hits = self.lookup(head)
            n = min(head.num_tokens - len(hits) * config.block_size, self.cap)
            if n > self.budget and not config.enable_chunked_prefill:
                return
            n = min(n, self.budget)
            if not self.fits(head, hits, n):
                return
            self.running.append(self.waiting.pop(0))
            self.end_preemption(head)
            for block in hits:
                self.pool.share(block)
            head.blocks, head.num_cached = hits, len(hits)
            head.computed = len(hits) * config.block_size
            self.allocate(head, n)
            batch.row["hits"].append((head.number, head.computed))
            if head.scheduled_us == NEVER:
                head.scheduled_us, head.hit = self.clock, head.computed
                batch.num_encoder_tokens += head.num_encoder_tokens
            batch.shares[head] = n
            self.budget -= n

    def lookup(self, request: Request) -> list[int]:
        """Return the blocks of the longest cached beginning; the last known token is always computed."""
        found: list[int] = []
        most = (request.num_tokens - 1) // self.config.block_size if self.config.enable_prefix_caching else 0
        while len(found) < most and (holders := self.pool.holders.get(request.content(len(found)))):
            found.append(holders[0])
        return found

    def fits(self, request: Request, hits: list[int], n: int) -> bool:
        """Hits that nobody holds sit in the free queue, so they count as taken."""
        room = len(self.pool.free) - sum(self.pool.references[block] == 0 for block in hits)
        if self.running:
            room -= int(self.config.watermark * self.config.num_gpu_blocks)
        needed = self.num_blocks(len(hits) * self.config.block_size + n)
        if self.config.scheduler_reserve_full_isl:
            needed = max(needed, self.num_blocks(request.num_tokens))
        return max(0, needed - len(hits)) <= room

    def allocate(self, request: Request, n: int) -> bool:
        missing = self.num_blocks(request.computed + n) - len(request.blocks)
        if missing > len(self.pool.free):
            return False
        request.blocks = request.blocks + [self.pool.new() for _ in range(missing)]
        self.cache(request, min(request.computed + n, request.num_tokens))
        return True

    def cache(self, request: Request, num_tokens: int) -> None:
        """Make the full blocks among the first ``num_tokens`` known to everybody."""
        if self.config.enable_prefix_caching:
            for i in range(
                request.num_cached, min(num_tokens // self.config.block_size, len(request.blocks))
            ):
                self.pool.remember(request.blocks[i], request.content(i))
                request.num_cached = i + 1

    def describe(self, batch: Batch) -> None:
        """Write the step down, then count its tokens as computed."""
        entries, row = [], batch.row
        for r, n in batch.shares.items():
            known = r.num_tokens + r.placeholders
            is_sampled = r.computed + n == known
            is_decode = is_sampled and n == 1 and known > r.num_prompt
            entries.append((r.number, n, r.computed, "d" if is_decode else "p"))
            if is_sampled:
                batch.samples.add(r)
        num_decode = sum(kind == "d" for *_, kind in entries)
        num_prefill = sum(batch.shares.values()) - num_decode
        duration = self.us["beta0"] + self.us["beta1"] * num_prefill + self.us["beta2"] * num_decode
        row.update(
            step=self.num_steps,
            t=self.clock,
            dur=self.with_added_time(batch, round(duration)) if entries else 0,
            P=num_prefill,
            D=num_decode,
            sched=entries,
        )
        row.update(
            running=len(self.running), waiting=len(self.waiting), free=len(self.pool.free), finished=[]
        )
        row["block_ids"] = {r.number: list(r.blocks) for r in batch.shares}
        row["free_queue"] = list(self.pool.free)
        self.num_steps += 1
        for r, n in batch.shares.items():
            r.computed += n
            r.in_flight += n
            r.placeholders += self.config.async_scheduling and r in batch.samples

    def with_added_time(self, batch: Batch, compute_us: int) -> int:
        config = self.config
        factor = config.lora_step_factor if any(r.adapter != NEVER for r in batch.shares) else 1.0
        added = Fraction(config.encoder_token_us) * batch.num_encoder_tokens
        added /= config.encoder_data_parallel_size
        added += Fraction(config.encoder_step_us) * (batch.num_encoder_tokens > 0)
        added += Fraction(config.guided_mask_us) * sum(r.is_guided for r in batch.samples)
        loads = sum(self.load(r.adapter) for r in batch.shares if r.adapter != NEVER)
        return round(compute_us * Fraction(factor) + added) + loads * config.lora_load_us

    def load(self, adapter: int) -> bool:
        """Use an adapter in this step; return whether it had to be loaded, in the place of the longest unused."""
        if all(place[0] != adapter for place in self.places):
            oldest = min(self.places, key=lambda place: place[1])
            oldest[0] = adapter
            is_new = True
        else:
            is_new = False
        next(place for place in self.places if place[0] == adapter)[1] = self.num_steps
        return is_new

    # -- update -----------------------------------------------------------------------------------------------

    def update(self, batch: Batch) -> None:
        for r, n in batch.shares.items():
            r.in_flight -= n
            is_stale = r.stale > 0
            r.stale -= n if is_stale else 0
            if r not in batch.samples or r.status != Status.UNFINISHED:
                continue
            r.num_tokens += 1
            r.token_times.append(self.clock)
            if self.config.async_scheduling and not is_stale:
                r.placeholders -= 1
                self.cache(r, r.computed - r.placeholders)
            if len(r.token_times) == r.max_tokens or r.num_tokens >= self.config.max_model_len:
                self.finish(r, batch)
        batch.row.update(t_end=self.clock, free_end=len(self.pool.free))
        self.steps.append(batch.row)

    def finish(self, request: Request, batch: Batch) -> None:
        self.hear_answers(self.clock)
        self.pool.release(request.blocks)
        request.blocks, request.status, self.has_finished = [], Status.OK, True
        self.end_preemption(request)
        (self.running if request in self.running else self.waiting).remove(request)
        batch.row["finished"].append(request.number)
        seen_us = self.seen_us(request, len(request.token_times))
        if request.deadline_us is not None and request.deadline_us < seen_us:
            request.status = Status.TIMEOUT
            seen_us = min(seen_us, request.gives_up_us)
        if request not in self.heard:
            self.release_held(seen_us)

    def end_preemption(self, request: Request) -> None:
        if request.preempted_since_us != NEVER:
            request.preempted_us += self.clock - request.preempted_since_us
            request.preempted_since_us = NEVER

    # -- clients that give up ---------------------------------------------------------------------------------

    def with_deadlines(self) -> list[Request]:
        """Return those whose clients may yet give up, the next one first."""
        live = [r for r in self.requests if r.has_arrived and r.status == Status.UNFINISHED]
        return sorted((r for r in live if r.deadline_us is not None), key=lambda r: (r.gives_up_us, r.place))

    def give_up(self) -> None:
        self.hear_answers(self.clock + 1)
        while (first := self.with_deadlines()) and first[0].gives_up_us <= self.clock:
            self.abort(first[0])

    def abort(self, request: Request) -> None:
        self.end_preemption(request)
        if request in self.running:
            self.running.remove(request)
            self.pool.release(request.blocks)
            request.blocks = []
        elif request in self.waiting:
            self.waiting.remove(request)
        request.status, self.has_finished, self.is_blocked = Status.TIMEOUT, True, False
        self.fruitless_since = None

    def seen_us(self, request: Request, number: int) -> int:
        """Return when the client sees a request's output token, the first being number 1."""
        if len(request.token_times) < max(number, 1):
            return NEVER
        return request.token_times[number - 1] + round(self.us["alpha2"] * number)

    def release_held(self, seen_us: int) -> None:
        """A user has an answer: after a think time the next request arrives."""
        if not self.held:
            return
        r = self.held.popleft()
        before_us = r.arrival_us
        r.arrival_us, r.has_arrived = seen_us + self.think_us, True
        if r.deadline_us is not None:
            r.deadline_us += r.arrival_us - before_us
        r.place += len(self.requests)
        self.pending.append(r)
        self.pending.sort(key=lambda r: r.queued_us)

    def hear_answers(self, before_us: int) -> None:
        """A refusal is an answer, too, and so is a client that gave up: the first one lets the next request go."""
        while True:
            refused = [(r.queued_us, 1, r) for r in self.pending if r.is_refused and r.queued_us < before_us]
            given_up = [(r.gives_up_us, 0, r) for r in self.with_deadlines() if r not in self.heard]
            answers = refused[:1] + [each for each in given_up[:1] if each[0] < before_us]
            if not answers:
                return
            time_us, kind, request = min(answers, key=lambda each: each[:2])
            if kind == 1:
                self.pending.remove(request)
            self.heard.add(request)
            self.release_held(time_us)

    # -- the loop ---------------------------------------------------------------------------------------------

    def run(self) -> Reference:
        depth = self.config.max_concurrent_batches
        self.run_with_batch_queue(depth) if depth > 1 else self.run_sync()
        self.clock = self.end_us
        return self.finish_run()

    def finish_run(self) -> Reference:
        """Call those stuck who are left, and end the time for which they were preempted."""
        for r in self.requests:
            r.status = Status.STUCK if r.status == Status.UNFINISHED else r.status
            self.end_preemption(r)
        return self

    def join(self) -> None:
        while self.pending and self.pending[0].queued_us <= self.clock:
            request = self.pending.pop(0)
            if request.is_refused:
                self.release_held(request.queued_us)
                continue
            self.is_blocked = False
            self.num_joined += 1
            if request.status == Status.UNFINISHED:
                request.taken_in_us = self.clock
                self.waiting.append(request)

    def grammar_us(self, request: Request) -> int:
        """Return from when on a request may run: its grammar is there."""
        return request.queued_us + self.config.guided_compile_us * request.is_guided

    def waits_for_arrival(self) -> bool:
        """Move the clock on to the next arrival when nothing can run before it; return whether it did."""
        if (self.running or self.waiting) and not self.is_blocked:
            return False
        events = [r.queued_us for r in self.pending[:1]]
        events += [r.gives_up_us for r in self.with_deadlines()[:1]]
        if self.waiting and self.awaited_us:
            if min(self.awaited_us) <= self.clock:
                return False
            events.append(min(self.awaited_us))
        self.end_us = self.clock
        self.clock = max(self.clock, min(events)) if events else NEVER
        return True

    def preempts_without_end(self, *batches: Batch) -> bool:
        """Return whether preemptions follow on preemptions; the last batch is the one just decided on."""
        if not batches[-1].row["preempted"]:
            return False
        now = (sum(len(r.token_times) for r in self.requests), self.num_joined)
        if now != self.fruitless_since:
            self.fruitless_since, self.num_fruitless = now, 0
        self.num_fruitless += 1
        return self.num_fruitless >= 300 and not any(batch.samples for batch in batches)

    def run_sync(self) -> None:
        while self.clock != NEVER:
            self.give_up()
            self.join()
            if self.waits_for_arrival():
                continue
            batch = self.schedule()
            is_endless = self.preempts_without_end(batch)
            self.clock += batch.row["dur"]
            self.update(batch)
            self.is_blocked = is_endless or (not batch.shares and not batch.row["preempted"])

    def launch(self, batch: Batch) -> None:
        """Send a batch through the stages: each has done with the one before, and the tokens it reads are sampled."""
        row, at_us = batch.row, max(self.clock, self.stages[0])
        for r in batch.shares:
            if r.computed > r.num_tokens:  # it reads a token that is in flight
                at_us = max(at_us, r.sampled_us)
        row["exec_start"] = row["exec_end"] = batch.end_us = at_us
        num_stages = len(self.stages)
        each_us = row["dur"] // num_stages
        for stage in range(num_stages) if batch.shares else ():
            at_us = max(at_us, self.stages[stage])
            at_us += each_us if stage < num_stages - 1 else row["dur"] - each_us * (num_stages - 1)
            self.stages[stage] = at_us
        row["exec_end"] = batch.end_us = at_us if batch.shares else max(at_us, self.stages[-1])
        for r in batch.samples:
            r.sampled_us, r.next_decode_step = batch.end_us, row["step"] + num_stages

    def run_with_batch_queue(self, depth: int) -> None:
        """Several batches in flight: the device runs some while the next is decided on."""
        flight: deque[Batch] = deque()
        while self.clock != NEVER:
            self.give_up()
            self.join()
            if not flight and self.waits_for_arrival():
                continue
            if self.running or self.waiting or self.has_finished:
                batch = self.schedule()
                if not batch.shares and not batch.row["preempted"] and not any(b.shares for b in flight):
                    for empty in (*flight, batch):
                        self.update(empty)
                    flight.clear()
                    self.is_blocked = True
                    continue
                self.launch(batch)
                flight.append(batch)
                if self.preempts_without_end(*flight):
                    for useless in flight:
                        self.clock = max(self.clock, useless.end_us)
                        self.update(useless)
                    flight.clear()
                    self.is_blocked = True
                    continue
                if len(flight) < depth and (
                    batch.shares or self.running or self.waiting or self.has_finished
                ):
                    continue
            batch = flight.popleft()
            self.clock = max(self.clock, batch.end_us)
            self.update(batch)
