"""genai-perf's export (``profile_export.json``, which perf_analyzer writes): observed traces, one an experiment.

Source of the format: github.com/triton-inference-server/perf_analyzer, genai-perf/genai_perf/profile_data_parser:
``experiments[]`` of ``experiment`` (``mode``, ``value``) and ``requests[]`` with ``timestamp`` and
``response_timestamps`` (ns of a clock), ``request_inputs`` and ``response_outputs``, each an event as it came. The
tool counts tokens by the texts; here the texts are passed over, and counts are those of the server's ``usage`` in an
event, or the ids of a prompt that was sent as such. Events without text are no tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from traces.errors import TraceError, quoted
from traces.header import ClientInfo, Header, Source, loop_of
from traces.importers.benchmarks.result_rows import (
    Measured,
    columns_of,
    conversations_in,
    events_of,
    load_json,
    message,
    tokens,
)
from traces.importers.noted import left_out, name_of, of
from traces.importers.reading_options import number_of_part
from traces.strict.json_text import parse_value
from traces.strict.limits import MOST_US
from traces.trace import Trace, make_trace

_HINT: Final = "expected genai-perf's profile_export.json"
_CHARACTERS_PER_TOKEN: Final = 4
"""A guess for prompts that nobody counted: English text under usual tokenizers."""
_GUESSED: Final = (
    "the file has no counts of prompt tokens: their lengths are guessed at "
    f"{_CHARACTERS_PER_TOKEN} characters each (genai-perf counted them and did not write it down)"
)


def read_genai_perf(path: Path, *, part: int | None = None) -> Trace:
    """Return the observed trace of an experiment of this file, the ``part``-th (from 1) where there are several.

    Times count from the first request. Raises TraceError that names the request, from 0; ConfigError for a part that
    does not exist, or if there are several and none is named.
    """
    found = load_json(path, hint=_HINT)
    experiments = of(found, "experiments")
    if not isinstance(experiments, list) or not experiments:
        raise TraceError(f"{path.name}: experiments: got no list, {_HINT}")
    names = [_name(each) for each in experiments]
    experiment = experiments[number_of_part(part, names, what="experiments", path=path)]
    requests = of(experiment, "requests")
    if not isinstance(requests, list) or not requests:
        raise TraceError(f"{path.name}: requests: got none, {_HINT}")
    read = [_Request(said, where=f"{path.name}: request {at}") for at, said in enumerate(requests)]
    origin = min(request.sent_ns for request in read)
    counted = [request for request in read if request.prompt_tokens is not None]
    kept = counted or [request for request in read if request.characters]
    if not kept:
        raise TraceError(
            f"{path.name}: got no prompts and no counts of their tokens, {_HINT} with its request_inputs"
        )
    rows = [request.row(origin) for request in kept]
    talks = conversations_in(rows, lengths_known=bool(counted))
    source = Source(
        format="genai-perf",
        file=path.name,
        load_unknown=None if counted else _GUESSED,
        left_out=left_out(unknown=len(read) - len(kept)),
        notes=(*_notes(kept, name=_name(experiment)), *talks.notes),
    )
    users = (
        of(experiment, "experiment", "value")
        if of(experiment, "experiment", "mode") == "concurrency"
        else None
    )
    header = Header(
        mode="real",
        tool="genai-perf",
        closed_loop=loop_of(users),
        session_context_growth="accumulate" if any(talks.new_input_tokens) else None,
        client=ClientInfo(library="perf_analyzer", finished=True),
        source=source,
    )
    columns = columns_of(rows) | talks.columns()
    return make_trace(header, columns, events=events_of(rows))  # type: ignore[arg-type]  # a frame


def _name(experiment: object) -> str:
    mode, value = of(experiment, "experiment", "mode"), of(experiment, "experiment", "value")
    return f"{str(mode)[:30]} {str(value)[:30]}"


def _notes(kept: list[_Request], *, name: str) -> tuple[str, ...]:
    notes = [f"experiment: {name}", "due times are not recorded: a request counts as due when it was sent"]
    counted = sum(request.answer_tokens is None and request.error is None for request in kept)
    if counted:
        notes.append(
            f"{counted:,} answers have no usage: their output tokens are their events with text, one each"
        )
    return tuple(notes)


class _Request:
    """One request of the file; its texts are looked at and not kept."""

    def __init__(self, said: object, *, where: str) -> None:
        if not isinstance(said, Mapping):
            raise TraceError(f"{where}: got {type(said).__name__}, {_HINT}")
        self.sent_ns = _ns(said.get("timestamp"), what=f"{where}: timestamp")
        inputs = said.get("request_inputs")
        self.session = name_of(of(inputs, "session_id"))
        payload = _payload(inputs)
        self.session = self.session or name_of(of(payload, "session_id"))
        self.max_tokens = (
            tokens(_integer(_first(payload, "max_tokens", "max_completion_tokens")), what=where) or None
        )
        ids = of(inputs, "input_ids")
        self.prompt_tokens = len(ids) if isinstance(ids, list) and ids else None
        self.characters = sum(len(text) for text in _texts(inputs, payload))
        self.answer_tokens: int | None = None
        self.cached: int | None = None
        self.error: str | None = None
        self.times_ns = self._read_events(said, where=where)
        if self.error is None and not self.times_ns:
            self.error = "an answer without text"

    def _read_events(self, said: Mapping[str, Any], *, where: str) -> list[int]:
        """Return when events with text came, and take counts and errors from the events."""
        times = said.get("response_timestamps")
        if not isinstance(times, list):
            raise TraceError(f"{where}: response_timestamps: got no list, {_HINT}")
        outputs = said.get("response_outputs")
        outputs = outputs if isinstance(outputs, list) and len(outputs) == len(times) else None
        ns = [_ns(time, what=f"{where}: response_timestamps") for time in times]
        if any(after < before for before, after in zip([self.sent_ns, *ns], ns, strict=False)):
            raise TraceError(f"{where}: response_timestamps: got a time before the one before it, {_HINT}")
        if outputs is None:
            return ns
        return [time for time, output in zip(ns, outputs, strict=True) if self._has_text(output, where=where)]

    def _has_text(self, output: object, *, where: str) -> bool:
        """Return whether an event carries text of the answer; take its usage and its error."""
        raw = of(output, "response")
        if not isinstance(raw, str):
            return isinstance(output, Mapping) and any(
                isinstance(value, str | list) and len(value) > 0 for value in output.values()
            )
        has_text = False
        for event in _events(raw):
            usage = of(event, "usage")
            if isinstance(usage, Mapping):
                self._take_usage(usage, where=where)
            if isinstance(event, Mapping) and event.get("error") is not None:
                self.error = message(of(event, "error", "message") or event.get("error"))
            has_text |= _carries_text(event)
        return has_text

    def _take_usage(self, usage: Mapping[str, Any], *, where: str) -> None:
        prompt = tokens(usage.get("prompt_tokens"), what=f"{where}: usage.prompt_tokens")
        answer = tokens(usage.get("completion_tokens"), what=f"{where}: usage.completion_tokens")
        cached = tokens(of(usage, "prompt_tokens_details", "cached_tokens"), what=f"{where}: cached_tokens")
        self.prompt_tokens = prompt or self.prompt_tokens
        self.answer_tokens = answer or self.answer_tokens
        self.cached = cached if cached is not None and cached <= (prompt or 0) else self.cached

    def row(self, origin_ns: int) -> Measured:
        """Return the request's row; times count from ``origin_ns``."""
        times = tuple((time - origin_ns) // 1000 for time in self.times_ns)
        ok = self.error is None
        guess = max(round(self.characters / _CHARACTERS_PER_TOKEN), 1)
        return Measured(
            send_us=(self.sent_ns - origin_ns) // 1000,
            prompt=guess if self.prompt_tokens is None else self.prompt_tokens,
            output=(self.answer_tokens or len(times)) if ok else None,
            first_us=times[0] if times else None,
            last_us=times[-1] if times else None,
            error=self.error,
            streamed=len(times) > 1 or self.answer_tokens == 1,
            session=self.session,
            max_tokens=self.max_tokens,
            cached=self.cached,
            events_us=times if ok and len(times) > 1 else (),
        )


def _payload(inputs: object) -> object:
    """Return the body of a request, which stands as text in its inputs; None where there is none."""
    raw = of(inputs, "payload")
    if not isinstance(raw, str):
        return raw if isinstance(raw, Mapping) else None
    try:
        return parse_value(raw)
    except ValueError:
        return None


def _texts(inputs: object, payload: object) -> Iterator[str]:
    """Yield the texts of a prompt."""
    for found in (of(inputs, "text_input"), of(payload, "prompt")):
        if isinstance(found, str):
            yield found
        elif isinstance(found, list):
            yield from (each for each in found if isinstance(each, str))
    messages = of(payload, "messages")
    for each in messages if isinstance(messages, list) else ():
        content = of(each, "content")
        if isinstance(content, str):
            yield content
        for piece in content if isinstance(content, list) else ():
            text = of(piece, "text")
            if isinstance(text, str):
                yield text


def _events(raw: str) -> Iterator[object]:
    """Yield the JSON values of an event's lines, ``data:`` taken off; what is no JSON is left."""
    for line in raw.split("\n"):
        text = line.strip().removeprefix("data:").strip()
        if text.startswith("{"):
            try:
                yield parse_value(text)
            except ValueError:
                continue


def _carries_text(event: object) -> bool:
    choices = of(event, "choices")
    for choice in choices if isinstance(choices, list) else ():
        for keys in (("delta", "content"), ("message", "content"), ("text",)):
            if of(choice, *keys):
                return True
        if of(choice, "delta", "reasoning_content") or of(choice, "delta", "reasoning"):
            return True
    return bool(of(event, "text_output"))


def _first(mapping: object, *keys: str) -> object:
    return next((value for key in keys if (value := of(mapping, key)) is not None), None)


def _integer(value: object) -> object:
    """Return a value that is an integer; None for another, which a request may have."""
    return value if type(value) is int else None


def _ns(value: object, *, what: str) -> int:
    if type(value) is not int or not 0 <= value <= MOST_US * 1000:
        raise TraceError(f"{what}: got {quoted(str(value))}, expected a time in ns")
    return value
