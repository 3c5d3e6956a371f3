"""A file of pools, and which of them each request goes to, by what is known before the run."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from replay.fleet.inputs.failures import FailureClass, read_failures
from replay.fleet.inputs.whole_requests import WholeRequests
from replay.model.prices import MOST_PRICE
from replay.twin.peers.fleet_simulator import POOL_KEYS
from sim.fleet import Lengths
from traces import ConfigError
from traces.strict.section import Section, read_section
from traces.strict.whole_file import whole_file

PoolRouter = Literal["length", "spillover", "compress", "least-loaded", "random", "model", "semantic"]
ROUTERS: tuple[PoolRouter, ...] = get_args(PoolRouter)
BY_LABEL = ("model", "semantic")
KEYS = ("name", "profile", "up_to", "takes", "share", "price", "failures")

Ints = NDArray[np.int64]
Texts = NDArray[np.str_]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """One pool as the file has it. ``up_to``: longest request, tokens; ``price``: of a GPU and hour.

    ``failures``: of its nodes, its own or the file's.
    """

    name: str
    profile: str
    up_to: int | None
    takes: tuple[str, ...]
    share: float | None
    price: float | None
    failures: tuple[FailureClass, ...] = ()


def router_of(name: str) -> PoolRouter:
    """Return a router by its name. Raises ConfigError."""
    if name not in ROUTERS:
        raise ConfigError(f"--router: got {name!r}, expected one of {', '.join(ROUTERS)}")
    return name


def read_pools(path: Path) -> tuple[PoolRouter | None, list[PoolSpec]]:
    """Return the router and the pools of a file, the shortest requests' first. Raises ConfigError."""
    root = read_section(path)
    root.refuse_unknown(("router", "pools", "failures"))
    router = root.text("router", choices=ROUTERS)
    of_all = read_failures(root)
    specs = [_spec(each, of_all) for each in root.sections("pools")]
    if not specs:
        raise ConfigError(f"pools: got none in {path}, expected at least one")
    names = [each.name for each in specs]
    if len(set(names)) < len(names):
        raise ConfigError(f"pools: got a name twice in {path}, expected different names")
    specs.sort(key=lambda each: math.inf if each.up_to is None else each.up_to)
    return cast("PoolRouter | None", router), specs


def _spec(section: Section, failures: tuple[FailureClass, ...]) -> PoolSpec:
    section.refuse_unknown(KEYS, elsewhere=POOL_KEYS)
    profile, share, price = (
        section.text("profile"),
        section.decimal("share", expected="a share of the requests"),
        section.decimal("price", expected="a price per GPU and hour"),
    )
    if profile is None:
        section.fail(
            "profile", got="nothing", expected="A100, H100, MODEL@GPU:TP, a twin or a profile's file"
        )
    if price is not None and not 0 <= price <= MOST_PRICE:
        section.fail(
            "price", got=str(price), expected=f"a price per GPU and hour of at most {MOST_PRICE:,.0f}"
        )
    return PoolSpec(
        name=section.text("name") or profile,
        profile=profile,
        up_to=section.integer("up_to", least=16),
        takes=section.texts("takes"),
        share=None if share is None else float(share),
        price=None if price is None else float(price),
        failures=read_failures(section) or failures,
    )


def read_labels(
    whole: WholeRequests | None, labels: Path | None, *, router: PoolRouter, name: str
) -> Texts | None:
    """Return each request's label, in their order; None where they have no labels. ``name``: the workload's.

    ``model``: the trace's own column. ``semantic``: ``labels``, a CSV of request_id and label, as written by the user's
    own classifier. Raises ConfigError.
    """
    if router not in BY_LABEL or whole is None:
        return None
    trace = whole.trace
    if router == "model":
        models = np.asarray(trace.column("model").astype("string").fillna(""), dtype=np.str_)
        if not (models != "").any():
            raise ConfigError(f"--router model: got {name} without models, expected some in its column model")
        return models
    if labels is None:
        raise ConfigError(
            "--labels: got nothing, expected a CSV of request_id and label for the router semantic"
        )
    try:
        text = whole_file(labels).decode("utf-8-sig")
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        by_request = {row["request_id"]: row["label"] or "" for row in rows}
    except (OSError, KeyError, UnicodeDecodeError, csv.Error) as error:
        why = {OSError: getattr(error, "strerror", ""), UnicodeDecodeError: "bytes that are not UTF-8"}
        said = next((text for kind, text in why.items() if isinstance(error, kind)), str(error))
        raise ConfigError(
            f"--labels: got {labels}, expected a CSV of request_id and label ({said})"
        ) from error
    ids = trace.column("request_id").astype("string")
    return np.array([by_request.get(str(each), "") for each in ids], dtype=np.str_)


def assigned(
    specs: Sequence[PoolSpec], router: PoolRouter, lengths: Lengths, *, labels: Texts | None, seed: int
) -> Ints:
    """Return the pool that each request is sized for, int64 [n]; -1: none takes it.

    By length the first pool that holds it, by label the pool that takes it; else, and without labels, by the pools'
    shares (equal ones unless written) among those that hold it, drawn by ``seed``. Raises ConfigError.
    """
    limits = np.array([math.inf if each.up_to is None else each.up_to for each in specs])
    fits = lengths.total_tokens[:, None] <= limits[None, :]
    if router in BY_LABEL and labels is not None:
        taken = {label: number for number, each in enumerate(specs) for label in each.takes}
        pools = np.array([taken.get(str(each), -1) for each in labels], np.int64)
        if (pools < 0).all():
            there = ", ".join(sorted(set(labels.tolist())))
            raise ConfigError(f"takes: got {', '.join(taken) or 'no labels'}, expected some of {there}")
        held = fits[np.arange(len(pools)), pools]
        return np.where(held, pools, -1)
    if router in ("length", "spillover", "compress"):
        return np.where(fits.any(1), fits.argmax(1), -1).astype(np.int64)
    if router in BY_LABEL and any(each.share is None for each in specs):
        raise ConfigError(f"--router {router}: got a workload without labels, expected a share for each pool")
    shares = np.array([1.0 if each.share is None else each.share for each in specs])
    # a request of some model must go to that model's pool: one that is too long fits no pool
    weight = np.broadcast_to(shares, fits.shape) if router in BY_LABEL else fits * shares
    edges = np.cumsum(weight, axis=1)
    draws = np.random.Generator(np.random.Philox(seed)).random(len(lengths))
    chosen = (draws[:, None] * edges[:, -1:] >= edges).sum(1).clip(max=len(specs) - 1)
    return np.where(fits[np.arange(len(chosen)), chosen], chosen, -1).astype(np.int64)
