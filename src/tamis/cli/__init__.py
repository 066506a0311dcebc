"""The command line: `tamis plan|scan|count|files|sql|history|index|inspect|verify URI`.

`application` has the program and its exit codes, `options` what several commands share, `output`, `open_console` and
`text` what they print, `export` the files they write. Each command is a module of `commands`.
"""

from tamis.cli.application import main

__all__ = ["main"]
