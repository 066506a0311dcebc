"""Mutation tests of the code that must never lose a row: each mutant has a small mistake that a test must detect.

    make mutants                        a sample of 60 mutants, always the same
    make mutants ARGS="--sample 0"      all of them
    make mutants ARGS="--seed 7 src/tamis/scan/aggregation/top_n.py=tests/query/test_lake_top_n.py"
    make mutants ARGS="src/tamis/expr/bind.py::find_neighbours=tests/expr/test_coerce.py"

A mutant is a copy of one module with one change: a comparison flipped, AND for OR, a condition negated, a bound swapped
with its opposite (lower/upper, min/max), or a value that is not returned. The tests of the module run against the copy,
in a new process, until the first one fails. A test that also fails without a mutant is reported and left out, because
it would kill every mutant. A mutant that survives needs a new test, or changes nothing. In the second case, add a line
with the reason to `mutants_equivalent.txt`.

A sample takes about the same number of mutants from each module.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.txt")
_SKIPPING = ("tests/skipping", "-k", "not X11 and not O3 and not with_and_without_pruning and not at_run_time")
"""The tests that read metadata only, which take seconds."""
_GATE = ("tests/engines/duckdb/test_function_gate.py", "tests/engines/duckdb/test_spark_functions.py",
         "tests/engines/duckdb/test_names_and_functions.py", "tests/query/test_spark_semantics.py")  # fmt: skip
_ICEBERG = (
    "tests/formats/iceberg/test_deletes.py", "tests/formats/iceberg/test_delete_assignment.py",
    "tests/formats/iceberg/test_delete_partitions.py", "tests/formats/iceberg/test_table_deletes.py",
)  # fmt: skip

MODULES: dict[str, tuple[str, ...]] = {
    "src/tamis/skipping/answers.py": _SKIPPING,
    "src/tamis/skipping/atoms.py": _SKIPPING,
    "src/tamis/skipping/membership.py": (*_SKIPPING, "tests/parquet/test_bloom_answers.py"),
    "src/tamis/skipping/metadata.py": _SKIPPING,
    "src/tamis/skipping/predicate.py": (*_SKIPPING, "tests/scan/test_scan.py"),
    "src/tamis/skipping/prune.py": (*_SKIPPING, "tests/scan/test_funnel.py"),
    "src/tamis/skipping/rewrite.py": _SKIPPING,
    "src/tamis/parquet/selection/row_selection.py": ("tests/parquet/test_selection.py",),
    "src/tamis/formats/delta/log/replay.py": (
        "tests/formats/delta/test_replay.py", "tests/formats/delta/test_snapshot.py",
    ),
    "src/tamis/formats/delta/deletion_vectors.py": ("tests/formats/delta/test_deletion_vectors.py",),
    "src/tamis/scan/planning/row_groups.py::remove_deleted_rows": ("tests/scan/test_deletes.py",),
    "src/tamis/formats/iceberg/deletes/deleted_rows.py": _ICEBERG,
    "src/tamis/formats/iceberg/deletes/deletes_index.py": _ICEBERG,
    "src/tamis/engines/duckdb/translate/functions.py::"
    "_check_call,_OverloadNesting,_count_overload_levels,find_translation,to_duckdb": _GATE,
    "src/tamis/engines/duckdb/translate/operators.py": (*_GATE, "tests/engines/duckdb/test_number_types.py"),
    "src/tamis/expr/bind.py": ("tests/expr/test_coerce.py",),
}  # fmt: skip
"""The modules, some with the functions to change, and the tests that must detect a mistake."""

_FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPPOSITES = {
    "lower": "upper", "min": "max", "may_be_true": "may_be_false", "all_of": "any_of", "TRUE": "FALSE",
    "starts": "ends", "less": "greater", "less_equal": "greater_equal", "and_": "or_", "and_kleene": "or_kleene",
    "minimum": "maximum", "first": "last",
}  # fmt: skip
_OPPOSITES |= {other: one for one, other in _OPPOSITES.items()}
_SIGNS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "=": "<>"}


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    module: str
    line: int
    what: str
    index: int
    """The index of the changed node in a walk over the module."""
    within: str
    """The function and the statement that contain the node."""

    @property
    def source(self) -> str:
        """The module with the change."""
        tree = ast.parse((ROOT / self.module).read_text())
        _apply(next(node for index, node in enumerate(ast.walk(tree)) if index == self.index))
        return ast.unparse(ast.fix_missing_locations(tree))

    @property
    def name(self) -> str:
        return f"{self.module}:{self.line}: {self.what}"

    @property
    def key(self) -> str:
        """The name of the mutant in `mutants_equivalent.txt`. It does not depend on line numbers."""
        return f"{self.module}: {self.within}: {self.what}"


def make_mutants(module: str) -> Iterator[Mutant]:
    """Return all mutants of a module, or of some of its functions and classes: `module.py::one,other`."""
    module, _, names = module.partition("::")
    tree = ast.parse((ROOT / module).read_text())
    missing = set(filter(None, names.split(","))) - {getattr(top, "name", None) for top in tree.body}
    if missing:
        raise SystemExit(f"{module} has no {', '.join(sorted(missing))}: correct MODULES")
    wanted = {id(node) for top in tree.body if _is_named(top, names) for node in ast.walk(top)}
    within = dict(_find_statements(tree, ""))
    seen: Counter[tuple[str, str]] = Counter()
    for index, node in enumerate(ast.walk(tree)):
        what = _describe_change(node) if id(node) in wanted else None
        if what is not None:
            seen[within[id(node)], what] += 1
            times = seen[within[id(node)], what]
            what = what if times == 1 else f"{what} ({times})"
            yield Mutant(module, getattr(node, "lineno", 0), what, index, within[id(node)])


def _find_statements(node: ast.AST, within: str, name: str = "") -> Iterator[tuple[int, str]]:
    """Return the id of every node, with the function and the first line of the statement that contain it."""
    for child in ast.iter_child_nodes(node):
        own, inner = within, name
        if isinstance(child, ast.stmt | ast.match_case):
            own = f"{name}: {ast.unparse(child).splitlines()[0][:100]}".removeprefix(": ")
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inner = f"{name}.{child.name}".removeprefix(".")
        yield id(child), own
        yield from _find_statements(child, own, inner)


def _is_named(top: ast.stmt, names: str) -> bool:
    return not names or getattr(top, "name", None) in names.split(",")


def _describe_change(node: ast.AST) -> str | None:
    """Return what a mutant changes in a node, or None if nothing can be changed."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in _FLIPPED:
            return f"{ast.unparse(node)}: {type(operator).__name__} becomes {_FLIPPED[type(operator)].__name__}"
        case ast.BoolOp(op=operator):
            return f"{ast.unparse(node)[:80]}: {'or' if isinstance(operator, ast.And) else 'and'} instead"
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            return f"not ({ast.unparse(test)[:80]})"
        case ast.Name(id=name, ctx=ast.Load()) if name in _OPPOSITES:
            return f"{_OPPOSITES[name]} for {name}"
        case ast.Attribute(attr=name, ctx=ast.Load()) if name in _OPPOSITES:
            return f".{_OPPOSITES[name]} for .{name} in {ast.unparse(node)[:60]}"
        case ast.Call(args=[ast.Constant(value=str() as sign), *_]) if sign in _SIGNS:
            return f"{_SIGNS[sign]!r} for {sign!r} in {ast.unparse(node)[:80]}"
        case ast.Return(value=value) if value is not None and not _is_none(value):
            return f"return None for {ast.unparse(value)[:80]}"
        case ast.Constant(value=int() as value) if type(value) is int:
            return f"{value + 1} for {value}"
        case _:
            return None


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _apply(node: ast.AST) -> None:
    """Change the node."""
    match node:
        case ast.Compare(ops=[operator]):
            node.ops = [_FLIPPED[type(operator)]()]
        case ast.BoolOp(op=operator):
            node.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
        case ast.If() | ast.IfExp() | ast.While():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Name():
            node.id = _OPPOSITES[node.id]
        case ast.Attribute():
            node.attr = _OPPOSITES[node.attr]
        case ast.Call(args=[ast.Constant() as sign, *_]):
            sign.value = _SIGNS[sign.value]
        case ast.Return():
            node.value = ast.Constant(None)
        case ast.Constant():
            node.value = node.value + 1


def is_killed(mutant: Mutant, tests: tuple[str, ...], left_out: list[str], seconds: int) -> bool:
    """Return whether a test of the module fails for the mutant, or exceeds the time limit."""
    try:
        done = _run_tests(mutant, ("-x", *(f"--deselect={test}" for test in left_out), *tests), seconds)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def find_failing_tests(tests: tuple[str, ...], seconds: int) -> list[str]:
    """Return the tests that fail without a mutant."""
    done = _run_tests(None, ("-rfE", *tests), seconds)
    found = re.findall(r"^(?:FAILED|ERROR) (.+?\.py::.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode and not found:
        # Every mutant would seem to be killed.
        raise SystemExit(f"{done.stdout[-2000:]}\nthe tests do not run without a mutant: {' '.join(tests)}")
    return found


def _run_tests(mutant: Mutant | None, arguments: tuple[str, ...], seconds: int) -> subprocess.CompletedProcess[str]:
    """Run pytest against a copy of the package, with or without a mutant."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "tamis"
        # The copy includes bytecode, which Python accepts because source times are copied too.
        shutil.copytree(ROOT / "src" / "tamis", package)
        if mutant is not None:
            (Path(folder) / Path(mutant.module).relative_to("src")).write_text(mutant.source)
        environment = os.environ | {
            "PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'tests'}",
            "PYTHONDONTWRITEBYTECODE": "1",
            # pytest truncates names of failed tests at the width of the terminal.
            "COLUMNS": "1000",
        }
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "--no-header", "-p", "no:cacheprovider"]
        options = ["-o", f"pythonpath={folder} {ROOT / 'tests'}"]
        done = subprocess.run(
            [*command, *options, *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    if done.returncode not in (0, 1, 2):
        raise SystemExit(f"{done.stdout[-2000:]}{done.stderr[-2000:]}\nthe tests did not run: {' '.join(arguments)}")
    return done


def choose_sample(mutants: list[Mutant], size: int, seed: int) -> list[Mutant]:
    """Return a random sample with about the same number of mutants from each module."""
    chance = random.Random(seed)
    by_module: dict[str, list[Mutant]] = {}
    for each in chance.sample(mutants, len(mutants)):
        by_module.setdefault(each.module, []).append(each)
    rounds = itertools.zip_longest(*(by_module[module] for module in sorted(by_module)))
    found = [each for turn in rounds for each in turn if each is not None]
    return sorted(found[:size], key=lambda each: (each.module, each.line, each.index))


def read_equivalents() -> dict[str, str]:
    """Return the keys of the mutants that change nothing, with the reasons."""
    found: dict[str, str] = {}
    for line in EQUIVALENT.read_text().splitlines() if EQUIVALENT.exists() else ():
        if line.strip() and not line.startswith("#"):
            what, _, reason = line.partition(" # ")
            if not reason.strip():
                raise SystemExit(f"{EQUIVALENT.name}: a reason is missing after ' # ' in: {line}")
            found[what.strip()] = reason.strip()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="module[::names][=tests[,tests]] (all of MODULES)")
    parser.add_argument("--sample", type=int, default=60, help="the number of mutants; 0 for all")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the sample")
    parser.add_argument("--seconds", type=int, default=600, help="the time limit for the tests of one mutant")
    parser.add_argument("--list", action="store_true", help="list the mutants and run nothing")
    given = parser.parse_args()
    modules = dict(MODULES)
    if given.modules:
        named = (each.partition("=") for each in given.modules)
        modules = {module: tuple(filter(None, tests.split(","))) or MODULES[module] for module, _, tests in named}
    tests_of = {module.partition("::")[0]: tests for module, tests in modules.items()}
    known = read_equivalents()
    mutants = [each for module in modules for each in make_mutants(module)]
    total = len(mutants)
    mutants = [each for each in mutants if each.key not in known]
    if given.sample and given.sample < len(mutants):
        mutants = choose_sample(mutants, given.sample, given.seed)
    print(f"{total} mutants, {total - len(mutants)} left out ({len(known)} known to change nothing)", flush=True)
    if given.list:
        print("\n".join(each.name for each in mutants))
        return
    survivors = []
    left_out: dict[tuple[str, ...], list[str]] = {}
    for number, mutant in enumerate(mutants, start=1):
        tests = tests_of[mutant.module]
        if tests not in left_out:
            left_out[tests] = find_failing_tests(tests, given.seconds)
            for test in left_out[tests]:
                print(f"left out, because it fails without a mutant: {test}", flush=True)
        killed = is_killed(mutant, tests, left_out[tests], given.seconds)
        survivors += [] if killed else [mutant]
        print(f"{number}/{len(mutants)} {'killed  ' if killed else 'SURVIVED'} {mutant.name}", flush=True)
    print(f"killed {len(mutants) - len(survivors)} of {len(mutants)}")
    for mutant in survivors:
        print(f"survived: {mutant.key}")
    raise SystemExit(1 if survivors or any(left_out.values()) else 0)


if __name__ == "__main__":
    main()
