# SPDX-License-Identifier: MIT
"""The rooms of the house: which folder may include which, and no circle anywhere (CONTRIBUTING.md, "Rooms")."""

from __future__ import annotations

import ast
import fnmatch
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CPP = ROOT / "cpp"
HEADERS = CPP / "include" / "sampleblk"
MODULE = ROOT / "module"
PACKAGE = ROOT / "python" / "sampleblk_lab"

# Each with the rooms that it may include.
ROOMS: dict[str, set[str]] = {
    "base": set(),
    "device": {"base"},
    "workload": {"base"},
    "trace": {"base"},
    "inspect": {"base"},
    "profile": {"base", "trace", "inspect"},
    "crash": {"base", "device"},
    "bindings": {"base", "device", "workload", "trace", "inspect", "profile", "crash"},
}
# The headers without a folder are base's, but for these.
DEVICE_HEADERS = {"device.hpp", "device_journal.hpp", "log_writes.hpp"}
# The folders of the large rooms, in the order the data flows. The public headers come before all of them.
STEPS = {
    "workload": ["language", "pattern", "data", "result", "engine", "run"],
    "trace": ["file", "recording", "events", "views", "texts"],
    "profile": ["symbols", "perf", "sampling", "views"],
}
DRIVER = ["platform", "core", "block", "control"]

_INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.MULTILINE)

Graph = dict[str, set[str]]


def included(path: Path) -> list[str]:
    return _INCLUDE.findall(path.read_text())


def drawn(arrows: dict[tuple[str, str], list[str]]) -> str:
    return "\n".join(f"{a} -> {b}: {', '.join(sorted(why)[:5])}" for (a, b), why in sorted(arrows.items()))


def circles(graph: Graph) -> list[str]:
    """A line for each circle that is found; one for each way into it."""
    found: list[str] = []
    done: set[str] = set()

    def visit(name: str, way: list[str]) -> None:
        if name in way:
            found.append(" -> ".join([*way[way.index(name) :], name]))
        elif name not in done:
            for other in sorted(graph.get(name, ())):
                visit(other, [*way, name])
            done.add(name)

    for name in sorted(graph):
        visit(name, [])
    return found


# --- the core


def core_files() -> list[Path]:
    folders = [CPP / "src", CPP / "include", CPP / "bindings"]
    found = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".cpp", ".hpp", ".c", ".h")]
    assert len(found) > 200
    return sorted(found)


def room_of_header(name: str) -> str:
    """Of ``sampleblk/NAME``."""
    if "/" in name:
        return name.split("/")[0]
    return "device" if name in DEVICE_HEADERS else "base"


def room_of(path: Path) -> str:
    if HEADERS in path.parents:
        return room_of_header(str(path.relative_to(HEADERS)))
    if CPP / "bindings" in path.parents:
        return "bindings"
    return path.relative_to(CPP / "src").parts[0]


def target(path: Path, name: str) -> Path | None:
    """The file that an include of ours means."""
    room = path.relative_to(CPP).parts[:2]
    for folder in (CPP / "include", path.parent, CPP.joinpath(*room), *(CPP / "src").iterdir()):
        if (folder / name).is_file():
            return folder / name
    return None


def test_a_room_includes_only_rooms_before_it() -> None:
    arrows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in core_files():
        for name in included(path):
            other = target(path, name)
            if other is not None:
                arrows[room_of(path), room_of(other)].append(f"{path.name} includes {name}")
    wrong = {pair: why for pair, why in arrows.items() if pair[0] != pair[1] and pair[1] not in ROOMS[pair[0]]}
    assert not wrong, drawn(wrong)
    assert arrows["profile", "trace"], drawn(arrows)  # it looks at something


def test_every_folder_of_the_core_is_a_room() -> None:
    assert {path.name for path in (CPP / "src").iterdir() if path.is_dir()} == set(ROOMS) - {"bindings"}
    assert {path.name for path in HEADERS.iterdir() if path.is_dir()} <= set(ROOMS)


def test_no_two_files_of_the_core_include_each_other() -> None:
    graph: Graph = {}
    for path in core_files():
        targets = (target(path, name) for name in included(path))
        graph[str(path.relative_to(CPP))] = {str(other.relative_to(CPP)) for other in targets if other is not None}
    assert sum(map(len, graph.values())) > 500
    assert not circles(graph)


@pytest.mark.parametrize("name", STEPS)
def test_the_steps_of_a_room_include_only_those_before_them(name: str) -> None:
    room, steps = CPP / "src" / name, STEPS[name]
    files = [path for path in sorted(room.rglob("*")) if path.suffix in (".cpp", ".hpp", ".c", ".h")]
    assert {path.parent.name for path in files} == set(steps)
    assert [path for path in room.iterdir() if path.is_file()] == [room / "CMakeLists.txt"]
    arrows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in files:
        for include in included(path):
            if (room / include).exists():
                arrows[path.parent.name, include.split("/")[0]].append(f"{path.name} includes {include}")
            else:  # a neighbour too is named with its folder
                assert include.startswith("sampleblk/"), f"{path.name} includes {include}"
    wrong = {(a, b): why for (a, b), why in arrows.items() if steps.index(a) < steps.index(b)}
    assert not wrong, drawn(wrong)
    assert any(a != b for a, b in arrows), drawn(arrows)


# --- the driver


def test_the_driver_includes_nothing_upwards_and_in_no_circle() -> None:
    files = [path for folder in DRIVER for path in (MODULE / folder).rglob("*.[ch]")]
    assert len(files) > 30
    graph: Graph = {}
    wrong = []
    for path in files:
        folder = path.relative_to(MODULE).parts[0]
        targets = set()
        for name in included(path):
            places = [place for place in (path.parent, MODULE, MODULE / "platform") if (place / name).is_file()]
            if not places:
                continue
            other = (places[0] / name).resolve().relative_to(MODULE)
            targets.add(str(other))
            if other.parts[0] in DRIVER and DRIVER.index(other.parts[0]) > DRIVER.index(folder):
                wrong.append(f"{path.relative_to(MODULE)} includes {other}")
        graph[str(path.relative_to(MODULE))] = targets
    assert sum(map(len, graph.values())) > 30
    assert not wrong
    assert not circles(graph)


# --- the package


def imports(path: Path) -> set[str]:
    """The modules of ours that are imported, wherever in the file; not those for the type checker alone."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return {name for name in found if name.startswith("sampleblk_lab.")}


def package_graph(depth: int) -> tuple[Graph, dict[tuple[str, str], list[str]]]:
    """Imports among modules, or among what lies directly in the package (`depth` 1)."""
    modules = {}
    for path in PACKAGE.rglob("*.py"):
        if path.stem == "__main__":  # a command, which nothing imports
            continue
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph: Graph = defaultdict(set)
    why: dict[tuple[str, str], list[str]] = defaultdict(list)

    def short(name: str) -> str:
        return ".".join(name.split(".")[: 1 + depth])

    for module, path in modules.items():
        for name in imports(path):
            if name in modules and short(name) != short(module):
                graph[short(module)].add(short(name))
                why[short(module), short(name)].append(module)
    return graph, why


def test_no_two_packages_import_each_other() -> None:
    graph, why = package_graph(1)
    # Its __init__ leads to all.
    graph = {name: others - {"sampleblk_lab"} for name, others in graph.items() if name != "sampleblk_lab"}
    assert sum(map(len, graph.values())) > 50
    found = circles(graph)
    assert not found, drawn(
        {pair: names for pair, names in why.items() if any(" -> ".join(pair) in way for way in found)}
    )


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, ["b -> c -> b"]),
        ({"a": {"a"}}, ["a -> a"]),
    ],
)
def test_a_circle_is_found(graph: Graph, expected: list[str]) -> None:
    assert circles(graph) == expected


# --- the map


def not_there(text: str, files: list[str]) -> list[str]:
    """The files and folders that a text names by `backticks` and which do not exist."""
    names = sorted(set(re.findall(r"`([\w.*/<>-]+(?:\.(?:py|c|h|cpp|hpp|txt)|/))`", text)))
    assert names
    patterns = {name: re.sub(r"<\w+>", "*", name) for name in names}
    return [
        name
        for name, pattern in patterns.items()
        if not fnmatch.filter(files, f"*/{pattern}" + ("*" if name.endswith("/") else ""))
    ]


def test_the_map_names_all_rooms_and_nothing_else() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    files = [path for top in ("cpp", "module", "packaging", "python", "tests") for path in (ROOT / top).rglob("*")]
    assert not_there(text, [f"/{path.relative_to(ROOT)}" for path in files]) == []
    packages = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    assert len(packages) > 15
    assert [name for name in packages if not re.search(rf"`(?:[\w/]+/)?{name}/", text)] == []


def test_a_name_of_the_map_that_is_not_there_is_found() -> None:
    files = ["/cpp/src/base/fd.cpp", "/python/vm/machine.py"]
    assert not_there("`fd.cpp` `src/<room>/` `vm/` `machine.py` `vm/*.py`", files) == []
    assert not_there("`fd.hpp` `src/<room>/` `bench/` `chine.py`", files) == ["bench/", "chine.py", "fd.hpp"]
