"""``make validate``: the tables of docs/validation.md that need public data, not a server. Minutes, not in CI."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from tests.validation import cpu, production, servers

DEFAULT_DATA = Path(__file__).parents[2] / ".." / "shared" / "data"


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("VTWIN_DATA", DEFAULT_DATA)))
    parser.add_argument("--models", nargs="+", default=["blackbox", "extended"])
    parser.add_argument("--only", choices=("production", "servers", "cpu"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        if options.only in (None, "production"):
            print(production.table(options.data, Path(work)), end="\n\n")
        if options.only in (None, "cpu"):
            print(cpu.table(options.data, Path(work), tuple(options.models)), end="\n\n")
        if options.only in (None, "servers"):
            bench = options.data / "llmservingsim_bench"
            print(servers.table(bench, Path(work), tuple(options.models)))


main()
