"""The layers of the package, its public names, and what a new process imports."""

from __future__ import annotations

import ast
import builtins
import inspect
import keyword
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.pyiceberg.tables import create_table, find_latest_metadata
from tamis.cli.application import program
from tamis.cli.commands import load_command
from tamis.engines.duckdb.translate.calls import MACRO_PREFIX
from tamis.engines.duckdb.translate.functions import FUNCTIONS, MACROS

SOURCE = Path(tamis.__file__).parent

# The layers, from the lowest up, as docs/explanation/architecture.md has them. A module imports its own layer and those
# below it. The package itself (`__init__`) installs the engines, and so may import all.
LAYERS = (
    "errors", "types", "tuning", "expr", "skipping", "io", "parquet", "formats", "scan", "index", "table", "query",
    "session", "cli", "engines",
)  # fmt: skip
PUBLIC_MODULES = {
    "delta": "formats",
    "iceberg": "formats",
    "hive": "formats",
    "connectors": "query",
    "expressions": "scan",
    "spark": "engines",
}
"""Modules that only re-export what users of the package need, with the layer they stand for."""
FREE = {"__init__", "__main__"}
PACKAGE_LIMIT = 15

MODULES = sorted(SOURCE.rglob("*.py"))


@cache
def parse_module(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def list_nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(parse_module(path)))


def get_layer(path: Path) -> str:
    name = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return PUBLIC_MODULES.get(name, name)


def find_imported_layers(path: Path) -> set[str]:
    found: set[str] = set()
    for node in list_nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts[0] == "tamis":
                found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("tamis.")}
    return {PUBLIC_MODULES.get(name, name) for name in found}


def test_nothing_imports_upwards() -> None:
    wrong = []
    for path in MODULES:
        layer = get_layer(path)
        if layer in FREE:
            continue
        assert layer in LAYERS, f"{path.relative_to(SOURCE)} belongs to no layer"
        above = find_imported_layers(path) & set(LAYERS[LAYERS.index(layer) + 1 :])
        wrong += [f"{path.relative_to(SOURCE)} imports {each}" for each in sorted(above)]
    assert not wrong


PAGE = (Path(__file__).parents[1] / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")


def test_the_page_has_the_layers_in_their_order() -> None:
    rows = PAGE.partition("| package | what it holds |")[2].partition("\n\n")[0].splitlines()[2:]
    names = [re.findall(r"`(\w+)(?:\.py|/)`", row.split("|")[1]) for row in rows]
    assert tuple(name for row in names for name in row) == LAYERS


def test_the_page_has_every_job() -> None:
    jobs = {
        path.relative_to(SOURCE).as_posix()
        for path in MODULES
        for node in list_nodes(path)
        if isinstance(node, ast.Assign) and re.match(r"'tamis\.[\w.]+:\w+'$", ast.unparse(node.value))
    }
    listed = re.findall(r"^\| `([\w/]+\.py)` \|", PAGE.partition("| job |")[2].partition("\n\n")[0], re.MULTILINE)
    assert set(listed) == jobs


# --- Formats ----------------------------------------------------------------------------------------------------------

FORMATS = {"delta", "iceberg", "hive", "parquet"}


def find_format_names(tree: ast.Module) -> list[tuple[int, str]]:
    """Return the lines of a module that import a format's package or contain a format's name as a string."""
    packages = {f"tamis.formats.{each}" for each in FORMATS} | {f"tamis.{each}" for each in FORMATS - {"parquet"}}
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                imported = [module, *(f"{module}.{each.name}" for each in names)]
            case ast.Import(names=names):
                imported = [each.name for each in names]
            case ast.Constant(value=str(text)):
                found += [(node.lineno, repr(text))] * (text in FORMATS)
                continue
            case _:
                continue
        inside = [name for name in imported if any(f"{name}.".startswith(f"{each}.") for each in packages)]
        found += [(node.lineno, inside[0])] if inside else []
    return found


def test_only_formats_know_a_format_by_its_name() -> None:
    wrong = []
    for path in MODULES:
        name = path.relative_to(SOURCE).as_posix()
        # The package itself has the names of its public modules; an export names the kinds of files that it writes.
        if get_layer(path) not in ("formats", "__init__") and name != "cli/export.py":
            wrong += [f"{name}:{line}: {what}" for line, what in find_format_names(parse_module(path))]
    assert not wrong, "ask the table instead: see tamis.formats.source"


def test_a_format_is_found_in_imports_and_texts() -> None:
    tree = ast.parse(
        "from tamis.formats.delta.table import DeltaTable\n"
        "from tamis.formats import hive\n"
        "import tamis.formats.iceberg.table\n"
        "known = source.format == 'iceberg'\n"
        "import tamis.formats.source\n"
        "raise ValueError('a delta table')\n"
    )
    assert [line for line, _ in sorted(find_format_names(tree))] == [1, 2, 3, 4]


# What names a module in a string: public names that are imported on first use, jobs that run elsewhere, and PySpark's
# modules, which differ between classic and Connect sessions.
IMPORTS_BY_NAME = {
    "__init__.py",
    "parquet/__init__.py",
    "formats/jobs.py",
    "engines/spark/worker.py",
    "engines/spark/sessions.py",
}


def test_no_import_hides_in_a_string() -> None:
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in MODULES
        for node in list_nodes(path)
        if isinstance(node, ast.Name) and node.id in ("import_module", "__import__")
    }
    assert found == IMPORTS_BY_NAME


# --- Names in docstrings ----------------------------------------------------------------------------------------------

PACKAGES = sorted({path.parent for path in MODULES} - {SOURCE})


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.relative_to(SOURCE).as_posix())
def test_a_package_is_small_and_names_its_modules(package: Path) -> None:
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    assert len(modules) <= PACKAGE_LIMIT
    parts = modules | {path.parent.name for path in package.glob("*/__init__.py")}
    docstring = ast.get_docstring(parse_module(package / "__init__.py")) or ""
    named = set(re.findall(r"`([a-z_0-9.]+)`", docstring))
    assert parts <= named, "the docstring of a package names every module, in the order in which to read them"
    public = {f"tamis.{name}" for name in tamis.__all__} | {"tamis", "where"}
    elsewhere = {".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in [*MODULES, *PACKAGES]}
    assert named <= parts | public | elsewhere


# Names in docstrings that are not Tamis's own: of file formats and libraries, and of columns in examples.
FOREIGN_NAMES = {
    "ArrowArray", "ArrowSchema", "release",  # the C data interface
    "LEGACY", "TIMESTAMP_NS", "TIME_MS", "SS", "sNaN",  # Spark, and numbers
    "cteRecursionLevelLimit", "cteRecursionRowLimit", "datasource", "mergeSchema", "versionAsOf",
    "can_have_nan", "enable_logging", "json_serialize_sql", "read_parquet",  # DuckDB
    "map_lookup", "np", "pa",  # Arrow and numpy
    "_common_metadata", "_last_checkpoint",  # files
    "abc", "city", "c1", "df", "element", "given_value0", "id_bucket", "input_1", "k0", "m0", "n0", "orders_2",
    "tags", "tamis_scan_1", "ts", "ts_day", "x",
}  # fmt: skip


def find_names(tree: ast.Module) -> set[str]:
    """Return the names that a module defines or uses, and its one-word strings. Aliases do not count."""
    found: set[str] = set()
    aliases: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name) | ast.arg(arg=name):
                found.add(name)
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                found.add(name)
            case ast.alias(name=name, asname=asname):
                found.update(name.split("."))
                aliases |= {asname} if asname else set()
            case ast.Constant(value=str(name)) if re.fullmatch(r"[\w.-]+", name):
                found.update(name.split("."))
    return found - aliases


def find_texts(tree: ast.Module) -> list[tuple[int, str]]:
    """Return the docstrings of a module, its classes, functions and values, with their lines."""
    strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    return [
        (each.lineno, each.value) for each in strings if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]


def test_names_in_docstrings_exist() -> None:
    trees = {path: parse_module(path) for path in MODULES}
    known = FOREIGN_NAMES | set(dir(builtins)) | set(keyword.kwlist)
    for path, tree in trees.items():
        known |= {*path.relative_to(SOURCE.parent).with_suffix("").parts} | find_names(tree)
    # Macros of the embedded engine have a prefix.
    known |= {f"{MACRO_PREFIX}{name}" for name in MACROS} | FUNCTIONS.keys()
    wrong = []
    for path, tree in trees.items():
        for line, text in find_texts(tree):
            named = re.findall(r"`([A-Za-z_][\w.]*)(?:\(\))?`", text)
            unknown = [name for name in named if not {*name.strip(".").split(".")} <= known]
            wrong += [f"{path.relative_to(SOURCE)}:{line}: {name}" for name in unknown]
    assert not wrong


# --- Private attributes -----------------------------------------------------------------------------------------------

# Libraries without a public interface for what is needed of them.
FOREIGN_PRIVATES = {
    "expr/interop/from_pyspark.py",  # PySpark's columns
    "expr/sql/dialect.py",  # sqlglot's parser
    "expr/sql/pipes.py",
    "formats/function_results.py",  # pyarrow's export to the C interface
}
# Relations of files that a session keeps, and the name of cached rows on the storage page: only the JVM has them.
FOREIGN_ATTRIBUTES = {
    "engines/spark/files_dataframe.py": {"_jsparkSession", "_jdf"},
    "engines/spark/native_scan.py": {"_jdf"},
}
# Values that the expression layer remembers on its own nodes.
REMEMBERED = {"expr/evaluate.py": {"_evaluable"}, "expr/functions/table.py": {"_type", "_fallible"}}


def find_private_attributes(tree: ast.Module) -> tuple[set[str], list[ast.Attribute]]:
    """Return the private attributes that a module's classes define, and those of other objects that it uses."""
    own: set[str] = set()
    for each in [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]:
        for node in ast.walk(each):
            match node:
                case ast.FunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                    own.add(name)
                case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                    own.add(name)
                case ast.Constant(value=str(name)):  # names in __slots__
                    own.add(name)
    used = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.endswith("_")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]
    return own, used


def test_private_attributes_are_used_only_where_they_are_defined() -> None:
    wrong = []
    for path in MODULES:
        name = path.relative_to(SOURCE).as_posix()
        own, used = find_private_attributes(parse_module(path))
        # Methods of named tuples, which are public.
        allowed = own | REMEMBERED.get(name, set()) | FOREIGN_ATTRIBUTES.get(name, set()) | {"_asdict", "_replace"}
        if name not in FOREIGN_PRIVATES:
            wrong += [f"{name}:{node.lineno}: {ast.unparse(node)}" for node in used if node.attr not in allowed]
    assert not wrong


def test_public_names() -> None:
    assert tamis.__all__ == [
        "open",
        "connect",
        "Session",
        "Query",
        "Table",
        "Scan",
        "ScanPlan",
        "Report",
        "col",
        "lit",
        "Expression",
        "PartitionFilter",
        "Connector",
        "Tuning",
        "TamisError",
        "connectors",
        "delta",
        "errors",
        "expressions",
        "hive",
        "iceberg",
        "index",
        "parquet",
        "spark",
        "__version__",
    ]
    assert all(hasattr(tamis, name) for name in tamis.__all__)
    # Submodules that were imported meanwhile.
    assert dir(tamis) == sorted(tamis.__all__)


def list_public_names(kind: object) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_public_attributes_of_what_people_hold() -> None:
    rows = {"schema", "count", "to_batches", "to_reader", "to_arrow", "to_pandas", "to_polars", "to_duckdb", "to_spark"}
    assert list_public_names(tamis.Query) == rows | {"text", "explain"}
    assert list_public_names(tamis.ScanPlan) == {
        "tasks", "file_batches", "num_files", "bytes", "assert_max_files", "assert_max_bytes",
    }  # fmt: skip
    assert list_public_names(tamis.Report("t", "hive", None, ())) == {
        "table", "format", "where", "columns", "levels", "level", "bytes_read", "requests", "note", "to_dict",
    }  # fmt: skip


def list_public_objects(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Yield what a public module exports, with the exports of its public modules."""
    for name in module.__all__:
        found = getattr(module, name)
        if isinstance(found, ModuleType):
            yield from list_public_objects(found)
        else:
            yield f"{module.__name__}.{name}", found


def list_functions(name: str, owner: object) -> Iterator[tuple[str, object]]:
    """Yield a function itself, or the public methods and properties of a class, inherited ones included."""
    if inspect.isfunction(owner):
        yield name, owner
    for each in sorted(list_public_names(owner)) if inspect.isclass(owner) else ():
        found = inspect.getattr_static(owner, each)
        found = getattr(found, "__func__", getattr(found, "fget", getattr(found, "func", found)))
        if inspect.isfunction(found) and found.__module__.startswith("tamis"):
            yield f"{name}.{each}", found


def test_public_functions_and_methods_have_a_docstring() -> None:
    owners = dict(list_public_objects(tamis))
    functions = [each for name, owner in owners.items() for each in list_functions(name, owner)]
    assert {"tamis.open", "tamis.Table.scan", "tamis.parquet.RowSelection.is_all"} <= {name for name, _ in functions}
    classes = [(name, owner) for name, owner in owners.items() if inspect.isclass(owner) and owner is not object]
    assert [name for name, each in [*classes, *functions] if not inspect.getdoc(each)] == []


def test_help_describes_every_command_like_the_command_itself() -> None:
    for name, command in program.commands.items():
        assert command.get_short_help_str(100) == load_command(name).get_short_help_str(100)


def test_every_error_is_a_tamis_error() -> None:
    found = [each for each in vars(tamis.errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert len(found) > 10
    assert all(issubclass(each, tamis.TamisError) for each in found)


# --- What a new process pays ----------------------------------------------------------------------------------------

# Packages, and modules of them or of ours, that take long to import or much memory.
HEAVY = {
    "numpy",
    "pyarrow",
    "pandas",
    "polars",
    "duckdb",
    "sqlglot",
    "pyiceberg",
    "pyiceberg.catalog",
    "sqlalchemy",
    "pyspark",
    "click",
    "rich",
    "tamis.formats.delta.table",
    "tamis.formats.hive.table",
    "tamis.formats.iceberg.table",
    "tamis.index.store",
    "tamis.parquet.pruner",
    "tamis.parquet.inspection",
    "tamis.query",
}
# pyarrow imports pandas with the first Python value that it is given, unless that is prevented.
ARROW = {"numpy", "pyarrow", "pandas"}


def find_loaded_packages(script: str, *arguments: str) -> set[str]:
    """Return the heavy packages that a script loads in a new process."""
    script = f"import sys\n{script}\nprint('loaded:', *({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("loaded:")[2].split())


def test_an_import_loads_nothing_heavy_and_has_all_names() -> None:
    script = "import tamis\nassert set(tamis.__all__) <= set(dir(tamis))"
    assert find_loaded_packages(script) == set()


def test_public_modules_are_there_without_being_imported() -> None:
    script = (
        "import tamis\nassert tamis.parquet.RowSelection\nassert not hasattr(tamis, 'pushdown')\n"
        "import tamis.table\nassert tamis.open is tamis.table.open_table"
    )
    assert find_loaded_packages(script) <= ARROW
    assert not any(hasattr(tamis, name) for name in ("opne", "_private", "__main__", "__wrapped__"))


COMMAND = "from tamis.cli import main\ntry:\n    main()\nexcept SystemExit as end:\n    assert not end.code"


def test_help_loads_no_more_than_it_shows() -> None:
    assert find_loaded_packages(COMMAND, "--help") == {"click"}


def test_a_command_in_a_pipe_loads_neither_pandas_nor_rich(tmp_path: Path) -> None:
    table_path = write_hive(tmp_path / "orders")
    expected = {"numpy", "pyarrow", "click", "sqlglot", "tamis.formats.hive.table"}
    assert find_loaded_packages(COMMAND, "plan", str(table_path), "--where", "id < 5") == expected


def write_delta(folder: Path) -> Path:
    deltalake.write_deltalake(folder, ROWS)
    return folder


def write_hive(folder: Path) -> Path:
    folder.mkdir()
    pq.write_table(ROWS, folder / "0.parquet")
    return folder


def write_iceberg(folder: Path) -> Path:
    create_table(folder, ROWS.schema).append(ROWS)
    return find_latest_metadata(folder)


ROWS = pa.table({"id": range(10)})


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (write_delta, {"tamis.formats.delta.table"}),
        (write_hive, {"tamis.formats.hive.table"}),
        (write_iceberg, {"tamis.formats.iceberg.table", "polars", "pyiceberg"}),
    ],
    ids=["delta", "hive", "metadata of iceberg"],
)
def test_a_plan_loads_only_what_its_format_needs(
    write: Callable[[Path], Path], expected: set[str], tmp_path: Path
) -> None:
    table_path = write(tmp_path / "orders")
    assert (
        find_loaded_packages("import tamis\ntamis.open(sys.argv[1]).scan().plan()", str(table_path)) == ARROW | expected
    )
