"""The answer of a search on a live server: its figures, its document, its sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from observe.capacity.live_steps import FEWEST_REQUESTS
from observe.judged.judged_step import THROUGHPUT, TOO_SHORT
from traces import shown_time, tool_version

if TYPE_CHECKING:
    from observe.capacity.live_steps import LiveStep
    from observe.capacity.rate_search import FoundRate
    from observe.judged.criteria import Criterion

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCapacity:
    """What was found, of which steps.

    ``question``: what was asked. ``probe_per_s``: the rate that a probe said to begin at; ``begins_near``: a twin did.
    ``state``: ``finished``; ``interrupted``; ``client limited``: the client could not send more; ``under way``.
    """

    found: FoundRate
    steps: Sequence[LiveStep]
    criteria: Sequence[Criterion]
    question: Mapping[str, Any]
    probe_per_s: float | None
    begins_near: bool
    state: str

    @property
    def sentence(self) -> str:
        """The answer in a sentence."""
        found = self.found
        if not self.steps:
            return "No step has ended"
        if found.rate_per_s is None:
            least = min(each.seen.rate_per_s for each in self.steps)
            return f"Not within the SLO, down to {least:.3g}/s"
        if found.high is None:
            return f"Within the SLO at {found.rate_per_s:.3g}/s, and no limit broke: at least that"
        return f"Within the SLO up to {found.rate_per_s:.3g}/s ({found.low:.3g} to {found.high:.3g})"

    def notes(self) -> list[str]:
        """Return what a reader must know beside it, a sentence each: what was found, then what to beware of."""
        return [*self.facts(), *self.warnings()]

    def facts(self) -> list[str]:
        """Return what broke first, and that the server recovers, a sentence each."""
        found, said = self.found, []
        if found.limiting == THROUGHPUT:
            said.append("Above it the server is saturated: its queue grows")
        elif found.limiting not in {None, TOO_SHORT}:
            behind = any(each.seen.verdict.is_behind for each in self.steps)
            said.append(
                f"First to break: {found.limiting}{', and the queue grows further up' if behind else ''}"
            )
        if found.recovers:
            said.append("The server recovers: after an overload it was within the SLO again")
        return said

    def warnings(self) -> list[str]:
        """Return what makes the answer less than it seems, a sentence each."""
        found, said = self.found, []
        if found.recovers is False:
            said.append(
                "The server did not recover from an overload: a rate within the SLO before it was not after it"
            )
        short = [each.name for each in self.steps if each.seen.verdict.is_too_short]
        if short:
            said.append(
                f"Too short to tell: {', '.join(short)}; --num-requests or --duration make steps longer"
            )
        longest = max((each.num_sent for each in self.steps), default=0)
        if 0 < longest < FEWEST_REQUESTS and self.state == "finished":
            said.append(
                f"Steps of at most {longest:,} requests are short: near saturation a queue takes longer to fill, which "
                "the interval allows for"
            )
        slow = [each for each in self.steps if each.seen.verdict.slow_start_us is not None]
        said += [
            f"{each.name}: a slow start of {shown_time(each.seen.verdict.slow_start_us or 0.0)} is left out"
            for each in slow
        ]
        limited = next((each.client_limited for each in self.steps if each.client_limited is not None), None)
        if limited is not None:
            said.append(f"The client, not the server, was the limit: {limited}")
        if found.rate_per_s is not None and found.high is None and self.state == "finished":
            said.append(f"The search ended after {len(self.steps)} steps; --rate R begins it further up")
        elif self.state == "finished" and found.rate_per_s is not None and not found.is_narrow:
            said.append(
                "The interval is wider than asked: longer steps (--num-requests, --duration) narrow it"
            )
        if self.state == "interrupted":
            said.append("Interrupted: the same command with --resume goes on from here")
        return said

    @property
    def cost(self) -> dict[str, float]:
        """Time in s, requests and tokens that the steps took."""
        return {
            "duration_s": round(sum(each.duration_s for each in self.steps), 3),
            "num_requests": sum(each.num_sent for each in self.steps),
            "input_tokens": sum(each.input_tokens for each in self.steps),
            "output_tokens": sum(each.output_tokens for each in self.steps),
        }

    def document(self) -> dict[str, object]:
        """Return the answer as JSON has it, with the names of ``vtwin capacity --json``."""
        found = self.found
        return {
            "schema_version": SCHEMA_VERSION,
            "tool_version": tool_version(),
            "state": self.state,
            "rate": found.rate_per_s,
            "low": found.low,
            "high": found.high,
            "limiting": found.limiting,
            "highest_met": found.highest_met,
            "is_narrow": found.is_narrow,
            "recovers": found.recovers,
            "sentence": self.sentence,
            "notes": self.notes(),
            "question": dict(self.question),
            "probe_rate": self.probe_per_s,
            "begins_near": self.begins_near,
            **self.cost,
            "evaluations": [self._evaluation(each) for each in self.steps],
        }

    def _evaluation(self, step: LiveStep) -> dict[str, object]:
        seen, verdict = step.seen, step.seen.verdict
        return {
            "rate": seen.rate_per_s,
            "met": seen.is_met,
            "sure": verdict.is_met is not None,
            "trace": step.name,
            "purpose": step.purpose,
            "broken": None if seen.is_met else verdict.broken(self.criteria),
            "beyond_frac": {
                each.name: {"value": verdict.shares[each.name].beyond_frac, "allowed": each.beyond_frac}
                for each in self.criteria
            },
            "saturated": verdict.is_behind,
            "answered_per_s": verdict.answered_per_s,
            "slow_start_us": verdict.slow_start_us,
            "num_requests": step.num_sent,
            "num_judged": verdict.num_judged,
            "duration_s": step.duration_s,
            "input_tokens": step.input_tokens,
            "output_tokens": step.output_tokens,
            **{f"{name}_us": values for name, values in step.latencies_us.items()},
        }
