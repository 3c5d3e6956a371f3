"""The server's own information before and after a run; all of it is optional, except that it answers."""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass
from typing import Any

from observe.response.stated_values import short_text, token_count
from observe.server.http_client import ServerClient, WholeAnswer
from observe.server.prometheus_text import Sample, parse_metrics
from observe.server.server_metrics import learn_from_metrics, speaks_vllm
from traces import ConfigError, ServerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """The server before the run. ``served``: the names it lists; ``metrics``: None without ``/metrics``.

    ``notes``: what it does not offer, each with the flag that would turn it on.
    """

    model: str
    served: tuple[str, ...]
    info: ServerInfo
    is_vllm: bool
    metrics: list[Sample] | None
    notes: tuple[str, ...]


async def ask_server(client: ServerClient, *, model: str | None) -> ServerFacts:
    """Return the server's information before the run; ``model`` None takes the one it serves.

    Raises ServerError where it refuses, cannot be found, answers 401, 403 or 5xx, or has no list to take a model from;
    ConfigError for a model that a vLLM server does not list, or where its list is empty.
    """
    listing = await client.get("/v1/models")
    client.refuse("/v1/models", listing)
    if model is None:
        client.need_model_list("/v1/models", listing)
    version = await client.try_get("/version")
    scrape = await client.try_get("/metrics")
    return facts_of(listing, version=version, scrape=scrape, model=model)


def facts_of(
    listing: WholeAnswer, *, version: WholeAnswer | None, scrape: WholeAnswer | None, model: str | None
) -> ServerFacts:
    """Return the information in the answers of ``/v1/models``, ``/version`` and ``/metrics``; see ``ask_server``."""
    models = _models(listing)
    metrics = None if scrape is None else parse_metrics(scrape.body.decode("utf-8", "replace"))
    is_vllm = any(entry.get("owned_by") == "vllm" for entry in models.values()) or speaks_vllm(metrics or [])
    name, notes = _choose_model(models, model, strict=is_vllm)
    info = ServerInfo().learn(
        "/v1/models", max_model_len=token_count(models.get(name, {}).get("max_model_len")) or None
    )
    info = info.learn("given by the user" if model else "/v1/models", model=name)
    root = short_text(models.get(name, {}).get("root"))
    info = info.learn("/v1/models", model_root=None if root == name else root)
    info = info.learn("/version", version=_version(version))
    info = info.learn(
        "/metrics" if speaks_vllm(metrics or []) else "/v1/models", type="vllm" if is_vllm else None
    )
    return ServerFacts(
        model=name,
        served=tuple(models),
        info=learn_from_metrics(info, metrics or []),
        is_vllm=is_vllm,
        metrics=metrics,
        notes=(*notes, *_absences(models, version, metrics)),
    )


async def scrape_metrics(client: ServerClient) -> list[Sample] | None:
    """Return the samples of ``/metrics``, or None where there are none."""
    answer = await client.try_get("/metrics")
    return None if answer is None else parse_metrics(answer.body.decode("utf-8", "replace"))


def _models(listing: WholeAnswer) -> dict[str, Mapping[str, Any]]:
    """Return the served models by name, empty where the server does not list any; a name fits on a line."""
    if listing.status != 200:
        return {}
    entries = listing.json().get("data")
    if not isinstance(entries, list):
        return {}
    return {
        entry["id"]: entry
        for entry in entries
        if isinstance(entry, dict) and short_text(entry.get("id")) is not None
    }


def _choose_model(
    models: Mapping[str, Mapping[str, Any]], wanted: str | None, *, strict: bool
) -> tuple[str, tuple[str, ...]]:
    listed = ", ".join(models)
    if wanted is not None:
        if models and wanted not in models and strict:
            raise ConfigError(f"--model: got {wanted!r}, expected one that the server lists: {listed}")
        unlisted = bool(models) and wanted not in models
        return wanted, ((f"model {wanted!r} is not among those listed: {listed}",) if unlisted else ())
    if not models:
        raise ConfigError("--model: got none, and /v1/models lists none; expected --model NAME")
    models = {name: entry for name, entry in models.items() if not entry.get("parent")} or models
    listed = ", ".join(models)
    first = next(iter(models))
    return first, ((f"several models are served ({listed}): using {first!r}",) if len(models) > 1 else ())


def _absences(
    models: Mapping[str, object], version: WholeAnswer | None, metrics: list[Sample] | None
) -> tuple[str, ...]:
    said: list[str] = []
    if not models:
        said.append("no /v1/models: max_model_len unknown")
    if version is None or _version(version) is None:
        said.append("no /version: the server's version is unknown")
    if metrics is None:
        said.append(
            "no /metrics: KV blocks, preemptions and cache hits unknown (vllm: no --disable-log-stats)"
        )
    elif not any(sample.name == "vllm:cache_config_info" for sample in metrics):
        said.append("/metrics without vllm:cache_config_info: KV blocks unknown")
    return tuple(said)


def _version(answer: WholeAnswer | None) -> str | None:
    return None if answer is None else short_text(answer.json().get("version"))
