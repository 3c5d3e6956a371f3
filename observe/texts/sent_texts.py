"""Which texts of a data set a run sends, and the workload with their lengths."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import orjson

from observe.settings import TextSource
from observe.texts.data_set import Text, read_texts
from observe.texts.token_counts import GuessedCounts, TokenCounts, as_json, joined
from traces import TraceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traces import Trace

_BATCH: Final = 64
"""Texts that are counted at once: filters may want more of them than the run sends."""
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTexts:
    """The prompt of each row of ``workload`` as JSON, and ``notes`` on where they come from."""

    workload: Trace
    prompts: tuple[bytes, ...]
    source: str
    notes: tuple[str, ...]


async def choose_texts(workload: Trace, source: TextSource, *, counts: TokenCounts, chat: bool) -> SentTexts:
    """Return the texts that the rows of ``workload`` send, and the workload with their lengths.

    Each text is sent once, and again from the first where there are fewer than rows. Those of earlier loads come last.
    Raises TraceError for a data set
    without a text within the bounds, or a workload whose prompts depend on answers.
    """
    _refuse_growing_prompts(workload)
    texts, left_out = read_texts(source.path, source.columns)
    known = await _within_bounds(texts, source, number=source.num_before + len(workload), counts=counts)
    chosen = (known * 2)[(first := source.num_before % len(known)) : first + min(len(known), len(workload))]
    rows = [chosen[row % len(chosen)] for row in range(len(workload))]
    render = _as_chat if chat else _as_completion
    return SentTexts(
        workload=_with_lengths(workload, rows, num_texts=len(chosen), drawn_outputs=source.drawn_outputs),
        prompts=tuple(render(row.text) for row in rows),
        source=f"texts of {source.path.name}, counted by {counts.source}",
        notes=_notes(
            source, texts, chosen, left_out=left_out, workload=workload, counts=counts, num_known=len(known)
        ),
    )


@dataclass(frozen=True, slots=True)
class _Counted:
    text: Text
    prompt: int
    output: int | None


async def _within_bounds(
    texts: Sequence[Text], source: TextSource, *, number: int, counts: TokenCounts
) -> list[_Counted]:
    """Return at most ``number`` texts within the bounds, in the order that the seed draws."""
    order = np.random.default_rng(source.seed).permutation(len(texts)).tolist()
    chosen: list[_Counted] = []
    for start in range(0, len(order), _BATCH):
        batch = await asyncio.gather(
            *(_count(texts[place], counts) for place in order[start : start + _BATCH])
        )
        chosen += [each for each in batch if each is not None and source.takes(each.prompt, each.output)]
        if len(chosen) >= number:
            return chosen[:number]
    if not chosen:
        raise TraceError(
            f"--texts: got {len(texts):,} texts and none within the bounds on lengths, expected one "
            f"(--prompt-tokens-min, --prompt-tokens-max, --output-tokens-min, --output-tokens-max, "
            f"--total-tokens-max; {source.path})"
        )
    return chosen


async def _count(text: Text, counts: TokenCounts) -> _Counted | None:
    prompt = await counts.of_messages(text.messages)
    if prompt is None:  # longer than the server's context, for one
        return None
    output = text.output_tokens
    if output is None and text.answer:
        output = await counts.of_text(text.answer)
    return _Counted(text, max(prompt, 1), output)


def _refuse_growing_prompts(workload: Trace) -> None:
    if workload.cells("new_input_tokens").is_known.any():
        raise TraceError(
            "--texts: got a workload whose prompts build on answers, expected requests of their own (no --rounds)"
        )


def _with_lengths(workload: Trace, rows: Sequence[_Counted], *, num_texts: int, drawn_outputs: bool) -> Trace:
    """Return the workload with the texts' lengths; an answer of unknown length is as long as was drawn.

    A text that is sent several times is a prefix group of its own, but for its last token: so a twin finds it in its
    cache as the server does.
    """
    drawn: NDArray[np.int64] = workload.cells("output_tokens").values
    own = [
        int(length) if drawn_outputs or row.output is None else row.output
        for row, length in zip(rows, drawn.tolist(), strict=True)
    ]
    again = [len(rows) > num_texts and row.prompt > 1 for row in rows]
    shared = [row.prompt - 1 if is_again else 0 for row, is_again in zip(rows, again, strict=True)]
    groups = [f"text {place % num_texts}" if is_again else None for place, is_again in enumerate(again)]
    return workload.without_columns("prefix_hashes", "max_tokens").with_columns(
        input_tokens=[row.prompt - common for row, common in zip(rows, shared, strict=True)],
        output_tokens=own,
        prefix_group=groups,
        prefix_length=shared,
    )


def _notes(
    source: TextSource,
    texts: Sequence[Text],
    chosen: Sequence[_Counted],
    *,
    left_out: int,
    workload: Trace,
    counts: TokenCounts,
    num_known: int,
) -> tuple[str, ...]:
    said = [
        f"prompts are {len(chosen):,} of the {len(texts):,} texts of {source.path.name} "
        f"(sha256 {_digest(texts)}, seed {source.seed}), counted by {counts.source}"
    ]
    if left_out:
        said.append(f"{left_out:,} records of {source.path.name} have no text and are left out")
    if len(chosen) < len(workload):
        said.append(
            f"{len(chosen):,} texts for {len(workload):,} requests: texts are sent again, and a prefix cache answers "
            "them faster"
        )
    elif num_known < source.num_before + len(workload):
        said.append(
            f"{num_known:,} texts for this load and those before it: texts are sent again, and a prefix cache answers "
            "them faster"
        )
    unknown = sum(row.output is None for row in chosen)
    if unknown and not source.drawn_outputs:
        said.append(f"{unknown:,} texts have no answer: theirs are as long as --output-tokens draws")
    if isinstance(counts, GuessedCounts):
        said.append(
            "the server has no /tokenize: lengths are guessed before the run, --tokenizer PATH counts them"
        )
    return tuple(said)


def _digest(texts: Sequence[Text]) -> str:
    """Return the digest of the texts, the same for the same texts in any file."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(orjson.dumps([[(each.role, each.content) for each in text.messages], text.answer]))
    return digest.hexdigest()[:_DIGITS]


def _as_chat(text: Text) -> bytes:
    return orjson.dumps(as_json(text.messages))


def _as_completion(text: Text) -> bytes:
    return orjson.dumps(joined(text.messages))
