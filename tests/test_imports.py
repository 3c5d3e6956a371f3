"""The rooms know each other only along the arrows of docs/architecture.md."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ARROWS = {
    "traces": set(),
    "sim": set(),
    "observe": {"traces"},
    "replay": {"traces", "sim"},
    "calibrate": {"traces", "sim", "replay"},
    "vtwin": {"traces", "sim", "observe", "replay", "calibrate"},
}
# What sim may use: arithmetic and types. No files, no clock, no logging, no randomness that is consumed.
SIM_MODULES = {
    "__future__",
    "abc",
    "collections",
    "collections.abc",
    "dataclasses",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "heapq",
    "importlib",
    "itertools",
    "lazy_dataclasses",
    "math",
    "operator",
    "types",
    "typing",
}
# Except: the cache of machine code is a folder, and a run says what it cost. No outcome depends on either.
SIM_EXCEPTIONS = {
    "sim/jit/code_cache.py": {
        "contextlib",
        "fcntl",
        "hashlib",
        "os",
        "pathlib",
        "stat",
        "sys",
        "tempfile",
    },  # compiled code on disk
    "sim/jit/entries.py": {
        "ctypes",
        "hashlib",
        "pathlib",
        "struct",
        "threading",
        "time",
        "weakref",
    },  # how it is found and called, and the CPU time for which it is loaded
    "sim/jit/machine_code.py": {"llvmlite.binding", "threading"},  # how it is loaded
    "sim/jit/numba_settings.py": {
        "importlib.util",
        "llvmlite.binding",
        "os",
        "pathlib",
        "re",
        "sys",
    },  # environment variables of numba's
    "sim/jit/linking.py": {"ctypes", "llvmlite"},  # what numba writes its code with
    "sim/jit/folding.py": {"ast", "inspect", "textwrap"},  # the engine's own sources
    "sim/jit/shipped.py": {"pathlib", "zlib"},  # the same, in the package
    "sim/cluster/ship.py": {"os", "pathlib", "sys", "tempfile"},  # makes it
    "sim/jit/compile.py": {"glob", "hashlib", "os", "pathlib", "sys", "tempfile"},
    "sim/paged_memory.py": {"mmap"},  # pages of the process, of no file
    "sim/simulation.py": {"time"},
    "sim/cluster/by_events.py": {"time"},
    "sim/jit/reference_types.py": {"llvmlite"},  # what numba writes its code with
}
MOST_MODULES = 15
"""In one folder, beside its sub-packages and its ``__init__``: what a newcomer can take in at a glance."""
SIM_CALLS_FORBIDDEN = {"open", "print", "input", "breakpoint"}
NUMPY_FILES = {
    *("save", "savez", "savez_compressed", "savetxt", "load", "loadtxt", "genfromtxt", "fromregex"),
    *("fromfile", "memmap", "open_memmap", "DataSource", "lib"),
}
"""What of numpy reads or writes files."""
ARRAY_FILES = {"tofile", "dump"}
"""And of its arrays."""


@cache
def import_nodes(source: str) -> tuple[ast.Import | ast.ImportFrom | ast.Call, ...]:
    """Return every statement and call of ``source`` that imports, inside functions too; read once for all tests."""
    return tuple(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Call) and _called_name(node) in {"import_module", "__import__"})
    )


def imported_modules(source: str, *, package: str) -> Iterator[str]:
    """Yield the dotted name of every module that ``source`` imports, inside functions too."""
    for node in import_nodes(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield package if node.level else str(node.module)
        else:
            yield from (arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant))


def _called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def sources_of(room: str) -> dict[str, str]:
    """Return the source of every file of a room by its path from the root."""
    files = [ROOT / "vtwin.py"] if room == "vtwin" else sorted((ROOT / room).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in files}


def foreign_rooms(source: str, *, room: str) -> set[str]:
    tops = {name.split(".")[0] for name in imported_modules(source, package=room)}
    return (tops & set(ARROWS)) - ARROWS[room] - {room}


@pytest.mark.parametrize("room", ARROWS)
def test_a_room_imports_only_along_the_arrows(room: str) -> None:
    wrong = {name: foreign_rooms(source, room=room) for name, source in sources_of(room).items()}
    assert {name: rooms for name, rooms in wrong.items() if rooms} == {}


def test_what_all_rooms_stand_on_knows_none_of_them() -> None:
    imported = set(imported_modules((ROOT / "lazy_dataclasses.py").read_text(), package=""))
    assert "dataclasses" in imported
    assert {name.split(".")[0] for name in imported} <= {"__future__", *sys.stdlib_module_names}


def test_every_room_has_files_to_look_at() -> None:
    assert all(sources_of(room) for room in ARROWS)


def test_sim_imports_no_files_no_clock_and_no_logging() -> None:
    wrong = {
        (name, module)
        for name, source in sources_of("sim").items()
        for module in imported_modules(source, package="sim")
        if module not in SIM_MODULES | SIM_EXCEPTIONS.get(name, set())
        and module.split(".")[0] not in {"numba", "numpy", "sim"}
    }
    assert wrong == set()


def test_sim_opens_and_prints_nothing() -> None:
    wrong = {
        (name, node.lineno)
        for name, source in sources_of("sim").items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in SIM_CALLS_FORBIDDEN
    }
    assert wrong == set()


def file_functions_of_numpy(source: str) -> Iterator[str]:
    """Yield the name of everything in ``source`` by which numpy reads or writes files, imported or called."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            is_module = isinstance(node.value, ast.Name) and node.value.id in {"np", "numpy"}
            if node.attr in ARRAY_FILES or (is_module and node.attr in NUMPY_FILES):
                yield node.attr
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "numpy":
            is_inner = str(node.module).startswith("numpy.lib")
            yield from (alias.name for alias in node.names if is_inner or alias.name in NUMPY_FILES)


def test_sim_has_numpy_read_and_write_no_files() -> None:
    wrong = {
        (name, function)
        for name, source in sources_of("sim").items()
        for function in file_functions_of_numpy(source)
        if name not in SIM_EXCEPTIONS or "pathlib" not in SIM_EXCEPTIONS[name]
    }
    assert wrong == set()


@pytest.mark.parametrize(
    "line",
    [
        "import numpy as np\nnp.savetxt('f', x)",
        "import numpy\nnumpy.load('f')",
        "from numpy import savetxt",
        "from numpy.lib.format import open_memmap",
        "x.tofile('f')",
    ],
)
def test_a_file_function_of_numpy_is_found(line: str) -> None:
    assert list(file_functions_of_numpy(line))


def test_sim_reads_no_clock_but_that_of_its_own_work() -> None:
    read = {
        node.attr
        for source in sources_of("sim").values()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time"
    }
    assert read <= {"thread_time"}


def test_no_room_imports_tests_or_docs() -> None:
    imported = {
        module.split(".")[0]
        for room in ARROWS
        for source in sources_of(room).values()
        for module in imported_modules(source, package=room)
    }
    assert imported.isdisjoint({"tests", "docs"})


def inner_names_of_numba(source: str) -> set[str]:
    """Return the modules of numba that ``source`` imports and that numba does not publish."""
    modules = {name for name in imported_modules(source, package="sim") if name.split(".")[0] == "numba"}
    return modules - {"numba", "numba.extending"}


def test_only_one_room_uses_what_numba_does_not_publish() -> None:
    users = {
        name for room in ARROWS for name, source in sources_of(room).items() if inner_names_of_numba(source)
    }
    assert users
    assert {name for name in users if not name.startswith("sim/jit/")} == set()


@pytest.mark.parametrize("room", ARROWS)
def test_no_room_has_the_name_of_a_standard_module(room: str) -> None:
    assert room not in sys.stdlib_module_names


@pytest.mark.parametrize(
    "source",
    [
        "import replay",
        "from replay.twin.config_read import load_config",
        "def f():\n    from replay import load_config",
        "if TYPE_CHECKING:\n    import replay.config.cli as c",
        "import importlib\nimportlib.import_module('replay.config.cli')",
    ],
)
def test_an_arrow_that_is_not_drawn_is_seen(source: str) -> None:
    assert foreign_rooms(source, room="traces") == {"replay"}


# The inner rooms. At every level of a package, its modules and sub-packages import one another one way only:
# lazy imports, ``TYPE_CHECKING`` and imports by name included.

Arrows = dict[str, set[str]]


def modules_of(room: str, *, root: Path = ROOT) -> dict[str, Path]:
    """Return the modules of a package by their dotted names; a folder stands for its ``__init__``."""
    found = {}
    for path in sorted((root / room).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(source: str, *, known: Mapping[str, Path]) -> set[str]:
    """Return which of the ``known`` modules a source names in an import."""
    found: set[str] = set()
    for node in import_nodes(source):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else str(node.module) for name in names}
        else:
            found |= {str(arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant)}
    return found & set(known)


def arrows_at(folder: str, arrows: Arrows) -> Arrows:
    """Return the arrows between a folder's door and its children: a module, or a sub-package with all it holds."""
    depth = folder.count(".") + 2
    inside = f"{folder}."
    between: Arrows = {}
    for name, targets in arrows.items():
        if not (name.startswith(inside) or name == folder):
            continue
        child = ".".join(name.split(".")[:depth])
        ends = {".".join(t.split(".")[:depth]) for t in targets if t.startswith(inside) or t == folder}
        between.setdefault(child, set()).update(ends - {child})
    return between


def circle_in(arrows: Arrows) -> set[str]:
    """Return the nodes that cannot be put on floors: those on a circle, and those that rest on one."""
    left = {name: set(targets) for name, targets in arrows.items()}
    while True:
        free = {name for name, targets in left.items() if not targets & set(left)}
        if not free:
            return set(left)
        for name in free:
            del left[name]


def inner_arrows(room: str, *, root: Path = ROOT) -> Arrows:
    known = modules_of(room, root=root)
    return {name: imports_of(path.read_text(), known=known) for name, path in known.items()}


PACKAGES = [room for room in ARROWS if room != "vtwin"]


@pytest.mark.parametrize("room", PACKAGES)
def test_inner_rooms_import_one_way_and_no_circle_stands(room: str) -> None:
    arrows = inner_arrows(room)
    folders = {name.rpartition(".")[0] for name in arrows} - {""}
    circles = {folder: circle_in(arrows_at(folder, arrows)) for folder in folders}
    assert {folder: circle for folder, circle in circles.items() if circle} == {}


@pytest.mark.parametrize("room", PACKAGES)
def test_no_folder_holds_more_modules_than_a_glance_takes_in(room: str) -> None:
    modules = [path for path in modules_of(room).values() if path.name != "__init__.py"]
    crowd = Counter(path.parent.relative_to(ROOT).as_posix() for path in modules)
    assert {folder: number for folder, number in crowd.items() if number > MOST_MODULES} == {}


QUESTIONS = {"__init__", "cli", "command", "options", "page", "question", "text"}
"""Names of modules that every folder of a question may have (docs/architecture.md, "File names")."""


def test_a_module_is_found_by_its_name_alone() -> None:
    modules = [path for room in PACKAGES for path in modules_of(room).values() if path.stem not in QUESTIONS]
    number = Counter(path.stem for path in modules)
    assert [path.relative_to(ROOT).as_posix() for path in modules if number[path.stem] > 1] == []


@pytest.mark.parametrize(
    "sources",
    [
        {"a.py": "import room.b", "b.py": "def f():\n    from room import a"},
        {"a.py": "from room.inner.x import f", "inner/x.py": "if TYPE_CHECKING:\n    from room.a import T"},
        {"one/x.py": "import room.two.y", "two/y.py": "", "two/z.py": "import room.one.w", "one/w.py": ""},
        {"__init__.py": "from room.a import f", "a.py": "from room import f"},
    ],
)
def test_a_circle_is_seen(tmp_path: Path, sources: dict[str, str]) -> None:
    for name, source in {"__init__.py": "", **sources}.items():
        (tmp_path / "room" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "room" / name).write_text(source)
    arrows = inner_arrows("room", root=tmp_path)
    assert circle_in(arrows_at("room", arrows))


def classes_of(source: str) -> Iterator[str]:
    """Yield the name of every public class that ``source`` defines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def test_no_two_modules_define_a_class_of_the_same_name() -> None:
    places: dict[str, list[str]] = {}
    for room in ARROWS:
        for path, source in sources_of(room).items():
            for name in classes_of(source):
                places.setdefault(name, []).append(path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}
