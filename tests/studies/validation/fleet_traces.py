"""``fleet size`` against ``run --instances`` on traces whose requests are more than lengths: the same fleets, two ways.

Twenty traces: shared prefixes, hashes, adapters, grammars, drafts, images, deadlines, sessions. ``fleet size`` says how
many engines are enough; ``run --instances`` of as many must keep the limit, and with one fewer must break it. A second
seed draws the requests of the second way.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import vtwin
from traces import Header, make_trace, write_trace

N = 1200
ENGINE = {
    "max_num_seqs": 32,
    "max_num_batched_tokens": 2048,
    "num_gpu_blocks": 3000,
    "max_model_len": 16384,
    "async_scheduling": "false",
}
LATENCY = """\
latency:
  model: blackbox
  coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 8000, beta1: 40, beta2: 60}
"""
LIMIT_MS = 300
SECOND_SEED = 77
LORAS = {"max_loras": 4, "lora_load_us": 4000, "lora_step_factor": 1.2}
GRAMMARS = {"guided_compile_us": 60_000, "guided_mask_us": 300}
DRAFTS = {"num_speculative_tokens": 3, "synthetic_acceptance_rates": "[0.7]", "draft_us": 300}
ENCODER = {"encoder_token_us": 20}
CHAIN_BLOCKS = 24
"""Blocks of 64 tokens at the beginning of the prompts that name their blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A trace, the settings of the engine that serves it, and the load. ``rounds``: of each session."""

    name: str
    kinds: tuple[str, ...]
    rate: float
    engine: Mapping[str, object] = field(default_factory=dict)
    seed: int = 1
    rounds: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What both ways say of a case. ``ttft_p99_ms``: by ``run``, of the recommended number and of one fewer.

    ``failed``: shares of the requests that were not answered, of both. ``fewer``: what ``fleet size`` found one engine
    fewer to break, where ``run`` finds it enough: noise, another seed, or the 2 % more load of its second simulation.
    """

    case: Case
    engines: int
    by_formula: int
    ttft_p99_ms: tuple[float, float | None]
    failed: tuple[float, float | None]
    of_fleet_ms: float
    fewer: str = ""

    @property
    def is_enough(self) -> bool:
        """Whether ``run`` keeps the limit with the recommended number."""
        return self.ttft_p99_ms[0] <= LIMIT_MS and self.failed[0] <= 0.01

    @property
    def is_smallest(self) -> bool:
        """Whether ``run`` breaks it with one engine fewer, or there is none fewer."""
        fewer, failed = self.ttft_p99_ms[1], self.failed[1]
        return fewer is None or failed is None or fewer > LIMIT_MS or failed > 0.01


CASES = (
    Case(name="prefix groups", kinds=("groups",), rate=100),
    Case(name="prefix groups, busier", kinds=("groups",), rate=180, seed=2),
    Case(
        name="prefix groups, no caching",
        kinds=("groups",),
        rate=40,
        engine={"enable_prefix_caching": "false"},
    ),
    Case(name="hashes", kinds=("hashes",), rate=90),
    Case(name="hashes, small cache", kinds=("hashes",), rate=60, engine={"num_gpu_blocks": 1600}, seed=3),
    Case(name="adapters", kinds=("adapters",), rate=60, engine=LORAS),
    Case(
        name="adapters, many loads",
        kinds=("adapters",),
        rate=50,
        engine=LORAS | {"lora_load_us": 9000},
        seed=4,
    ),
    Case(name="adapters and prefixes", kinds=("adapters", "groups"), rate=60, engine=LORAS, seed=5),
    Case(name="grammars", kinds=("grammars",), rate=100, engine=GRAMMARS),
    Case(
        name="grammars and adapters", kinds=("grammars", "adapters"), rate=50, engine=GRAMMARS | LORAS, seed=6
    ),
    Case(name="drafts", kinds=(), rate=250, engine=DRAFTS),
    Case(
        name="drafts, seldom accepted",
        kinds=(),
        rate=120,
        engine=DRAFTS | {"synthetic_acceptance_rates": "[0.2]"},
    ),
    Case(name="drafts and prefixes", kinds=("groups",), rate=250, engine=DRAFTS, seed=7),
    Case(name="images", kinds=("images",), rate=60, engine=ENCODER),
    Case(
        name="images and grammars", kinds=("images", "grammars"), rate=50, engine=ENCODER | GRAMMARS, seed=8
    ),
    Case(name="deadlines", kinds=("deadlines",), rate=100),
    Case(name="sessions", kinds=("sessions",), rate=90, rounds=4),
    Case(name="sessions, long", kinds=("sessions",), rate=60, rounds=8, seed=9),
    Case(
        name="sessions with adapters",
        kinds=("sessions", "adapters"),
        rate=50,
        engine=LORAS,
        rounds=4,
        seed=10,
    ),
    Case(name="sessions of a group", kinds=("sessions", "groups"), rate=80, rounds=4, seed=11),
)


def trace_at(case: Case, stem: Path) -> None:
    """Write the trace of a case."""
    rng = np.random.default_rng(case.seed)
    prompts = np.maximum(rng.gamma(2.0, 60.0, N).astype(np.int64), 2)
    outputs = np.maximum(rng.gamma(2.0, 40.0, N).astype(np.int64), 1)
    arrivals = np.cumsum(rng.exponential(1e6 / 20, N)).astype(np.int64)
    columns: dict[str, object] = {
        "request_id": [str(i) for i in range(N)],
        "arrival_time_us": arrivals,
        "input_tokens": prompts,
        "output_tokens": outputs,
    }
    header = Header(mode="generated", tool="vtwin")
    number = np.arange(N) // case.rounds
    if "sessions" in case.kinds:
        columns |= _sessions(case, number, prompts, outputs, arrivals)
        header = Header(mode="generated", tool="vtwin", session_context_growth="accumulate")
    if "groups" in case.kinds:
        columns |= {"prefix_group": [f"g{each % 8}" for each in number], "prefix_length": [1024] * N}
    if "hashes" in case.kinds:
        columns |= _hashes(rng, prompts)
        header = Header(mode="generated", tool="vtwin", hash_block_size=64)
    if "adapters" in case.kinds:
        columns["adapter"] = [f"a{each % 6}" for each in number]
    if "grammars" in case.kinds:
        columns["guided"] = [each % 2 == 0 for each in range(N)]
    if "images" in case.kinds:
        columns |= {"image_tokens": [576] * N, "input_tokens": prompts + 576}
    if "deadlines" in case.kinds:
        columns["deadline_us"] = arrivals + 8_000_000
    write_trace(make_trace(header, columns), stem)


def _sessions(
    case: Case, number: np.ndarray, prompts: np.ndarray, outputs: np.ndarray, arrivals: np.ndarray
) -> dict[str, object]:
    """Return the columns of sessions whose prompts grow, each round a second after the answer before it."""
    place = np.arange(N) % case.rounds
    whole = list[int]()
    for row in range(N):
        before = 0 if place[row] == 0 else whole[-1] + int(outputs[row - 1])
        whole.append(before + int(prompts[row]))
    return {
        "session_id": [f"s{each}" for each in number],
        "round_index": place,
        "new_input_tokens": prompts,
        "input_tokens": whole,
        "think_time_us": [None if each == 0 else 1_000_000 for each in place],
        "arrival_time_us": [int(arrivals[row]) if place[row] == 0 else None for row in range(N)],
    }


def _hashes(rng: np.random.Generator, prompts: np.ndarray) -> dict[str, object]:
    """Return prompts with chains of block hashes: one of ten documents, cut anywhere, then text of their own."""
    document, cut = rng.integers(0, 10, N), rng.integers(4, CHAIN_BLOCKS + 1, N)
    chains = [
        " ".join([*(str(1000 * d + b) for b in range(c)), str(100_000 + row)])
        for row, (d, c) in enumerate(zip(document.tolist(), cut.tolist(), strict=True))
    ]
    return {"prefix_hashes": chains, "input_tokens": 64 * (cut + 1) + prompts}


def twin_at(case: Case, path: Path) -> None:
    """Write the twin of a case."""
    settings = ", ".join(f"{name}: {value}" for name, value in (ENGINE | dict(case.engine)).items())
    path.write_text(f"engine: {{{settings}}}\n{LATENCY}")


def answer(case: Case, folder: Path, *, num_requests: int = 8000, seconds: int = 60) -> Answer:
    """Return what ``fleet size`` and ``run --instances`` say of a case. ``seconds``: of ``run``, at least."""
    trace_at(case, folder / "trace")
    twin_at(case, folder / "twin.yaml")
    asked = [
        "--workload",
        str(folder / "trace"),
        "--profile",
        str(folder / "twin.yaml"),
        "--rate",
        str(case.rate),
    ]
    told = _told(
        "fleet", "size", *asked, "--slo", f"ttft_p99={LIMIT_MS}ms", "--num-requests", str(num_requests)
    )
    pool = told["pools"][0]
    engines = pool["engines"]
    seen = [
        _run(case, folder, each, seconds=seconds) if each else (None, None) for each in (engines, engines - 1)
    ]
    return Answer(
        case=case,
        engines=engines,
        by_formula=pool["analytic"]["engines"],
        ttft_p99_ms=(seen[0][0], seen[1][0]),
        failed=(seen[0][1], seen[1][1]),
        of_fleet_ms=pool["verified"]["ttft_p99_us"] / 1e3,
        fewer=_broken_by(told, engines - 1),
    )


def _broken_by(told: dict, engines: int) -> str:  # type: ignore[type-arg] # a document
    """Return what ``fleet size`` says that so many engines broke; nothing where it says nothing."""
    for note in told["notes"]:
        if note.startswith(f"all: {engines:,} engines"):
            return str(note.partition(": ")[2])
    (pool,) = told["pools"]
    tried = [each for each in pool["tried"] if each["engines"] == engines]
    if tried and (tried[0]["ttft_p99_high_us"] or 0) > LIMIT_MS * 1e3:
        return f"TTFT p99 with its noise up to {tried[0]['ttft_p99_high_us'] / 1e3:,.0f} ms"
    return ""


def _run(case: Case, folder: Path, engines: int, *, seconds: int) -> tuple[float, float]:
    """Return the p99 of TTFT in ms, and the share not answered, of a filled fleet: by ``run``, with another seed.

    A run has a tenth more time to fill, and its end, where nothing new arrives, is not measured.
    """
    begins = 10 + 3 * (case.rounds - 1)
    ends = begins + seconds
    number = int(case.rate * (ends + begins))
    words = ["--config", str(folder / "twin.yaml"), "--like", str(folder / "trace")]
    words += [
        "--rate",
        str(case.rate / case.rounds),
        "--instances",
        str(engines),
        "--routing",
        "least-loaded",
    ]
    words += ["--num-requests", str(number), "--seed", str(SECOND_SEED), "--measure", f"{begins}s:{ends}s"]
    told = _told("run", *words)
    status = told["num_by_status"]
    failed = 1 - status.get("ok", 0) / max(sum(status.values()), 1)
    return told["ttft_us"]["p99"] / 1e3, failed


def _told(*words: str) -> dict:  # type: ignore[type-arg] # the documents of two commands
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = vtwin.main([*words, "--json"])
    assert code in (0, 1), words
    return json.loads(out.getvalue())  # type: ignore[no-any-return]


def main(folder: Path) -> None:
    """Print a row per trace, and how many agree."""
    print(
        "| trace | formula | fleet size | its TTFT p99 | `run`, as many | `run`, one fewer | "
        "where that is enough, `fleet size` found |"
    )
    print("|---|---:|---:|---:|---:|---:|---|")
    found = []
    for case in CASES:
        each = answer(case, folder, num_requests=20_000, seconds=200)
        found.append(each)
        fewer = "-" if each.ttft_p99_ms[1] is None else f"{each.ttft_p99_ms[1]:,.0f}"
        print(
            f"| {case.name} | {each.by_formula} | {each.engines} | {each.of_fleet_ms:,.0f} | "
            f"{each.ttft_p99_ms[0]:,.0f}{'' if each.is_enough else ' !'} | {fewer} | "
            f"{'' if each.is_smallest else each.fewer} |",
            flush=True,
        )
    print(
        f"\nenough {sum(each.is_enough for each in found)} of {len(found)}, "
        f"one fewer breaks it {sum(each.is_smallest for each in found)} of {len(found)}"
    )


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
