"""``python -m tests.conformance.pair.record [--blocks] CASE…``: write down what two of vLLM's schedulers do.

Runs under a Python that has vLLM, in the project's root; ``VLLM_MODEL`` is the directory of a small model. A CASE is a
directory with config.json and trace.jsonl; it gets prefill/ and decode/, each with steps.jsonl.gz and requests.csv, and
transfers.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
from pathlib import Path

from tests.conformance.record import QUIET, answer_stream, read_rows, write_results

COLUMNS = ("request", "blocks", "start_us", "end_us")


def record(case: Path, *, with_blocks: bool = False) -> dict[str, object]:
    """Record a case and return a summary of it."""
    from tests.conformance.pair.vllm_pair import VllmPair  # twenty seconds of vLLM

    pair = VllmPair(json.loads((case / "config.json").read_text()), read_rows(case), with_blocks=with_blocks)
    if not pair.run():
        return {"case": case.name, "error": "the two engines came to no end"}
    for role, engine in pair.engines.items():
        write_results(engine, case / role)
    with (case / "transfers.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(pair.transfers)
    return {
        "case": case.name,
        "transfers": len(pair.transfers),
        **{
            role: {
                "steps": len(engine.steps),
                "preemptions": sum(outcome.num_preemptions for outcome in engine.outcomes),
                "cached": sum(outcome.cached_total for outcome in engine.outcomes),
                "finished": sum(outcome.completion_us is not None for outcome in engine.outcomes),
            }
            for role, engine in pair.engines.items()
        },
    }


def main() -> int:
    """Record; return 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.pair.record", description=__doc__)
    parser.add_argument("cases", metavar="CASE", nargs="+", type=Path)
    parser.add_argument("--blocks", action="store_true", help="record block ids and the free queue, too")
    options = parser.parse_args()
    os.environ.update(QUIET)
    answers = answer_stream()
    for case in options.cases:
        answers.write(json.dumps(record(case, with_blocks=options.blocks)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
