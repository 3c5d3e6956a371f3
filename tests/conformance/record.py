"""``python -m tests.conformance.record [--blocks] [--async] CASE…``: write down what vLLM's scheduler does.

Runs under a Python that has vLLM, in the project's root; ``VLLM_MODEL`` is the directory of a small model. A
CASE is a directory with config.json and trace.jsonl[.gz]; it gets steps.jsonl.gz and requests.csv, in
CASE/async with --async. The CASE "-" takes cases from standard input, one JSON object per line (``{"case":
DIR, "blocks": false}``), as long as there are any. Standard output gets a JSON object per case, and before
the first one that names vLLM's version.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tests.conformance.conventions import prompt_token_ids

if TYPE_CHECKING:
    from tests.conformance.vllm_engine import VllmEngine

QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}

COLUMNS = (
    "idx",
    "arrival_us",
    "prompt_len",
    "output_len",
    "priority",
    "status",
    "max_tokens",
    "n_out",
    "first_sched_us",
    "first_token_us",
    "completion_us",
    "preemptions",
    "cached_first",
    "cached_total",
)


def read_rows(case: Path) -> list[dict[str, Any]]:
    """Return a case's requests; ValueError where they are not in the order of their arrival."""
    plain, gzipped = case / "trace.jsonl", case / "trace.jsonl.gz"
    text = plain.read_text() if plain.is_file() else gzip.decompress(gzipped.read_bytes()).decode()
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    arrivals = [row["arrival_us"] for row in rows]
    if arrivals != sorted(arrivals):
        raise ValueError(f"arrival_us: got lines out of order, expected them sorted ({case})")
    return rows


def table_of(engine: VllmEngine) -> Iterator[list[Any]]:
    """Yield the lines of requests.csv."""
    for number, (row, outcome) in enumerate(zip(engine.rows, engine.outcomes, strict=True)):
        yield [
            number,
            row["arrival_us"],
            len(prompt_token_ids(row, number)),
            row["output_len"],
            row.get("priority") or 0,
            outcome.status,
            outcome.max_tokens,
            outcome.num_outputs,
            outcome.first_sched_us,
            outcome.first_token_us,
            outcome.completion_us,
            outcome.num_preemptions,
            outcome.cached_first,
            outcome.cached_total,
        ]


def write_results(engine: VllmEngine, results: Path) -> None:
    """Write steps.jsonl.gz and, last and at once, requests.csv: where it lies, the recording is whole."""
    results.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(step, separators=(",", ":")) + "\n" for step in engine.steps)
    (results / "steps.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    table = results / "requests.csv.part"
    with table.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(table_of(engine))
    table.replace(results / "requests.csv")


def record(case: Path, *, with_blocks: bool = False, is_async: bool = False) -> dict[str, Any]:
    """Record a case and return a summary of it."""
    from tests.conformance.vllm_engine import VllmEngine  # twenty seconds of vLLM

    settings = json.loads((case / "config.json").read_text())
    if is_async:
        settings["async_scheduling"] = True
    kind = VllmEngine
    if "num_cpu_blocks" in settings:
        from tests.conformance.offload_engine import OffloadEngine

        kind = OffloadEngine
    engine = kind(settings, read_rows(case), with_blocks)
    engine.run()
    write_results(engine, case / "async" if is_async else case)
    return {
        "case": str(case),
        "steps": len(engine.steps),
        "preemptions": sum(outcome.num_preemptions for outcome in engine.outcomes),
        "status": dict(Counter(outcome.status for outcome in engine.outcomes)),
    }


def asked_for(options: argparse.Namespace) -> Iterator[tuple[Path, bool]]:
    """Yield (case, with blocks) from the arguments, or from standard input as they come."""
    for case in options.cases:
        if case != "-":
            yield Path(case), options.blocks
            continue
        for line in iter(sys.stdin.readline, ""):
            wish = json.loads(line)
            yield Path(wish["case"]), wish.get("blocks", options.blocks)


def answer_stream() -> TextIO:
    """Return the real standard output for answers, and send whatever vLLM prints to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def main(arguments: list[str] | None = None) -> int:
    """Record; return 0, or 1 where vLLM could not run a case."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.record", description=__doc__)
    parser.add_argument("cases", metavar="CASE", nargs="+")
    parser.add_argument("--blocks", action="store_true", help="record block ids and the free queue, too")
    parser.add_argument(
        "--async", dest="is_async", action="store_true", help="record async scheduling into CASE/async"
    )
    options = parser.parse_args(arguments)
    os.environ.update(QUIET)
    answers = answer_stream()
    import vllm

    answers.write(json.dumps({"vllm_version": vllm.__version__}) + "\n")
    num_failed = 0
    for case, with_blocks in asked_for(options):
        try:
            answer = record(case, with_blocks=with_blocks, is_async=options.is_async)
        except Exception as error:  # whatever vLLM raises is this case's result; the others go on
            answer = {"case": str(case), "error": f"{type(error).__name__}: {str(error).strip()}"}
            num_failed += 1
        answers.write(json.dumps(answer) + "\n")
    return 1 if num_failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
