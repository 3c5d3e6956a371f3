"""``python -m tests.fuzz.survey --files N``: N damaged files of every kind, and how each of them ended.

The table of docs/validation.md. Unlike ``python -m tests.fuzz`` it does not stop at a fault: it counts them, by where
they were raised.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from random import Random

from tests.fuzz.mutate import damaged_files, packed
from tests.fuzz.readers_targets import READERS, TARGETS
from tests.fuzz.run import CORPUS, check

RESULTS = Path(__file__).parent / "survey.json"
_MOST_BYTES = 6 << 30


def survey(name: str, number: int, *, keep: bool) -> dict[str, object]:
    """Return how many files were read or refused, and the faults by kind and place."""
    target = next(each for each in TARGETS if each.name == f"reader-{name}")
    originals = READERS[name][0]()
    faults: Counter[str] = Counter()
    begin = time.monotonic()
    for seed in range(number):
        random = Random(seed)
        data = packed(damaged_files(random, random.choice(originals)))
        try:
            check(target, data)
        except Exception as error:
            where = _place(error)
            if keep and not faults[where]:
                path = CORPUS / target.name / f"seed-{seed}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            faults[where] += 1
    return {
        "files": number,
        "faults": sum(faults.values()),
        "where": dict(faults.most_common()),
        "seconds": round(time.monotonic() - begin, 1),
    }


def _place(error: BaseException) -> str:
    """Return the error's kind, and the last line of the project's own that it came through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "site-packages" not in f.filename]
    own = [f for f in frames if "/tests/" not in f.filename and "/lib/python" not in f.filename]
    last = (own or frames)[-1]
    return f"{type(error).__name__} {'/'.join(Path(last.filename).parts[-3:])}:{last.name}"


def main() -> int:
    """Survey what was asked for; return 1 where there was a fault."""
    asked = argparse.ArgumentParser(prog="python -m tests.fuzz.survey", description=__doc__)
    asked.add_argument("--files", type=int, default=1500, help="of each kind")
    asked.add_argument("--only", default="")
    asked.add_argument("--keep", action="store_true", help="put the first of each fault into the corpus")
    asked.add_argument("--record", action="store_true", help=f"write the counts to {RESULTS.name}")
    options = asked.parse_args()
    warnings.simplefilter("error")  # a number that wraps or is not one is a fault
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    found: dict[str, dict[str, object]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in READERS:
        if options.only and name not in options.only.split(","):
            continue
        found[name] = survey(name, options.files, keep=options.keep)
        print(
            f"{name:18} {found[name]['files']:>7,} files {found[name]['faults']:>6,} faults {found[name]['seconds']} s"
        )
        for where, count in found[name]["where"].items():  # type: ignore[attr-defined]
            print(f"      {count:>5} {where}")
        sys.stdout.flush()
    if options.record:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if any(each["faults"] for each in found.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
