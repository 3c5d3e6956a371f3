"""Sessions that branch and join, sent to a real vLLM: what it found in its prefix cache, and what the twin finds.

A part of ``make live``; results in vtwin-live/. The cache is small, so that sessions push each other out of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tests.studies.live.server import ENGINE, VLLM, installation, say, serving
from traces import Header, make_trace, read_trace, write_trace

OUTPUT = Path("vtwin-live")
BLOCK = ENGINE["block_size"]
NUM_BLOCKS = 44
NUM_SESSIONS, NUM_TURNS = 8, 5
GUESS = {"alpha0": 5000, "alpha1": 1, "alpha2": 0, "beta0": 10000, "beta1": 500, "beta2": 500}
POLICY = "priority"
"""Requests that say nothing of their priority are served first come, first served."""
MIDWAY = ["--sessions", "3", "--warm-start", "0.5", "--session-priority", "first-started"]
LOADS = {
    "one at a time": ["--sessions", "1"],
    "three at a time": ["--sessions", "3"],
    "three at a time, from their middle on, first started first": MIDWAY,
}
REPLAYS = {"answers decide": [], "at the observed times": ["--open-loop"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """Prompt tokens of ``requests`` found in the cache, of ``prompt_tokens``, by the server and by the twin.

    ``equal``: requests of which both found as many.
    """

    load: str
    replayed: str
    requests: int
    equal: int
    prompt_tokens: int
    server: int
    twin: int


class Rows:
    """Rows of a trace, request by request; blocks are new unless a parent's are kept."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []
        self._rng = np.random.default_rng(5)
        self._next_block = 10
        self._num_blocks: dict[str, int] = {}

    def add(
        self, name: str, parent: str | None, *, kept: int | None, new: int, awaited: str | None = None
    ) -> str:
        """Add a request that keeps so many of its parent's blocks (None: all) and ends in a part of one."""
        known = 0 if parent is None else self._num_blocks[parent] if kept is None else kept
        own = [*([1, 2] if parent is None else []), *range(self._next_block, self._next_block + new)]
        self._next_block += new
        self._num_blocks[name] = known + len(own)
        self.rows.append(
            {
                "request_id": name,
                "session_id": name.split("/", maxsplit=1)[0],
                "round_index": sum(row["session_id"] == name.split("/", maxsplit=1)[0] for row in self.rows),
                "input_tokens": self._num_blocks[name] * BLOCK + int(self._rng.integers(1, BLOCK)),
                "output_tokens": int(self._rng.integers(2, 24)),
                "arrival_time_us": 0 if parent is None else None,
                "think_time_us": None if parent is None else int(self._rng.integers(0, 400_000)),
                "parent_request_id": parent,
                "awaited_request_ids": awaited,
                "num_parent_hashes": None if parent is None else known,
                "prefix_hashes": " ".join(map(str, own)) or None,
            }
        )
        return name


def agents_sessions(path: Path) -> None:
    """Write the sessions: turns that grow, two subagents after the third that the fourth waits for, at last a summary.

    All begin with the same two blocks, subagents with the first of them. A prompt ends in the midst of a block.
    """
    rows = Rows()
    for session in range(NUM_SESSIONS):
        last, awaited = rows.add(f"s{session}/t0", None, kept=None, new=4), None
        for turn in range(1, NUM_TURNS):
            last = rows.add(f"s{session}/t{turn}", last, kept=None, new=2, awaited=awaited)
            awaited = None
            if turn == 2:
                search = rows.add(f"s{session}/a0", last, kept=1, new=3)
                ends = (
                    rows.add(f"s{session}/a1", search, kept=None, new=2),
                    rows.add(f"s{session}/b0", last, kept=1, new=5),
                )
                awaited = " ".join(ends)
        rows.add(f"s{session}/summary", last, kept=2, new=3)
    columns = {name: [row[name] for row in rows.rows] for name in rows.rows[0]}
    write_trace(make_trace(Header(mode="generated", tool="vtwin", hash_block_size=BLOCK), columns), path)


def twin_config() -> str:
    """Return the TWIN.yaml of the server, step times guessed: hits hang on order alone."""
    settings = {**ENGINE, "num_gpu_blocks": NUM_BLOCKS, "scheduling_policy": POLICY}
    engine = "".join(f"  {key}: {value}\n" for key, value in settings.items())
    latency = f"latency:\n  model: blackbox\n  coefficients: {json.dumps(GUESS)}\n"
    return f'vllm_version: "{VLLM}"\nengine:\n{engine}{latency}'


def vtwin(*arguments: str) -> None:
    """Run a vtwin command as a user would; SystemExit with its exit code where that is not 0."""
    say("\n$ vtwin " + " ".join(arguments))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "vtwin", *arguments], stdout=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        raise SystemExit(done.returncode)


def compared(load: str, replayed: str, server: Path, twin: Path) -> Hits:
    """Return what server and twin found of each prompt."""
    measured, simulated = read_trace(server), read_trace(twin)
    found = measured.cells("cached_input_tokens").values
    said = simulated.cells("num_cached_tokens").values
    return Hits(
        load=load,
        replayed=replayed,
        requests=len(measured),
        equal=int((found == said).sum()),
        prompt_tokens=int(measured.cells("server_input_tokens").values.sum()),
        server=int(found.sum()),
        twin=int(said.sum()),
    )


def main() -> int:
    """Send the sessions, replay what came of them; return the exit code, 1 where a prompt was not as planned."""
    OUTPUT.mkdir(exist_ok=True)
    stem, config = OUTPUT / "agents", OUTPUT / "agents-server.yaml"
    agents_sessions(stem)
    config.write_text(twin_config())
    flags = ("--num-gpu-blocks-override", str(NUM_BLOCKS), "--scheduling-policy", POLICY)
    results = []
    with serving(installation(), log=OUTPUT / "vllm-agents.log", flags=flags) as url:
        for place, options in enumerate(LOADS.values()):
            sent = ["--trace", str(stem), "--url", url, "--model", "tiny", *options, "--overwrite"]
            vtwin("observe", *sent, "--output", str(OUTPUT / f"agents-{place}"))
    for place, load in enumerate(LOADS):
        measured = read_trace(OUTPUT / f"agents-{place}")
        if (measured.cells("server_input_tokens").values != measured.cells("input_tokens").values).any():
            say(f"{load}: the server counted other prompt tokens than were planned")
            return 1
        for replayed, options in REPLAYS.items():
            twin = OUTPUT / f"agents-{place}-twin"
            vtwin(
                "replay",
                str(OUTPUT / f"agents-{place}"),
                "--config",
                str(config),
                *options,
                "--output",
                str(twin),
            )
            results.append(compared(load, replayed, OUTPUT / f"agents-{place}", twin))
    for each in results:
        say(
            f"{each.load}, {each.replayed}: {each.server:,} of {each.prompt_tokens:,} prompt tokens cached by the "
            f"server, {each.twin:,} by the twin; equal in {each.equal} of {each.requests} requests"
        )
    (OUTPUT / "agents.json").write_text(json.dumps([asdict(each) for each in results], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
