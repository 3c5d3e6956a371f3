"""The APIs that requests can be sent to: one entry each, which says all that is asked of an API anywhere.

Source of paths and fields: vLLM 0.32 ``vllm/entrypoints``. An API that is no completion has a module of
``observe.kinds``, which makes the body and reads the answer in the words of a completion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from lazy_dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, cast

from traces.strict.arguments import OneOf
from traces.workload import Api

AsCompletion: TypeAlias = Callable[[dict[str, Any]], dict[str, Any] | str]
"""Returns an event or an answer as a completion's, or why it is none; ``finish_reason`` may be beside the choices."""

JSON: Final = "application/json"
BOUNDARY: Final = "vtwin-4f1d7c0ab35e4e9c8a62d90b17f3e5d8"
"""Between the parts of a form: a sound holds these 38 bytes with a chance below 1 in 10^80."""


class KindModule(Protocol):
    """What a module of ``observe.kinds`` says of its APIs."""

    def body(self, api: Api, prompt: bytes, fields: Mapping[str, object], /) -> bytes:
        """Return the body of a request; ``fields``: those of a completion, without its prompt."""

    def as_completion(self, api: Api, num_inputs: int, /) -> AsCompletion:
        """Return the reader of answers to requests of so many inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKind:
    """One API. ``generates``: its answers are tokens, and are streamed; else a request is a prefill alone.

    ``has_messages``: a prompt is a list of messages. ``takes_token_ids``: it may be token ids. ``num_texts``: how many
    texts each input is made of. ``is_sound``: a prompt is a WAV file. ``content_type``: of its body, in the header of
    that name. ``limit_name``: the field of the output's length. ``lacks``: a completion's fields that it has not.
    ``module``: of its own.
    """

    path: str
    has_messages: bool = False
    takes_token_ids: bool = False
    generates: bool = True
    num_texts: int = 1
    is_sound: bool = False
    content_type: str = JSON
    limit_name: str = "max_tokens"
    lacks: frozenset[str] = frozenset()
    module: str | None = None

    def own(self) -> KindModule | None:
        """Return its module, None where it is a completion."""
        return None if self.module is None else cast(KindModule, import_module(self.module))


_POOLING: Final = "observe.kinds.pooling"
KINDS: Final[Mapping[Api, RequestKind]] = {
    "completions": RequestKind(path="/v1/completions", takes_token_ids=True),
    "chat": RequestKind(path="/v1/chat/completions", has_messages=True),
    "responses": RequestKind(
        path="/v1/responses",
        has_messages=True,
        limit_name="max_output_tokens",
        module="observe.kinds.responses",
    ),
    "messages": RequestKind(
        path="/v1/messages",
        has_messages=True,
        lacks=frozenset({"ignore_eos", "min_tokens", "priority"}),
        module="observe.kinds.anthropic_messages",
    ),
    "transcriptions": RequestKind(
        path="/v1/audio/transcriptions",
        is_sound=True,
        content_type=f"multipart/form-data; boundary={BOUNDARY}",
        limit_name="max_completion_tokens",
        lacks=frozenset({"ignore_eos", "min_tokens", "priority"}),
        module="observe.kinds.transcriptions",
    ),
    "embeddings": RequestKind(path="/v1/embeddings", takes_token_ids=True, generates=False, module=_POOLING),
    "pooling": RequestKind(path="/pooling", takes_token_ids=True, generates=False, module=_POOLING),
    "classify": RequestKind(path="/classify", takes_token_ids=True, generates=False, module=_POOLING),
    "rerank": RequestKind(path="/v1/rerank", generates=False, num_texts=2, module=_POOLING),
    "score": RequestKind(path="/v1/score", generates=False, num_texts=2, module=_POOLING),
}
API: Final = OneOf(tuple(KINDS))


def content_type(path: str) -> str:
    """Return the type of the bodies that are sent to ``path``."""
    return next((kind.content_type for kind in KINDS.values() if kind.path == path), JSON)
