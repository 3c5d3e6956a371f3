"""``python -m tests.studies.browser``: each check of the page in a Chromium; 1 where one fails, 2 without a browser."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.studies.browser import checks
from tests.studies.browser.explored import BROWSERS, found_browser, launched


def main() -> int:
    """Run the checks, print a line for each, return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="those that CI runs")
    parser.add_argument("--only", metavar="NAME", help="those whose name has this")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="only write pictures of the page")
    asked = parser.parse_args()
    browser = found_browser()
    if browser is None:
        print(f"browser: found none, expected one of {', '.join(BROWSERS)}", file=sys.stderr)
        return 2
    failed = 0
    chosen = [
        each
        for each in (checks.SHORT if asked.short else checks.ALL)
        if not asked.only or asked.only in each.__name__
    ]
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        chromium = launched(playwright, browser)
        if asked.pictures:
            checks.pictures_of(chromium, Path(folder), asked.pictures)
            return 0
        for check in chosen:
            began = time.monotonic()
            try:
                check(chromium, Path(folder))
                told = "passed"
            except Exception:
                traceback.print_exc()
                told, failed = "FAILED", failed + 1
            print(f"{told} {check.__name__.replace('_', ' ')} ({time.monotonic() - began:.1f} s)", flush=True)
        chromium.close()
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
