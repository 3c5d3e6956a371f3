"""Orca, static batching, Sarathi-Serve and vLLM's first engine written once more, as slow and short as they go.

What they share with vLLM's reference is the pool of blocks, the loop and the bookkeeping; who is put into a batch is
written anew, with lists and nothing of ``sim/engine``.
"""

from __future__ import annotations

from typing import Any

from tests.sim.reference import NEVER, Batch, Reference, Request


class Reserving(Reference):
    """Orca: every running request a token, then whoever finds a seat and memory for his whole sequence."""

    def schedule(self) -> Batch:
        self.has_finished = False
        row: dict[str, Any] = {"preempted": [], "hits": []}
        batch = Batch(row=row, shares=dict.fromkeys(self.running, 1), samples=set())
        if self.admits():
            while self.waiting and len(self.running) < self.config.max_num_seqs:
                if not self.takes_in(batch, self.waiting[0]):
                    break
        self.describe(batch)
        return batch

    def admits(self) -> bool:
        """Return whether anybody may join those who run."""
        return True

    def takes_in(self, batch: Batch, head: Request) -> bool:
        longest = min(head.num_prompt + head.max_tokens, max(self.config.max_model_len, head.num_prompt + 1))
        if self.lacks(self.blocks_for(longest)):
            return False
        self.seat(batch, head, num_blocks=self.blocks_for(longest), num_tokens=head.num_tokens)
        return True

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.config.block_size)

    def lacks(self, num_blocks: int) -> bool:
        kept_free = int(self.config.watermark * self.config.num_gpu_blocks) if self.running else 0
        return num_blocks + kept_free > len(self.pool.free)

    def seat(self, batch: Batch, head: Request, *, num_blocks: int, num_tokens: int) -> None:
        self.running.append(self.waiting.pop(0))
        self.end_preemption(head)
        head.blocks = [self.pool.new() for _ in range(num_blocks)]
        head.num_cached = head.computed = 0
        batch.row["hits"].append((head.number, 0))
        if head.scheduled_us == NEVER:
            head.scheduled_us, head.hit = self.clock, 0
            batch.num_encoder_tokens += head.num_encoder_tokens
        batch.shares[head] = num_tokens


class Static(Reserving):
    """A batch runs to its end before the next one is made."""

    def admits(self) -> bool:
        return not self.running


class Sarathi(Reserving):
    """Decodes first, whoever of them; then chunks of prompts that go on; then new prompts: into one budget."""

    def schedule(self) -> Batch:
        self.has_finished = False
        batch = Batch(row={"preempted": [], "hits": []}, shares={}, samples=set())
        for request in list(self.running):
            if request in self.running and self.decodes(request):
                self.give_slot(batch, request)
        left = self.config.max_num_batched_tokens - sum(batch.shares.values())
        for request in self.running:
            n = min(request.num_tokens - request.computed, left)
            if request not in batch.shares and n > 0:
                batch.shares[request] = n
                left -= n
        while left > 0 and self.waiting and len(self.running) < self.config.max_num_seqs:
            head = self.waiting[0]
            if self.lacks(self.blocks_for(head.num_tokens)):
                break
            n = min(head.num_tokens, left)
            self.seat(batch, head, num_blocks=self.blocks_for(head.num_tokens), num_tokens=n)
            left -= n
        self.describe(batch)
        return batch

    @staticmethod
    def decodes(request: Request) -> bool:
        return request.num_tokens - request.computed == 1 and request.num_tokens > request.num_prompt

    def give_slot(self, batch: Batch, request: Request) -> None:
        """Let a decode have its slot, in the place of whoever came last, or not at all."""
        while not self.allocate(request, 1):
            victim = self.running[-1]
            self.running.remove(victim)
            self.pool.release(victim.blocks)
            victim.blocks, victim.computed = [], 0
            victim.num_preemptions += 1
            victim.preempted_since_us = self.clock
            batch.row["preempted"].append(victim.number)
            self.waiting.insert(0, victim)
            if victim is request:
                return
        batch.shares[request] = 1


class FirstEngine(Reference):
    """vLLM's first engine without chunked prefill: whole prompts while any fits, else a token for each that runs."""

    def schedule(self) -> Batch:
        self.has_finished = False
        batch = Batch(row={"preempted": [], "hits": []}, shares={}, samples=set())
        self.cap, self.budget = self.config.max_model_len + 1, self.config.max_num_batched_tokens
        self.schedule_waiting(batch)
        if not batch.shares:
            self.schedule_running(batch)
        self.describe(batch)
        return batch

    def fits(self, request: Request, hits: list[int], n: int) -> bool:
        """Blocks that are in use already are charged once more."""
        kept_free = int(self.config.watermark * self.config.num_gpu_blocks)
        num_tokens = max(len(hits) * self.config.block_size + n, request.num_tokens)
        return self.num_blocks(num_tokens) + kept_free <= len(self.pool.free)


REFERENCES = {"orca": Reserving, "static": Static, "sarathi": Sarathi, "vllm-v0": FirstEngine}
