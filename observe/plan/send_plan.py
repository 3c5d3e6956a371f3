"""From a trace to what will be sent and when, all of it decided before the clock starts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from lazy_dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from observe.plan.chains import Chain, begins_of, chains_of, is_token_ids, rounds_that_extend, waits_of
from observe.plan.prompt_parts import PromptParts, prompt_parts
from observe.plan.prompts import Prompts, num_tokens
from observe.plan.request_body import BodyShape
from observe.plan.unsent import unsent_notes
from observe.senders.exchange import one_line
from observe.senders.request_kinds import KINDS
from traces import TraceError, has_tree
from traces.workload import as_sent

if TYPE_CHECKING:
    import pandas as pd

    from observe.media.sent_media import MediaDrawing, SentMedia
    from traces import ClosedLoop, Trace

PREBUILD_BYTES = 256 << 20
"""Bodies are built before the run up to this much; the rest in their turn, ahead of their due time."""


@dataclass(frozen=True, slots=True)
class CutAfter:
    """When an answer is cut: ``time_us`` from its sending, or once ``tokens`` of it have come."""

    time_us: int | None
    tokens: int | None


@dataclass(frozen=True, kw_only=True, eq=False)  # no slots: a property is cached
class SendPlan:
    """The requests of ``trace`` in its order: when each is due and what it carries.

    ``due_us``: µs from the run's start; None where an answer plus ``think_us`` decides: in a closed loop beyond
    the first round, and in a session. ``chains``: row numbers, those of a session together, by due time.
    ``waits_for``: in sessions that branch, the rows whose answers a row waits for
    (``observe.run.branching_session``).
    ``extends_row``: the row whose prompt and answer a row's prompt builds on (see ``observe.plan.conversations``).
    ``cuts``: rows whose client goes before the answer is whole. ``texts``: each row's prompt as JSON, in place of one
    that ``prompts`` draws. ``notes``: what is sent otherwise.
    """

    trace: Trace
    due_us: Sequence[int | None]
    think_us: Sequence[int]
    chains: Sequence[Chain]
    waits_for: Mapping[int, tuple[int, ...]]
    extends_row: Mapping[int, int]
    max_tokens: Sequence[int]
    prompts: Prompts
    shape: BodyShape
    parts: PromptParts
    models: Sequence[str | None]
    headers: Sequence[tuple[tuple[str, str], ...]]
    priorities: Sequence[int | None]
    guided_rows: frozenset[int]
    deadline_us: Sequence[int | None]
    cuts: Mapping[int, CutAfter]
    notes: tuple[str, ...]
    texts: Sequence[bytes] | None = None
    media: SentMedia | None = None
    built: dict[int, bytes] = field(default_factory=dict)

    @property
    def closed_loop(self) -> ClosedLoop | None:
        """The closed loop that paces this plan, or None where the due times do."""
        return self.trace.header.closed_loop

    @property
    def has_sessions(self) -> bool:
        """Whether any request waits for the answer to another of its session."""
        return len(self.chains) < len(self)

    @property
    def num_at_once(self) -> int:
        """How many requests of a closed loop are due together, so that their lateness means nothing."""
        loop = self.closed_loop
        if loop is None:
            return 0
        return len(self) if loop.in_waves else loop.concurrency

    @cached_property
    def extended_rows(self) -> frozenset[int]:
        """Rows whose answer is part of another's prompt."""
        return frozenset(self.extends_row.values())

    @cached_property
    def adapter_rows(self) -> frozenset[int]:
        """Rows that ask for a LoRA adapter."""
        return frozenset(self.trace.column("adapter").notna().to_numpy(dtype=bool).nonzero()[0].tolist())

    @cached_property
    def awaited_rows(self) -> frozenset[int]:
        """Rows whose answer another round may build on; none in a tree, whose prompts do not depend on answers."""
        if self.waits_for:
            return frozenset()
        return frozenset(row for chain in self.chains for row in chain[:-1])

    def begins_of(self, chain: Chain) -> Chain:
        """Return the rows of a session that wait for no answer."""
        return begins_of(chain, self.waits_for)

    def __len__(self) -> int:
        """Return the number of requests; of a share of the plan, only its own."""
        return sum(map(len, self.chains))

    def take_body(self, index: int) -> bytes:
        """Return the body of row ``index`` and forget it if it was built before."""
        return self.built.pop(index, None) or self.build_body(index)

    def sent_to(self, index: int) -> dict[str, str | None]:
        """Return ``model`` and ``adapter`` that row ``index`` is sent to; None for the run's model and no adapter."""
        name = self.models[index] if self.models[index] in self.shape.row_models else None
        is_adapter = index in self.adapter_rows
        return {"model": None if is_adapter else name, "adapter": name if is_adapter else None}

    def build_body(self, index: int) -> bytes:
        """Return the body of row ``index``, built now."""
        return self.body_with(index, self.prompt(index))

    def prompt(self, index: int) -> bytes:
        """Return the prompt of row ``index`` as JSON; of a row that builds on another, what it adds."""
        if self.texts is not None:
            return self.texts[index]
        drawn = self.prompts.render(self.parts.of(index))
        return drawn if self.media is None else self.media.prompt(index, drawn)

    def prefix_tokens(self, index: int) -> int:
        """Return how many of the tokens of row ``index`` are those of its prefix group."""
        return int(self.trace.column("prefix_length").fillna(0).iloc[index])

    def num_prompt_tokens(self, index: int) -> int:
        """Return the tokens of ``prompt``."""
        return num_tokens(self.parts.of(index))

    def body_with(self, index: int, prompt: bytes) -> bytes:
        """Return the body of row ``index`` with this prompt, JSON already."""
        return self.shape.body(
            prompt,
            max_tokens=self.max_tokens[index],
            model=self.models[index],
            priority=self.priorities[index],
            return_token_ids=index in self.extended_rows and is_token_ids(prompt),
            is_guided=index in self.guided_rows,
        )


def make_plan(
    trace: Trace,
    *,
    prompts: Prompts,
    shape: BodyShape,
    prebuild_bytes: int = PREBUILD_BYTES,
    class_priority: Mapping[str, int] | None = None,
    guided_rows: frozenset[int] = frozenset(),
    texts: Sequence[bytes] | None = None,
    drawing: MediaDrawing | None = None,
) -> SendPlan:
    """Return the plan that sends every row of ``trace``; ``class_priority``: of a row that states no priority.

    A row of a workload is sent with its requested lengths (``as_sent``), a row with a status again with its measured
    ones. ``texts``: what each row sends, in place of a drawn prompt. ``drawing``: how its images and sounds are drawn;
    None: they are sent as text. Raises TraceError for a trace without requests, or with a row whose output length is
    not given.
    """
    if len(trace) == 0:
        raise TraceError("trace: got no requests, expected at least one")
    trace, dropped = _without_unsendable(as_sent(trace))
    chains, waits_for = chains_of(trace), waits_of(trace)
    extends_row = rounds_that_extend(trace, chains)
    due = _due_us(trace, chains, waits_for)
    trace, media = _with_media(trace, drawing, extends_row)
    parts, notes = prompt_parts(trace, extends_row, media)
    unsent = unsent_notes(trace, due_us=due, shape=shape, guided_rows=guided_rows, media=media)
    plan = SendPlan(
        trace=trace,
        due_us=due,
        think_us=_think_us(trace),
        chains=_by_due_time(chains, due, waits_for),
        waits_for=waits_for,
        extends_row=extends_row,
        max_tokens=_max_tokens(trace),
        prompts=prompts,
        shape=shape,
        parts=parts,
        models=_requested_models(trace),
        headers=gateway_headers(trace),
        priorities=_priorities(trace, class_priority, shape),
        guided_rows=guided_rows,
        deadline_us=_ints(trace.column("deadline_us")),
        cuts=_cuts(trace),
        texts=texts,
        media=media,
        notes=(*dropped, *notes, *unsent),
    )
    prebuild(plan, prebuild_bytes)
    return plan


def _by_due_time(
    chains: Sequence[Chain], due_us: Sequence[int | None], waits_for: Mapping[int, tuple[int, ...]]
) -> list[Chain]:
    """Return the sessions in the order in which they begin."""

    def begin(chain: Chain) -> tuple[float, int]:
        times = [due_us[row] for row in begins_of(chain, waits_for)]
        return min((time_us for time_us in times if time_us is not None), default=math.inf), chain[0]

    return sorted(chains, key=begin)


def gateway_headers(trace: Trace) -> list[tuple[tuple[str, str], ...]]:
    """Return each row's headers for a gateway: its tenant, its class and its target, as far as it has them.

    Names: Kubernetes' gateway API inference extension (fairness, objective), and BLIS's for the target, in ms.
    """
    tenants, classes = trace.column("tenant_id").tolist(), trace.column("slo_class").tolist()
    rows: list[tuple[tuple[str, str], ...]] = []
    for tenant, slo_class, target in zip(tenants, classes, _ints(trace.column("slo_target_us")), strict=True):
        named = (
            ("x-gateway-inference-fairness-id", tenant),
            ("x-gateway-inference-objective", slo_class),
            ("x-slo-ttft-ms", None if target is None else str(-(-target // 1000))),
        )
        rows.append(tuple((name, one_line(text)) for name, text in named if isinstance(text, str) and text))
    return rows


def _priorities(trace: Trace, of_class: Mapping[str, int] | None, shape: BodyShape) -> list[int | None]:
    if "priority" in KINDS[shape.api].lacks:
        return [None] * len(trace)
    stated = _ints(trace.column("vllm_priority"))
    if of_class is None:
        return stated
    known = [of_class.get(name) for name in trace.column("slo_class").fillna("")]
    return [of if own is None else own for own, of in zip(stated, known, strict=True)]


def _requested_models(trace: Trace) -> list[str | None]:
    """Return the model that each row asks for: its LoRA adapter, which vLLM serves as a model, else its model."""
    wanted = trace.column("adapter").fillna(trace.column("model"))
    return [name if isinstance(name, str) and name else None for name in wanted]


def _without_unsendable(trace: Trace) -> tuple[Trace, tuple[str, ...]]:
    """Return the trace without the columns that branching sessions do not send, and a note on it."""
    number = int(trace.cells("new_input_tokens").is_known.sum())
    if not number or not has_tree(trace.table):
        return trace, ()
    return trace.without_columns("new_input_tokens"), (
        f"{number} requests of sessions that branch build on answers (new_input_tokens): what prompts share is sent by "
        "their block hashes alone",
    )


def _with_media(
    trace: Trace, drawing: MediaDrawing | None, extends_row: Mapping[int, int]
) -> tuple[Trace, SentMedia | None]:
    """Return the trace with the images that are sent at their places, and all parts; a later round sends none."""
    if drawing is None:
        return trace.without_columns("images"), None
    from observe.media.sent_media import media_to_send, with_sent_images

    media = media_to_send(trace, drawing, without=extends_row)
    return with_sent_images(trace, media), media


def _due_us(
    trace: Trace, chains: Sequence[Chain], waits_for: Mapping[int, tuple[int, ...]]
) -> list[int | None]:
    due = _ints(trace.column("arrival_time_us"))
    loop = trace.header.closed_loop
    begins = [begins_of(chain, waits_for) for chain in chains]
    if loop is not None:
        paced: list[int | None] = [None] * len(due)
        for row in (row for rows in begins[: loop.concurrency] for row in rows):
            paced[row] = due[row] or 0
        return paced
    missing = next((row for rows in begins for row in rows if due[row] is None), None)
    if missing is not None:
        raise TraceError(
            f"row {missing + 1}, arrival_time_us: got an empty cell, expected a time (no closed loop)"
        )
    return [None if row in waits_for else time_us for row, time_us in enumerate(due)]


def _ints(column: pd.Series[Any]) -> list[int | None]:
    return [None if missing else int(value) for value, missing in zip(column, column.isna(), strict=True)]


def _cuts(trace: Trace) -> dict[int, CutAfter]:
    pairs = zip(
        _ints(trace.column("cancel_after_us")), _ints(trace.column("cancel_after_tokens")), strict=True
    )
    return {row: CutAfter(*pair) for row, pair in enumerate(pairs) if pair != (None, None)}


def _think_us(trace: Trace) -> list[int]:
    loop = trace.header.closed_loop
    default = 0 if loop is None else loop.think_time_us
    return [int(think) for think in trace.column("think_time_us").fillna(default)]


def _max_tokens(trace: Trace) -> list[int]:
    """Return each row's output length, as measured or drawn; of a failed row, as requested."""
    asked = trace.column("max_tokens")
    failed = (trace.column("status") != "ok").fillna(False)
    wanted = trace.column("output_tokens").mask(failed & asked.notna(), asked).fillna(asked)
    if wanted.isna().any():
        row = int(np.flatnonzero(wanted.isna())[0]) + 1
        raise TraceError(f"row {row}, output_tokens: got an empty cell, expected it or max_tokens")
    return [max(int(count), 1) for count in wanted]


def prebuild(plan: SendPlan, most_bytes: int) -> None:
    """Build the plan's bodies in the order in which they are sent, until they fill ``most_bytes``.

    None of sessions that branch: their prompts are long, and those of a session mostly one text.
    """
    if plan.waits_for:
        return
    size = 0
    for row in (row for chain in plan.chains for row in chain if row not in plan.extends_row):
        if size >= most_bytes:
            return
        plan.built[row] = plan.build_body(row)
        size += len(plan.built[row])
