"""Check the layout of `marin_scaling/`: number and length of modules, function lengths, import cycles, and imports from `cli/`.

Run `python tools/structure.py`; it prints one line per figure and exits 1 if a limit is exceeded.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "marin_scaling"
MOST_MODULES, SHORTEST_MEDIAN, LONGEST = 165, 170, 600
"""Limits of the number of modules, of their median length and of the longest one, in lines."""
MEDIAN_FUNCTION, NINE_TENTHS = 5, 15
"""Limits of the median and the 90th percentile of function bodies, in lines."""


def modules() -> dict[str, Path]:
    """Return every module of the package by its dotted name, packages' `__init__` included."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def imported(name: str, tree: ast.Module, known: dict[str, Path]) -> Iterator[str]:
    """Yield the modules that a module imports anywhere: at its top, inside functions and under `TYPE_CHECKING`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found = {f"{node.module}.{alias.name}" for alias in node.names} & known.keys() or {node.module}
        elif isinstance(node, ast.Import):
            found = {alias.name for alias in node.names}
        else:
            continue
        yield from (each for each in found if each in known and each not in (name, PACKAGE.name))


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return one import cycle, empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def function_lengths(tree: ast.Module) -> Iterator[int]:
    """Yield the number of lines of every function's body, without its signature and docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            yield (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def problems() -> list[str]:
    """Print the figures of the layout and return the limits that they exceed."""
    known = modules()
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in known.items()}
    graph = {name: set(imported(name, tree, known)) for name, tree in trees.items()}
    full = [path for path in known.values() if path.name != "__init__.py"]
    lengths = [len(path.read_text(encoding="utf-8").splitlines()) for path in full]
    functions = sorted(length for tree in trees.values() for length in function_lengths(tree))
    circle = cycle(graph)
    upward = sorted(n for n, found in graph.items() if ".cli" not in n and any(".cli" in each for each in found))
    median, nine_tenths = statistics.median(functions), functions[int(0.9 * len(functions))]
    print(f"modules: {len(full)} with {sum(lengths)} lines, median {statistics.median(lengths):g}, longest {max(lengths)}")
    print(f"functions: {len(functions)}, median {median:g} lines, 90th percentile {nine_tenths}")
    print(f"import cycle: {' -> '.join(circle) or 'none'}; imports from cli/ outside of it: {', '.join(upward) or 'none'}")
    found = {
        f"more than {MOST_MODULES} modules": len(full) > MOST_MODULES,
        f"median module under {SHORTEST_MEDIAN} lines": statistics.median(lengths) < SHORTEST_MEDIAN,
        f"a module over {LONGEST} lines": max(lengths) > LONGEST,
        f"median function over {MEDIAN_FUNCTION} lines": median > MEDIAN_FUNCTION,
        f"90th percentile of functions over {NINE_TENTHS} lines": nine_tenths > NINE_TENTHS,
        "an import cycle": bool(circle),
        "imports from cli/": bool(upward),
    }
    return [what for what, exceeded in found.items() if exceeded]


if __name__ == "__main__":
    exceeded = problems()
    if exceeded:
        print("limits exceeded: " + "; ".join(exceeded))
    sys.exit(bool(exceeded))
