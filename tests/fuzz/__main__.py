"""``python -m tests.fuzz --seconds N``: every target for N seconds each. Exit code 1 where one failed.

What fails is made small and kept in ``tests/fuzz/corpus/``, so that the suite reads it from then on. Memory is
limited: an input of 64 KiB that takes gigabytes is a fault.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import traceback

from tests.fuzz.run import FOLDER, all_targets, keep, run_for

_MOST_BYTES = 8 << 30
RESULTS = FOLDER / "results.json"


def main() -> int:
    """Run what was asked for; return the exit code."""
    asked = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    asked.add_argument("--seconds", type=float, default=60, help="for each target")
    asked.add_argument("--only", default="", help="targets whose name has this in it; =NAME for that one")
    asked.add_argument("--seed", type=int, default=None, help="default: another one each time")
    asked.add_argument("--record", action="store_true", help="add the counts to tests/fuzz/results.json")
    options = asked.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    first_seed = time.time_ns() // 1_000_000 if options.seed is None else options.seed
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    failed = 0
    for target in all_targets():
        if options.only not in (f"={target.name}", "") and options.only not in target.name:
            continue
        outcome = run_for(target, options.seconds, first_seed=first_seed)
        print(
            f"{target.name}: {outcome.num_inputs:,} inputs, {'no fault' if outcome.failure is None else 'FAULT'}"
        )
        if outcome.failure is not None:
            failed += 1
            traceback.print_exception(outcome.failure)
            print(f"kept: {keep(outcome)}")
        else:
            results[target.name] = results.get(target.name, 0) + outcome.num_inputs
    if options.record:
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
