"""Request bodies of the OpenAI API: checked, and turned into requests for the engine. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from lazy_dataclasses import dataclass

import numpy as np

from replay.serve.tokens import NUM_IDS, WORD_IDS, WORDS, Tokens, answer, encode
from traces import cut, quoted, with_cut_pieces

DEFAULT_MAX_TOKENS = 16
"""What /v1/completions gives without max_tokens (the OpenAI API's own default)."""

UNASKED_LENGTHS = (32, 256)
"""Answers to requests without max_tokens end by themselves after this many tokens, drawn from the prompt."""

MOST_STOPS = 128
"""Stop texts of a request: each is looked for in each answer."""

LARGEST_PRIORITY = 2**31 - 1

TOO_DEEP = "body: got JSON that is nested too deeply"

_MAY_BE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")

Body = Mapping[str, object]


class Refusal(Exception):  # noqa: N818 - it is an answer, not a fault
    """A request that gets an error response: status and the OpenAI error object's fields.

    ``closes``: its connection ends with it, since the rest of its body was not read.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "BadRequestError",
        param: str | None = None,
        closes: bool = False,
    ) -> None:
        message = with_cut_pieces(message)
        super().__init__(message)
        self.message, self.status, self.kind, self.param = message, status, kind, param
        self.closes = closes

    def body(self) -> dict[str, object]:
        """Return the response's JSON."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        return {"error": error}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A checked request: what to generate, and how to answer. ``max_tokens`` None: no limit was given.

    ``guided``: a grammar is asked for. It takes the engine's time; the answer's words do not follow it.
    """

    chat: bool
    prompts: tuple[Tokens, ...]
    max_tokens: int | None
    min_tokens: int
    ignore_eos: bool
    stop: tuple[str, ...]
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool
    priority: int
    cache_salt: str
    guided: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one prompt, decided in advance: a text per token, and how it ends."""

    texts: tuple[str, ...]
    tokens: Tokens
    finish_reason: str
    stop_reason: str | None

    def text(self, start: int, end: int) -> str:
        """Return the text of tokens [start, end)."""
        return "".join(self.texts[start:end])


def parse_body(raw: bytes) -> Body:
    """Return a request's JSON object. Raises Refusal."""
    try:
        body = json.loads(raw)
        if _MAY_BE_SURROGATE.search(raw) or json.detect_encoding(raw) != "utf-8":
            json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise Refusal("body: got half of a surrogate pair, expected text that is Unicode") from error
    except ValueError as error:  # UnicodeDecodeError is one, too
        raise Refusal(f"body: got text that is not JSON ({error}), expected a JSON object") from error
    except RecursionError as error:
        raise Refusal(TOO_DEEP) from error
    if not isinstance(body, dict):
        raise Refusal(f"body: got {kind_of(body)}, expected a JSON object")
    return body


PartReader = Callable[[object], Tokens]
"""Returns the tokens of a part of a message that is no text. Raises Refusal for one that it does not know."""


def parse_completion(body: Body) -> Job:
    """Return the job of a /v1/completions body. Raises Refusal."""
    _refuse_unsupported(body)
    absent = "max_tokens" not in body
    return job_of(
        body, chat=False, prompts=prompts_of(body), max_tokens=DEFAULT_MAX_TOKENS if absent else None
    )


def parse_chat(body: Body, *, read_part: PartReader | None = None) -> Job:
    """Return the job of a /v1/chat/completions body; ``read_part``: as of ``chat_tokens``. Raises Refusal."""
    _refuse_unsupported(body)
    return job_of(body, chat=True, prompts=(chat_tokens(body, read_part=read_part),), max_tokens=None)


def check_model(body: Body, model: str) -> None:
    """Raise Refusal when the body asks for a model that is not served; no name means the served one."""
    asked = body.get("model")
    if asked is not None and asked != model:
        message = f"The model `{asked}` does not exist."
        raise Refusal(message, status=404, kind="NotFoundError", param="model")


def plan_answer(job: Job, prompt: Tokens, *, max_model_len: int) -> Answer:
    """Return the answer to one prompt. Raises Refusal on lengths that vLLM's API server refuses.

    The limits are vLLM's: a prompt of max_model_len or more, and a max_tokens beyond max_model_len, are
    refused; a max_tokens that does not fit behind the prompt is cut.
    """
    _check_lengths(job, len(prompt), max_model_len=max_model_len)
    room = max_model_len - len(prompt)
    length, reason = min(room, job.max_tokens or room), "length"
    if job.max_tokens is None and not job.ignore_eos:
        shortest, longest = UNASKED_LENGTHS
        drawn = shortest + int(answer(prompt, 1)[0]) * (longest - shortest) // len(WORDS)
        if max(drawn, job.min_tokens) < length:
            length, reason = max(drawn, job.min_tokens), "stop"
    numbers = answer(prompt, length)
    texts = tuple(WORDS[number] for number in numbers)
    tokens = WORD_IDS[numbers]
    return _stopped(Answer(texts=texts, tokens=tokens, finish_reason=reason, stop_reason=None), job)


def chat_tokens(body: Body, *, read_part: PartReader | None = None) -> Tokens:
    """Return a chat's prompt: per message its role, text and an end mark, then the assistant's turn.

    ``read_part``: what reads the parts that are no text; None: they are refused. Raises Refusal.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refusal(f"messages: got {kind_of(messages)}, expected a list of messages", param="messages")
    parts = [part for message in messages for part in _message_tokens(message, read_part)]
    return np.concatenate([*parts, encode("<assistant>\n")])


def _message_tokens(message: object, read_part: PartReader | None) -> list[Tokens]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise Refusal(f"messages: got {kind_of(message)}, expected objects with a role", param="messages")
    # The text is cut into tokens by itself, so that an answer quoted later has the tokens it was made of.
    said = _content(message.get("content"), read_part)
    return [encode(f"<{message['role']}>\n"), *said, encode("\n")]


def _content(content: object, read_part: PartReader | None) -> list[Tokens]:
    """Return a message's texts, joined from one other part to the next, and these parts."""
    if content is None:
        return []
    if isinstance(content, str):
        return [encode(content)]
    if not isinstance(content, list):
        raise Refusal("messages: got content that is not text, expected text", param="messages")
    found: list[Tokens] = []
    text = ""
    for part in content:
        said = part.get("text") if isinstance(part, dict) else None
        if isinstance(said, str):
            text += said
            continue
        found += [encode(text), _other(part) if read_part is None else read_part(part)]
        text = ""
    return [*found, encode(text)]


def _other(_: object) -> Tokens:
    raise Refusal("messages: got content that is not text, expected text", param="messages")


def job_of(body: Body, *, chat: bool, prompts: tuple[Tokens, ...], max_tokens: int | None) -> Job:
    """Return the job of a body whose prompts are known; ``max_tokens``: where it states none. Raises Refusal."""
    asked = integer(body, "max_completion_tokens") if chat else None
    asked = integer(body, "max_tokens") if asked is None else asked
    max_tokens = max_tokens if asked is None else asked
    min_tokens = integer(body, "min_tokens") or 0
    if max_tokens is not None and max_tokens < 1:
        raise Refusal(f"max_tokens must be at least 1, got {max_tokens}.", param="max_tokens")
    if min_tokens < 0:
        raise Refusal(f"min_tokens must be at least 0, got {min_tokens}.", param="min_tokens")
    if max_tokens is not None and min_tokens > max_tokens:
        message = f"min_tokens must be at most max_tokens={max_tokens}, got {min_tokens}."
        raise Refusal(message, param="min_tokens")
    stream = _boolean(body, "stream")
    options = body.get("stream_options")
    if options is not None and (not stream or not isinstance(options, dict)):
        message = "stream_options: expected an object, beside stream: true only"
        raise Refusal(message, param="stream_options")
    options = options if isinstance(options, dict) else {}
    return Job(
        chat=chat,
        prompts=prompts,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        ignore_eos=_boolean(body, "ignore_eos"),
        stop=_stop(body),
        stream=stream,
        include_usage=_boolean(options, "include_usage"),
        continuous_usage=_boolean(options, "continuous_usage_stats"),
        return_token_ids=_boolean(body, "return_token_ids"),
        priority=_priority(body),
        cache_salt=str(body.get("cache_salt") or ""),
        guided=_is_guided(body),
    )


def prompts_of(body: Body, name: str = "prompt") -> tuple[Tokens, ...]:
    """Return the prompts of the field ``name``: text, token ids, or a list of either. Raises Refusal."""
    prompt = body.get(name)
    if isinstance(prompt, str):
        return (encode(prompt),)
    if isinstance(prompt, list) and prompt:
        if all(isinstance(item, str) for item in prompt):
            return tuple(map(encode, prompt))
        if all(isinstance(item, list) for item in prompt):
            return tuple(token_ids(item, param=name) for item in prompt)
        return (token_ids(prompt, param=name),)
    message = f"{name}: got {kind_of(prompt)}, expected text, token ids, or a list of either"
    raise Refusal(message, param=name)


def token_ids(items: object, *, param: str = "prompt") -> Tokens:
    """Return a JSON list of token ids as an array. Raises Refusal."""
    if isinstance(items, list) and all(type(item) is int and 0 <= item < NUM_IDS for item in items):
        return np.array(items, dtype=np.int64)
    raise Refusal(f"{param}: got a list with something else, expected token ids from 0", param=param)


def _stopped(whole: Answer, job: Job) -> Answer:
    """Return the answer cut where the first stop text begins, as far as min_tokens lets it."""
    text, skip = whole.text(0, len(whole.texts)), len(whole.text(0, job.min_tokens))
    found = [(at, stop) for stop in job.stop if (at := text.find(stop, skip)) >= 0]
    if not found:
        return whole
    start, stop = min(found, key=lambda item: item[0] + len(item[1]))
    ends = np.cumsum([len(piece) for piece in whole.texts])
    length = int(np.searchsorted(ends, start + len(stop))) + 1
    begins = [0, *ends.tolist()]
    texts = tuple(text[begins[i] : min(begins[i + 1], start)] for i in range(length))
    return Answer(texts=texts, tokens=whole.tokens[:length], finish_reason="stop", stop_reason=stop)


def _check_lengths(job: Job, prompt_tokens: int, *, max_model_len: int) -> None:
    limit = f"This model's maximum context length is {max_model_len} tokens."
    if prompt_tokens == 0:
        raise Refusal("prompt: got 0 tokens, expected at least 1", param="prompt")
    if prompt_tokens >= max_model_len:
        message = f"{limit} However, your request has {prompt_tokens} input tokens: no room for output."
        raise Refusal(message, param="input_tokens")
    if job.max_tokens is not None and job.max_tokens > max_model_len:
        message = f"{limit} However, max_tokens={job.max_tokens} was requested."
        raise Refusal(message, param="max_tokens")
    if job.min_tokens > max_model_len - prompt_tokens:
        message = (
            f"{limit} However, min_tokens={job.min_tokens} does not fit behind {prompt_tokens} input tokens."
        )
        raise Refusal(message, param="min_tokens")


_ONLY: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "use_beam_search": (False,),
    "echo": (False,),
    "logprobs": (False,),
    "prompt_logprobs": (),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none",),
    "functions": ([],),
    "function_call": ("none",),
}
"""Features that the emulated server lacks: the values, besides null, that are accepted."""


def _refuse_unsupported(body: Body) -> None:
    for name, allowed in _ONLY.items():
        value = body.get(name)
        if value is not None and not any(
            value is a or (type(value) is type(a) and value == a) for a in allowed
        ):
            raise Refusal(
                f"{name}: got {cut(json.dumps(value))}, which this server does not emulate", param=name
            )


FORMATS = ("text", "json_object", "json_schema")
"""Types of ``response_format`` that are taken; vLLM's structural_tag is not emulated."""

GRAMMARS = ("json", "regex", "choice", "grammar", "json_object")
"""The kinds of constraint in ``structured_outputs``: exactly one, as in vLLM."""


def _is_guided(body: Body) -> bool:
    """Return whether the answer must follow a grammar. Raises Refusal for a kind that is not emulated."""
    wanted, structured = body.get("response_format"), body.get("structured_outputs")
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if wanted is not None and kind not in FORMATS:
        message = (
            f"response_format: got {cut(json.dumps(wanted))}, expected a type of {', '.join(FORMATS)}: no other is "
            "emulated"
        )
        raise Refusal(message, param="response_format")
    if isinstance(wanted, dict) and kind == "json_schema" and not isinstance(wanted.get("json_schema"), dict):
        raise Refusal("response_format: got no json_schema, expected an object", param="response_format")
    given = [name for name in GRAMMARS if isinstance(structured, dict) and structured.get(name)]
    if structured is not None and len(given) != 1:
        message = (
            f"structured_outputs: got {cut(json.dumps(structured))}, expected one of {', '.join(GRAMMARS)}"
        )
        raise Refusal(message, param="structured_outputs")
    return kind not in (None, "text") or bool(given)


def _stop(body: Body) -> tuple[str, ...]:
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else ([] if stop is None else stop)
    if not isinstance(stops, list) or not all(isinstance(item, str) for item in stops):
        raise Refusal(f"stop: got {kind_of(stop)}, expected text or a list of texts", param="stop")
    if len(stops) > MOST_STOPS:
        raise Refusal(f"stop: got {len(stops):,} texts, expected at most {MOST_STOPS}", param="stop")
    return tuple(item for item in stops if item)


def integer(body: Body, name: str) -> int | None:
    """Return a field that is an integer, or None where it is missing. Raises Refusal."""
    value = body.get(name)
    if value is not None and type(value) is not int:
        raise Refusal(f"{name}: got {kind_of(value)}, expected an integer", param=name)
    return value


def _priority(body: Body) -> int:
    priority = integer(body, "priority") or 0
    if abs(priority) > LARGEST_PRIORITY:
        raise Refusal(f"priority: expected an integer of 32 bits, got {quoted(priority)}", param="priority")
    return priority


def _boolean(body: Body, name: str) -> bool:
    value = body.get(name)
    if value is not None and type(value) is not bool:
        raise Refusal(f"{name}: got {kind_of(value)}, expected true or false", param=name)
    return bool(value)


def kind_of(value: object) -> str:
    """Return what a value of JSON is, in words."""
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", type(None): "nothing"}
    return names.get(type(value), "a number")
