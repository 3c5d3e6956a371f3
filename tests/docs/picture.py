"""``make picture``: the README's picture, the first screen of the report of ``vtwin demo``; needs Chromium.

Not a part of ``make docs``, whose result must be the same on every machine: the demo measures real requests.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.docs.pages import ROOT

PICTURE = ROOT / "docs" / "images" / "report.png"
WIDTH, HEIGHT = 1280, 1112  # down to the curves, their text left out
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> int:
    """Run the demo, photograph its report, return the exit code."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        print(f"picture: found no browser, expected one of {', '.join(BROWSERS)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        vtwin = Path(sys.executable).with_name("vtwin")
        demo = subprocess.run([vtwin, "demo", "--output", f"{folder}/demo"], check=False)
        if demo.returncode != 0:
            return demo.returncode
        photograph(browser, Path(folder) / "demo" / "report" / "report.html")
    print(f"wrote {PICTURE.relative_to(ROOT)}")
    return 0


def photograph(browser: str, page: Path) -> None:
    """Write the picture of a page's first screen."""
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--window-size={WIDTH},{HEIGHT}",
    ]
    subprocess.run(
        [browser, *flags, f"--screenshot={PICTURE}", page.as_uri()], check=True, capture_output=True
    )


if __name__ == "__main__":
    sys.exit(main())
