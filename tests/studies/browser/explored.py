"""A page of ``vtwin explore`` that runs, and what a browser is to it.

Of other packages only Playwright is needed, which ``requirements-browser.lock`` pins.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Page, Playwright

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv" / "bin" / "python"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TWIN = """\
engine: {max_num_seqs: 128, max_num_batched_tokens: 2048, num_gpu_blocks: 20000, max_model_len: 8192}
latency:
  model: extended
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 1000, beta1: 30, beta2: 20, floor: 9000}
  fitted_range: {rate_per_s: [2.0, 18.0], prompt_tokens: [50.0, 1500.0], output_tokens: [10.0, 400.0]}
  pace: {within: 0.03, beyond: 0.08}
"""
OF_A_MODEL = """\
engine: {max_num_seqs: 128}
hardware: {gpu: H100}
latency: {model: roofline, model_config: Qwen/Qwen2.5-7B-Instruct}
"""
CLASSES = """\
version: "2"
aggregate_rate: 12
clients:
  - {id: chat, slo_class: critical, rate_fraction: 0.7, input_distribution: {type: constant, params: {value: 200}},
     output_distribution: {type: constant, params: {value: 30}}}
  - {id: night, slo_class: batch, rate_fraction: 0.3, input_distribution: {type: constant, params: {value: 900}},
     output_distribution: {type: constant, params: {value: 90}}}
"""
LOAD = ("--rate", "12", "--prompt-tokens", "600", "--output-tokens", "120")
HOSTILE = "<img src=x onerror=document.title='taken'>"
STARTS_MS = 120_000
"""A page may have to wait for the engine to be compiled."""
ANSWERS_MS = 15_000


def found_browser() -> str | None:
    """Return the path of a Chromium, None where there is none."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


@dataclass(slots=True, kw_only=True)
class Explored:
    """A command that runs: its link, its process, and what the browser asked of other hosts or complained of."""

    link: str
    process: subprocess.Popen[str]
    strange: list[str] = field(default_factory=list)

    def end(self) -> int:
        """End it as Ctrl-C does; return its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(10)


@contextmanager
def explored(folder: Path, *options: str, twin: str = TWIN, name: str = "twin.yaml") -> Iterator[Explored]:
    """Run the command in a folder while the block lasts."""
    (folder / name).write_text(twin)
    words = [PYTHON, "-m", "vtwin", "explore", "--config", name, *options, "--no-open"]
    # in a group of its own, as a terminal starts it; Python finds the checkout before what is installed
    process = subprocess.Popen(
        words,
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        link = re.search(r"http://127\.0\.0\.1:\d+/\S+", said)
        assert link is not None, f"got {said!r}, expected a link"
        yield Explored(link=link[0], process=process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def launched(playwright: Playwright, browser: str) -> Browser:
    """Return a Chromium of this machine's."""
    return playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])


def opened(
    browser: Browser,
    to: Explored,
    *,
    width: int = 1280,
    dark: bool = False,
    after: str = "",
    for_axe: bool = False,
) -> Page:
    """Return the page, once its first answer is shown. ``after``: what its link has behind #."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", bypass_csp=for_axe
    )
    page = context.new_page()
    page.on("request", lambda request: to.strange.append(request.url) if not _is_own(request.url) else None)
    page.on("console", lambda message: to.strange.append(message.text))
    page.on("pageerror", lambda error: to.strange.append(str(error)))
    page.goto(f"{to.link}#{after}" if after else to.link)
    page.wait_for_selector("#variants td.now", timeout=STARTS_MS)
    return page


def _is_own(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:http://127.0.0.1:"))


def turn(page: Page, name: str, value: str) -> None:
    """Turn a knob by its field, and wait for the answer."""
    before = page.inner_text("#command")
    page.fill(f"#knob-{name}", value)
    for _ in range(ANSWERS_MS // 20):
        if page.inner_text("#command") != before and not page.evaluate(
            "document.querySelector('.stale') !== null"
        ):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"{name} {value}: got no answer, expected one within {ANSWERS_MS} ms")


def command_document(command: str, folder: Path) -> str:
    """Return what the command that the page shows prints with ``--json``, without its CPU time."""
    words = [PYTHON, "-m", "vtwin", *shlex.split(command)[1:], "--json"]
    done = subprocess.run(
        words,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    return without_cpu_time(done.stdout.strip())


def without_cpu_time(document: str) -> str:
    """Return a document without the only figure that differs from run to run."""
    json.loads(document)
    return re.sub(r'"engine_cpu_s": [\d.e-]+', "", document)
