"""The command line: `tamis plan|scan|count|files|verify URI`."""

from tamis.cli.application import main

__all__ = ["main"]
