"""What all tests share: their order (the longest files first), the settings of libraries, fixtures."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Generator, Iterator
from itertools import islice

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.examples import THOROUGH, few_or_all

# A busy machine takes a second for what takes a millisecond.
settings.register_profile("suite", deadline=None, max_examples=few_or_all(30, 100))
settings.load_profile("suite")

if not THOROUGH:
    # Hypothesis draws numbers and texts that stand in the modules imported so far. What a test drew hung on which files
    # ran beside it, and on any new number in the product: here it takes no module for ours. A hypothesis that asks
    # another function fails `tests/sim/test_strategies.py`.
    providers.is_local_module_file = lambda _: False

# One thread of BLAS in each worker, and in what it starts: the threads of four workers spin while they wait for each
# other, three quarters of the CPU time of a comparison. It must be said before numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

CPU_S = "cpu_s"
MANY_CPU_S = 2.0
"""A test that takes more is listed at the end; CONTRIBUTING.md says what makes tests cheap."""

LONG = (
    ("tests/docs/test_docs.py",),
    ("tests/calibrate/validate/test_validate.py", "tests/test_end_to_end.py"),
    ("tests/docs/test_readme.py", "tests/replay/serve/test_serve_changes.py"),
    (
        "tests/observe/processes/test_processes.py",
        "tests/observe/plan/test_loads.py",
        "tests/replay/serve/test_serve.py",
    ),
)
"""Files that wait for servers and clients, or take long, by which worker begins with them: they wait side by side."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests of long files before all others: each worker begins with an equal share of the whole order.

    Within a file, and among the others, the order stays.
    """
    num_workers = getattr(config, "workerinput", {}).get("workercount", 1)
    place = {file: number % num_workers for number, files in enumerate(LONG) for file in files}
    of_file = [place.get(item.nodeid.partition("::")[0]) for item in items]
    others = iter([item for item, worker in zip(items, of_file, strict=True) if worker is None])
    share = -(-len(items) // num_workers)
    ordered: list[pytest.Item] = []
    for worker in range(num_workers):
        first = [item for item, its in zip(items, of_file, strict=True) if its == worker]
        ordered += [*first, *islice(others, max(share - len(first), 0))]
    items[:] = [*ordered, *others]


def pytest_collection_finish() -> None:
    """Let Python's collector of unused objects pass over the suite itself, two million objects that stay in use."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Keep what a test's call took of this process' CPU time, for the list at the end."""
    before_s = time.process_time()
    try:
        return (yield)
    finally:
        item.user_properties.append((CPU_S, time.process_time() - before_s))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests whose calls took more than ``MANY_CPU_S``: a list, for a slow machine takes longer."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    took = {report.nodeid: dict(report.user_properties).get(CPU_S, 0.0) for report in reports}
    long = sorted(((cpu_s, name) for name, cpu_s in took.items() if cpu_s > MANY_CPU_S), reverse=True)
    if long:
        terminalreporter.write_sep("=", f"{len(long)} tests took more than {MANY_CPU_S:g} CPU s of their own")
        for cpu_s, name in long:
            terminalreporter.write_line(f"{cpu_s:.1f} s {name}")


@pytest.fixture(scope="session", autouse=True)
def kept_commands() -> Iterator[None]:
    """Each command is made once for all calls of `vtwin.main` in this process."""
    from tests.kept_commands import keep_commands  # it imports numpy, which reads what is set above

    with pytest.MonkeyPatch.context() as patch:
        keep_commands(patch)
        yield


@pytest.fixture
def heeds_hang_up() -> Iterator[None]:
    """Children end by SIGHUP while the test lasts: those of a program started by nohup ignore it, as they should."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
