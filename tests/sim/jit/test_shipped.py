"""Machine code that comes with the package: used where it runs, and only there; the cache on disk is the other way."""

from __future__ import annotations

from pathlib import Path

import numba
import pytest

from sim.jit import code_cache, shipped
from sim.jit.code_cache import CodeFolder
from sim.jit.compile import is_cached
from sim.jit.entries import Entry
from sim.jit.numba_settings import IS_PLAIN_PYTHON, processor
from sim.jit.shipped import CPU, FEATURES, ShippedFolder, runs_here, ship, this_processor_runs_it

pytestmark = pytest.mark.skipif(
    IS_PLAIN_PYTHON or not this_processor_runs_it(),
    reason="nothing is compiled without the JIT, and nothing is shipped for this processor",
)


def one_more(number: int) -> int:
    return number + 1


class _AsBuilt(CodeFolder):
    """Files this processor's code under the name of the processor that is shipped for."""

    def processor(self) -> tuple[str, str, str]:
        return processor()[0], CPU, ""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder of shipped code, of one function."""
    Entry(one_more, None, lambda: [_AsBuilt(tmp_path / "built")])(1)
    ship(tmp_path / "built", tmp_path / "package")
    return tmp_path / "package"


def use(package: Path, own: Path) -> Entry:
    """Load or compile the function, call it, and return it."""
    entry = Entry(one_more, None, lambda: [ShippedFolder(package), CodeFolder(own)])
    assert entry(41) == 42
    return entry


def test_what_is_shipped_is_not_compiled_and_leaves_nothing_on_disk(package: Path, tmp_path: Path) -> None:
    compiled = use(package, tmp_path / "own")
    assert is_cached(compiled)
    assert not (tmp_path / "own").exists()
    assert compiled.num_loaded == 1


def test_without_a_folder_of_shipped_code_all_is_as_in_a_clone(tmp_path: Path) -> None:
    assert use(tmp_path / "none", tmp_path / "own").num_loaded == 0
    assert list((tmp_path / "own").rglob("*.code"))
    assert not (tmp_path / "none").exists()


def test_a_processor_that_lacks_a_feature_compiles_for_itself(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped, "FEATURES", FEATURES | {"of-another-processor"})
    assert use(package, tmp_path / "own").num_loaded == 0
    again = use(package, tmp_path / "own")
    assert again.num_loaded == 1
    assert is_cached(again)


def test_whoever_names_a_processor_gets_code_for_it(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CPU_NAME", "znver3")
    assert use(package, tmp_path / "own").num_loaded == 0


@pytest.mark.parametrize("lacks", sorted(FEATURES))
def test_every_feature_of_the_processor_that_is_shipped_for_is_asked_for(lacks: str) -> None:
    assert runs_here(",".join(f"+{each}" for each in sorted(FEATURES)) + ",-sse4a,+avx512f")
    assert not runs_here(",".join(f"{'-' if each == lacks else '+'}{each}" for each in sorted(FEATURES)))
    assert not runs_here(",".join(f"+{each}" for each in sorted(FEATURES - {lacks})))


def test_a_damaged_file_is_told_and_compiled_again(
    package: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(code_cache, "_told", set())
    (file,) = package.rglob("*.code")
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert use(package, tmp_path / "own").num_loaded == 0
    assert f"{file}: got a damaged file" in capsys.readouterr().err
    assert use(package, tmp_path / "own").num_loaded == 1
