"""``python -m tests.conformance.pair DIR…``: two vLLM schedulers with a KV connector against vtwin's two engines.

A DIR is a case or a folder of cases. Prints ``identical, N + M steps, T transfers`` per case, or the first difference
with both sides. Exit codes: 0 all identical, 1 a difference, 2 usage, 3 nothing to compare.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.pair.compare import compare_pair, read_pair


def cases_in(paths: Sequence[Path]) -> list[Path]:
    """Return the cases among the paths and in them, sorted."""
    return sorted(
        case for path in paths for case in (path, *path.glob("*")) if (case / "transfers.csv").is_file()
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.pair", description=__doc__)
    parser.add_argument("paths", metavar="DIR", nargs="+", type=Path)
    cases = cases_in(parser.parse_args(arguments).paths)
    if not cases:
        print("nothing to compare")
        return 3
    num_different = 0
    for case in cases:
        recording = read_pair(case)
        found = compare_pair(recording)
        num_different += found is not None
        sizes = " + ".join(str(len(steps)) for steps in recording.steps.values())
        print(f"{case.name}: {found or f'identical, {sizes} steps, {len(recording.transfers)} transfers'}")
    return 1 if num_different else 0


if __name__ == "__main__":
    raise SystemExit(main())
