"""The command line: `tamis plan|scan|count|files|inspect|verify URI`."""

from tamis.cli.application import main

__all__ = ["main"]
