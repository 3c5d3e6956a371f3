"""Sessions against plain second versions: contents of blocks as lists of names, results and reuse by counting.

Traces are drawn: recorded hashes, prompts that go on from others, prefix groups, and sessions that grow.
"""

from __future__ import annotations

import random
from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest

from replay.sessions.prefix_hashes import prefix_hashes
from replay.sessions.results import session_results
from replay.sessions.reuse import KVReuse, kv_reuse
from replay.sessions.session_summary import CacheNeeds, _alone_at_end_frac, cache_needs, needs_rows
from sim import EngineConfig, HeldBlocks, KVCacheGroup, Requests
from tests.examples import few_or_all
from tests.replay.sessions.test_reuse import BLOCK, drawn_requests
from traces import HashChains, Header, Trace, make_trace

Rows = list[dict[str, Any]]
KINDS = ("hashes", "chained", "groups", "rounds", "rounds after hashes", "rounds after groups", "nothing")


def drawn_rows(rng: random.Random, kind: str, *, size: int) -> Rows:
    """Return 1 to 7 requests; ``size``: tokens of a recorded hash. ``path``: the hashes of the whole prompt."""
    rows: Rows = []
    name = rng.choice([str, lambda path: f"h{path}", lambda path: str(10**9 + int(path)), "9".__add__])
    for number in range(rng.randint(1, 7)):
        path = ["1" * i + str(rng.randint(0, 1)) for i in range(1, rng.randint(0, 5))]
        for i in range(1, len(path)):
            path[i] = path[i - 1] + path[i][-1]
        row: dict[str, Any] = {"request_id": f"r{number}", "path": [name(each) for each in path]}
        row["model"], row["adapter"] = rng.choice([None, "a", "b"]), rng.choice([None, None, "x", "y"])
        row["output_tokens"] = rng.randint(1, 12)
        row["server_input_tokens"] = rng.choice([rng.randint(1, 4 * size), 5 * size])
        row["group"], row["prefix"] = rng.choice([None, "g", "h"]), rng.randint(0, 4 * size)
        row["kept"], row["parent"] = 0, None
        rows.append(row)
    if kind == "chained":
        for number, row in enumerate(rows[1:], 1):
            parent = rng.choice(rows[:number])
            if rng.random() < 0.7 and parent["path"]:
                kept = rng.choice([len(parent["path"]), rng.randint(1, len(parent["path"]))])
                more = [f"{number + 1}{i}" for i in range(rng.randint(0, 2))]
                row |= {
                    "parent": parent["request_id"],
                    "kept": kept,
                    "path": [*parent["path"][:kept], *map(name, more)],
                }
    if kind.startswith("rounds"):
        for number, row in enumerate(rows):
            row["session"], row["grows"] = rng.choice("stu"), number == 0 or rng.random() < 0.8
            row["round"] = sum(each["session"] == row["session"] for each in rows[:number])
            if any(each["session"] == row["session"] and each["grows"] for each in rows[:number]):
                row["path"] = [] if row["grows"] else row["path"]
    return rows


def trace_of(rows: Rows, kind: str, *, size: int) -> Trace:
    """Return the requests as a trace, one arriving after another."""
    columns: dict[str, Any] = {
        each: [row[each] for row in rows]
        for each in ("request_id", "output_tokens", "server_input_tokens", "model", "adapter")
    }
    columns["arrival_time_us"] = list(range(len(rows)))
    columns["input_tokens"] = [5 * size] * len(rows)
    if kind in ("hashes", "chained", "rounds after hashes"):
        columns["prefix_hashes"] = [" ".join(row["path"][row["kept"] :]) or None for row in rows]
    if kind == "chained":
        columns["num_parent_hashes"] = [row["kept"] for row in rows]
        columns["parent_request_id"] = [row["parent"] for row in rows]
    if kind in ("groups", "rounds after groups"):
        columns["prefix_group"] = [row["group"] for row in rows]
        columns["prefix_length"] = [row["prefix"] for row in rows]
    if kind.startswith("rounds"):
        columns["session_id"] = [row["session"] for row in rows]
        columns["round_index"] = [row["round"] for row in rows]
        columns["new_input_tokens"] = [1 if row["grows"] else None for row in rows]
    return make_trace(Header(hash_block_size=size), columns)


def plain_contents(rows: Rows, kind: str, *, size: int, block: int, lookahead: int) -> list[list[Hashable]]:
    """Return a name for what each block of each request holds; rows with the same name share it."""
    per_hash, shift = size // block, -(-lookahead // block)

    def within(tokens: int) -> int:
        return max(tokens - lookahead, 0) // block

    def recorded(row: dict[str, Any], num_hashes: int) -> list[Hashable]:
        num = within(min(num_hashes * size, row["server_input_tokens"]))
        places = [divmod(place + shift, per_hash) for place in range(num)]
        return [("hash", tuple(row["path"][: at + 1]), part) for at, part in places]

    def grouped(row: dict[str, Any]) -> list[Hashable]:
        shared = within(min(row["prefix"], row["server_input_tokens"])) if row["group"] else 0
        return [("group", row["group"], place) for place in range(shared)]

    def shared_hashes(row: dict[str, Any]) -> int:
        others = {each for other in rows if other is not row for each in other["path"]}
        return max((at for at, each in enumerate(row["path"], 1) if each in others), default=0)

    found = []
    for row in rows:
        its: list[Hashable] = []
        if kind == "chained":
            its = recorded(row, len(row["path"]))
        elif kind == "hashes":
            its = recorded(row, shared_hashes(row))
        elif kind == "groups":
            its = grouped(row)
        elif kind.startswith("rounds"):
            text = [each for each in rows if each["grows"] and each["session"] == row["session"]]
            text = text if row["grows"] else [row]
            first, at = text[0], text.index(row)
            said = [
                within(each["server_input_tokens"] + each["output_tokens"] - (not lookahead)) for each in text
            ]
            shared = [said[at]] if at + 1 < len(text) else [0]
            shared += [min(said[at - 1], within(row["server_input_tokens"]))] if at else []
            if kind == "rounds after hashes" and any(each["path"] for each in rows):
                its = recorded(first, len(first["path"]))
            elif kind == "rounds after groups":
                its = grouped(row)
            whose = row["session"] if row["grows"] else row["request_id"]
            its += [("said", row["grows"], whose, place) for place in range(len(its), max(shared))]
        found.append([(each, row["model"], row["adapter"]) for each in its])
    return found


def renumbered(rows: list[list[Any]]) -> list[list[int]]:
    """Return the contents as numbers in the order of their first appearance."""
    code: dict[Any, int] = {}
    return [[code.setdefault(each, len(code)) for each in row] for row in rows]


def contents(chains: HashChains) -> list[list[int]]:
    """Return each request's ids."""
    rows = zip(chains.starts.tolist(), chains.counts.tolist(), strict=True)
    return [chains.ids[start : start + count].tolist() for start, count in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_requests_share_the_blocks_that_hold_the_same(kind: str) -> None:
    for seed in range(few_or_all(150, 2000)):
        rng = random.Random(seed)
        block, per_hash, lookahead = rng.choice([1, 3, 4]), rng.randint(1, 3), rng.choice([0, 0, 1, 2, 5])
        rows = drawn_rows(rng, kind, size=block * per_hash)
        found = prefix_hashes(
            trace_of(rows, kind, size=block * per_hash),
            output_tokens=np.array([row["output_tokens"] for row in rows]),
            block_size=block,
            lookahead=lookahead,
        )
        plain = plain_contents(rows, kind, size=block * per_hash, block=block, lookahead=lookahead)
        assert renumbered(contents(found)) == renumbered(plain), seed
        ends = found.starts + found.counts
        assert (found.ids >= 0).all()
        assert (found.starts >= 0).all()
        assert (ends <= len(found.ids)).all(), seed
        if kind in ("hashes", "groups", "nothing"):  # each request's blocks behind the one's before it
            assert ends.tolist() == np.cumsum(found.counts).tolist()
            assert len(found.ids) == found.counts.sum()


def with_results(rng: random.Random, rows: Rows, kind: str, *, size: int) -> Trace:
    """Return the requests as a run served them: sessions, times, and what was found in the cache drawn."""
    for row in rows:
        row["session"] = row.get("session", rng.choice(["s", "t", "u", None]))
        row["ok"], row["warmup"] = rng.random() < 0.8, rng.random() < 0.1
        row["output_tokens"] *= row["ok"]  # of a failed request nothing is known
        row["sent"] = rng.randint(0, 30)
        row["scheduled"] = row["sent"] + rng.randint(0, 9)
        row["ended"] = row["scheduled"] + rng.randint(1, 20)
        row["cached"] = rng.choice([0, rng.randint(0, row["server_input_tokens"])])
    sent = [row["sent"] for row in rows]
    return trace_of(rows, kind, size=size).with_columns(
        session_id=[row["session"] for row in rows],
        output_tokens=[row["output_tokens"] or None for row in rows],
        status=["ok" if row["ok"] else "error" for row in rows],
        phase=["warmup" if row["warmup"] else "main" for row in rows],
        arrival_time_us=sent,
        send_time_us=sent,
        scheduled_time_us=[row["scheduled"] for row in rows],
        content_first_time_us=[row["ended"] for row in rows],
        last_token_time_us=[row["ended"] for row in rows],
        num_cached_tokens=[row["cached"] for row in rows],
    )


def plain_results(rows: Rows, kind: str, *, size: int, block: int) -> dict[str, list[Any]] | None:
    """Return the results by counting: each µs with a request under way, each hash that was there before."""
    grows = kind.startswith("rounds")
    chains: list[list[Any]] = [row["path"] if kind in ("hashes", "chained") else [] for row in rows]
    if grows:
        chains = plain_contents(rows, kind, size=size, block=block, lookahead=0)
    per_hash = block if grows else size
    users: dict[Any, set[str | None]] = {}
    for row, chain in zip(rows, chains, strict=True):
        for each in chain:
            users.setdefault(each, set()).add(row["session"])
    known: set[Any] = set()
    for row, chain in sorted(zip(rows, chains, strict=True), key=lambda pair: pair[0]["scheduled"]):
        found = next((at for at, each in enumerate(chain) if each not in known), len(chain)) * per_hash
        alone = next((at for at, each in enumerate(chain) if len(users[each]) == 1), len(chain)) * per_hash
        row["ideal"] = min(found, (row["server_input_tokens"] - 1) // block * block)
        row["shared"] = min(row["cached"], alone)
        known |= set(chain)
    names = list(dict.fromkeys(row["session"] for row in rows if row["session"]))
    told: dict[str, list[Any]] = {"names": names}
    for name in names:
        its = [row for row in rows if row["session"] == name and not row["warmup"]]
        ok = [row for row in its if row["ok"]]
        busy = {us for row in ok for us in range(row["sent"], row["ended"])}
        lasted = max((row["ended"] for row in ok), default=0) - min((row["sent"] for row in ok), default=0)
        whole = bool(its) and len(ok) == len(its)
        of_session = {
            "num_requests": len(its),
            "is_complete": len(ok) == len(its),
            "duration_us": lasted if whole else None,
            "model_us": len(busy) if whole else None,
            "tool_us": lasted - len(busy) if whole else None,
            "prompt_tokens": sum(row["server_input_tokens"] for row in ok),
            "cached": sum(row["cached"] for row in ok),
            "own": sum(row["cached"] - row["shared"] for row in ok),
            "shared": sum(row["shared"] for row in ok),
            "recomputed": sum(max(row["ideal"] - row["cached"], 0) for row in ok),
        }
        for key, value in of_session.items():
            told.setdefault(key, []).append(value)
    return told if names else None


@pytest.mark.parametrize(
    "kind", ["hashes", "chained", "rounds", "rounds after hashes", "rounds after groups"]
)
def test_a_session_s_results_are_those_of_counting(kind: str) -> None:
    for seed in range(few_or_all(60, 1000)):
        rng = random.Random(seed)
        block, per_hash = rng.choice([1, 3, 4]), rng.randint(1, 3)
        rows = drawn_rows(rng, kind, size=block * per_hash)
        for row in rows:
            row["model"] = row["adapter"] = None
        found = session_results(with_results(rng, rows, kind, size=block * per_hash), block_size=block)
        plain = plain_results(rows, kind, size=block * per_hash, block=block)
        assert (found is None) == (plain is None), seed
        for key, values in (plain or {}).items():
            got = getattr(found, key)
            got = (
                got if isinstance(got, list) else [None if np.isnan(each) else each for each in got.tolist()]
            )
            assert got == values, (seed, key)


def test_how_long_one_session_is_alone_at_the_end() -> None:
    for seed in range(few_or_all(40, 1000)):
        rng = random.Random(seed)
        rows = drawn_rows(rng, "nothing", size=4)
        trace = with_results(rng, rows, "nothing", size=4)
        last = max(rows, key=lambda row: row["ended"])
        others = [row["ended"] for row in rows if row["session"] != last["session"]]
        alone = 1 - max(others) / last["ended"] if others else 0
        assert _alone_at_end_frac(trace) == pytest.approx(alone), seed


@pytest.mark.parametrize("seed", range(12))
def test_reuse_is_counted_block_by_block(seed: int) -> None:
    """Blocks used up to a request and again after it; the last size of cache listed is the first that finds most."""
    requests = drawn_requests(seed)
    order = np.random.default_rng(seed).permutation(len(requests))
    reuse = kv_reuse(requests, order, block_size=BLOCK)
    starts, counts = requests.hash_starts[order], requests.num_hashes[order]
    used = [set(requests.hash_ids[at : at + num].tolist()) for at, num in zip(starts, counts, strict=True)]
    live = [
        len(set().union(*used[: at + 1]) & set().union(*used[at + 1 :])) if at + 1 < len(used) else 0
        for at in range(len(used))
    ]
    assert reuse.live.tolist() == live
    assert (np.diff(reuse.hits) >= 0).all()
    assert reuse.hits[-1] > reuse.hits[-2] if len(reuse.hits) > 1 else reuse.hits.tolist() == [0]
    total = requests.prompt_tokens + requests.output_tokens - 1
    assert (reuse.largest, reuse.num_prompt_tokens) == (
        -(-int(total.max()) // BLOCK),
        int(requests.prompt_tokens.sum()),
    )


def test_nothing_asked_for_needs_no_cache() -> None:
    none = np.zeros(0, np.int64)
    requests = Requests(
        arrival_us=none,
        prompt_tokens=none,
        output_tokens=none,
        priority=none,
        hash_offsets=np.zeros(1, np.int64),
        hash_ids=none,
    )
    reuse = kv_reuse(requests, none, block_size=BLOCK)
    assert (reuse.hits.tolist(), reuse.live.tolist()) == ([0], [])
    assert (reuse.largest, reuse.num_prompt_tokens, reuse.ideal_frac) == (0, 0, 0)


def test_a_prompt_below_a_block_keeps_one_in_groups_of_layers() -> None:
    engine = EngineConfig(
        num_gpu_blocks=40,
        block_size=BLOCK,
        kv_cache_groups=(KVCacheGroup(kind="full"), KVCacheGroup(kind="sliding", window=BLOCK + 2)),
        max_num_batched_tokens=2048,
    )
    short = KVReuse(
        hits=np.array([0]), num_prompt_tokens=10, block_size=BLOCK, largest=1, live=np.array([0, 0])
    )
    fullest = HeldBlocks.of(engine).fullest(5)
    assert cache_needs(short, engine)["num_kept_blocks"] == 40 - (fullest - 1)


def test_what_the_cache_needs_in_words() -> None:
    """A million blocks of one token, a third of what 3.2 million prompt tokens would find in 2.4 million."""
    hits = np.minimum(np.arange(2_400_001), 2_400_000)
    reuse = KVReuse(hits=hits, num_prompt_tokens=3_200_000, block_size=1, largest=1, live=np.array([5, 7]))
    engine = EngineConfig(num_gpu_blocks=800_000, num_cpu_blocks=10**6, kv_offloading="native", block_size=1)
    needs = cache_needs(reuse, engine)
    curve = [size for size, _ in needs["curve"]]
    assert (curve[0], curve[-1], len(curve)) == (1, 2_400_000, len(set(curve)))
    assert curve == sorted(curve)
    assert needs_rows(needs) == [
        (
            "KV needed",
            "an unlimited cache would find 75.0% of prompt tokens; million tokens of KV for 50% of them 1.200, "
            "90% of them 2.160, 99% of them 2.376",
        ),
        (
            "",
            "one server here has 0.800: alone it would find 25.0%; 95% of them take 2.850 such servers",
        ),
        ("", "with its host memory it keeps 1: it would find 31.2%"),
    ]
    alone: CacheNeeds = {**needs, "num_kept_blocks": 1}
    assert "95% of them take 2,280,000 such servers" in needs_rows(alone)[1][1]
