"""Machine code that comes with the package: used where it runs, and only there; the cache on disk is the other way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import pytest

from sim.jit import code_cache, shipped
from sim.jit.code_cache import CodeCache, cache_for
from sim.jit.compile import is_cached
from sim.jit.shipped import CPU, FEATURES, runs_here, ship, this_processor_runs_it, with_shipped

pytestmark = pytest.mark.skipif(
    bool(numba.config.DISABLE_JIT) or not this_processor_runs_it(),
    reason="nothing is compiled without the JIT, and nothing is shipped for this processor",
)


def one_more(number: int) -> int:
    return number + 1


class _AsBuilt(CodeCache):
    """Files this processor's code under the name of the processor that is shipped for."""

    def _index_key(self, sig: object, codegen: Any) -> Any:  # noqa: ANN401 - numba is untyped
        signature, (triple, *_), of_code = super()._index_key(sig, codegen)
        return signature, (triple, CPU, ""), of_code


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder of shipped code, of one function."""
    compiled: Any = numba.njit(one_more)
    compiled._cache = _AsBuilt(one_more, tmp_path / "built")
    compiled(1)
    ship(tmp_path / "built", tmp_path / "package")
    return tmp_path / "package"


def use(package: Path, own: Path) -> Any:  # noqa: ANN401 - a dispatcher
    """Load or compile the function, call it, and return it."""
    compiled: Any = numba.njit(one_more)
    compiled._cache = with_shipped(one_more, own=lambda: cache_for(one_more, own), folder=package)
    assert compiled(41) == 42
    return compiled


def num_hits(compiled: Any) -> int:  # noqa: ANN401 - a dispatcher
    return sum(compiled.stats.cache_hits.values())


def test_what_is_shipped_is_not_compiled_and_leaves_nothing_on_disk(package: Path, tmp_path: Path) -> None:
    compiled = use(package, tmp_path / "own")
    assert is_cached(compiled)
    assert not (tmp_path / "own").exists()
    assert num_hits(compiled) == 1


def test_without_a_folder_of_shipped_code_all_is_as_in_a_clone(tmp_path: Path) -> None:
    compiled = use(tmp_path / "none", tmp_path / "own")
    assert isinstance(compiled._cache, CodeCache)
    assert num_hits(compiled) == 0
    assert list((tmp_path / "own").rglob("*.nbc"))


def test_a_processor_that_lacks_a_feature_compiles_for_itself(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped, "FEATURES", FEATURES | {"of-another-processor"})
    assert num_hits(use(package, tmp_path / "own")) == 0
    again = use(package, tmp_path / "own")
    assert num_hits(again) == 1
    assert is_cached(again)


def test_whoever_names_a_processor_gets_code_for_it(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CPU_NAME", "znver3")
    assert num_hits(use(package, tmp_path / "own")) == 0


@pytest.mark.parametrize("lacks", sorted(FEATURES))
def test_every_feature_of_the_processor_that_is_shipped_for_is_asked_for(lacks: str) -> None:
    assert runs_here(",".join(f"+{each}" for each in sorted(FEATURES)) + ",-sse4a,+avx512f")
    assert not runs_here(",".join(f"{'-' if each == lacks else '+'}{each}" for each in sorted(FEATURES)))
    assert not runs_here(",".join(f"+{each}" for each in sorted(FEATURES - {lacks})))


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_a_damaged_file_is_told_and_compiled_again(
    ending: str,
    package: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(code_cache, "_told", set())
    (file,) = package.rglob(f"*.{ending}")
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert num_hits(use(package, tmp_path / "own")) == 0
    assert f"{file}: got a damaged file" in capsys.readouterr().err
    assert num_hits(use(package, tmp_path / "own")) == 1


def test_nobody_can_link_with_what_is_shipped(package: Path, tmp_path: Path) -> None:
    loaded = use(package, tmp_path / "own")
    with pytest.raises(RuntimeError, match="shipped without"):
        numba.njit(lambda number: loaded(number) + 1)(1)
