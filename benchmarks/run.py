"""Runs the benchmarks and writes their results: `python benchmarks/run.py [names] [--quick]`."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from harness import RESULTS, ROOT, Section, Settings, write_section

BENCHMARKS = (
    "rewrite",
    "full_scan",
    "hive_listing",
    "row_groups",
    "pages",
    "object_store",
    "memory",
    "delta",
    "delta_on_spark",
    "distributed_plan",
    "iceberg",
    "iceberg_on_spark",
    "spark",
    "spark_queries",
    "index",
    "pushdown",
)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/run.py", description="Run benchmarks and print their tables.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"which to run (all): {', '.join(BENCHMARKS)}")
    parser.add_argument(
        "--quick", action="store_true", help="small tables, to check that everything works; writes no results"
    )
    parser.add_argument("--data", type=Path, default=ROOT / "bench-data", help="folder for tables (bench-data)")
    parser.add_argument("--results", type=Path, help="file for the results (benchmarks/RESULTS.md, none with --quick)")
    parser.add_argument("--keep", action="store_true", help="do not delete the 100,000 files and the 4 GB tables")
    parser.add_argument("--large", action="store_true", help="also Delta tables of 10 M files, and of 5 M on Spark")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    return options


def _format_flags(options: argparse.Namespace) -> str:
    return "".join(f" --{flag}" for flag in ("quick", "large") if getattr(options, flag))


def run(name: str, settings: Settings) -> Section:
    module = importlib.import_module(f"bench_{name}")
    section = module.run(settings)
    assert isinstance(section, Section)
    return section


def main() -> None:
    options = parse(sys.argv[1:])
    settings = Settings(options.data.resolve(), options.quick, options.keep, options.large)
    settings.data.mkdir(parents=True, exist_ok=True)
    results = options.results or (None if options.quick else RESULTS)
    for name in options.names or BENCHMARKS:
        command = f"python benchmarks/run.py {name}{_format_flags(options)}"
        print(f"{command} …", file=sys.stderr, flush=True)
        section = run(name, settings)
        print(section.markdown(command), flush=True)
        if results is not None:
            write_section(section, command, results)


if __name__ == "__main__":
    main()
