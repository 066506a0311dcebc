"""The command line: `tamis plan|scan|count|files|history|index|inspect|sql|verify`."""

from tamis.cli.application import main

__all__ = ["main"]
