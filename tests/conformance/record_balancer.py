"""``python -m tests.conformance.record_balancer CORE_CLIENT.py VERSION CASE``: record vLLM's data-parallel balancer.

CORE_CLIENT.py is ``vllm/v1/engine/core_client.py`` of that version, out of its wheel. The one method that decides is
taken from it and called on counts; nothing of vLLM is installed or imported. It writes CASE/config.json and
CASE/decisions.jsonl.gz, the same bytes every time.
"""

from __future__ import annotations

import ast
import gzip
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NUM_FLEETS, NUM_REQUESTS = 20, 100


def balancer_in(source: str) -> Callable[[Any, Any], bytes]:
    """Return ``DPLBAsyncMPClient.get_core_engine_for_request``, which takes (its client, a request)."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == "DPLBAsyncMPClient":
            method = next(
                part
                for part in node.body
                if isinstance(part, ast.FunctionDef) and part.name == "get_core_engine_for_request"
            )
            method.returns = None
            for argument in method.args.args:
                argument.annotation = None
            module = ast.fix_missing_locations(ast.Module(body=[method], type_ignores=[]))
            known: dict[str, Any] = {"sys": sys, "get_late_interaction_engine_index": lambda *_: None}
            exec(compile(module, "core_client.py", "exec"), known)  # noqa: S102 - the method under record
            found: Callable[[Any, Any], bytes] = known[method.name]
            return found
    raise ValueError("DPLBAsyncMPClient: not found, expected vLLM's core_client.py")


def record_fleet(choose: Callable[[Any, Any], bytes], seed: int, *, counts_kv: bool) -> dict[str, Any]:
    """Return one fleet's requests, ends and snapshots, with the rank that each request got."""
    rng = random.Random(seed)
    ranks, clients = rng.choice([2, 3, 4, 8, 16]), rng.choice([1, 1, 2, 4])
    client = SimpleNamespace(
        reqs_in_flight={},
        engine_inflight=Counter(),
        core_engines=[bytes([rank]) for rank in range(ranks)],
        lb_engines=[[0, 0, 0.0][: 2 + counts_kv] for _ in range(ranks)],
        client_count=clients,
        client_index=rng.randrange(clients),
    )
    client.eng_start_index = ranks * client.client_index // clients
    events: list[dict[str, Any]] = []
    in_flight: list[int] = []
    for number in range(NUM_REQUESTS):
        request = SimpleNamespace(request_id=str(number), data_parallel_rank=None, pooling_params=None)
        events.append({"add": number, "rank": choose(client, request)[0]})
        in_flight.append(number)
        while in_flight and rng.random() < 0.45:
            ended = in_flight.pop(rng.randrange(len(in_flight)))
            client.engine_inflight[client.reqs_in_flight.pop(str(ended))] -= 1
            events.append({"end": ended})
        if rng.random() < 0.1:
            seen = [
                [rng.choice([0, 0, 1, 5]), rng.randrange(20), round(rng.random(), 4)] for _ in range(ranks)
            ]
            client.lb_engines = [counts[: 2 + counts_kv] for counts in seen]
            events.append({"snapshot": seen})
    return {"ranks": ranks, "clients": clients, "client": client.client_index, "events": events}


def main(core_client: str, version: str, case: str) -> None:
    """Record."""
    source, folder = Path(core_client).read_text(), Path(case)
    counts_kv = "kv_cache_usage" in source
    choose = balancer_in(source)
    folder.mkdir(parents=True, exist_ok=True)
    routing = {"policy": "vllm-dp", "vllm_version": version}
    (folder / "config.json").write_text(json.dumps({"routing": routing}, indent=1) + "\n")
    with (
        (folder / "decisions.jsonl.gz").open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as out,
    ):
        for seed in range(NUM_FLEETS):
            out.write((json.dumps(record_fleet(choose, seed, counts_kv=counts_kv)) + "\n").encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
