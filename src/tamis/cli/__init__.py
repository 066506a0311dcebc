"""The command line: `tamis plan|scan|count|files|sql|history|index|inspect|verify URI`.

Reading order:

- `application`         the program, its commands and their imports
- `commands`            one module for each command
- `options`             options that several commands share
- `output`, `terminal`  tables and reports, for a pipe and for a terminal
- `text`                values as text
- `progress`            the progress bar on stderr
- `export`              files that `tamis scan` and `tamis sql` write
- `errors`              one line on stderr, and the exit code
"""

from tamis.cli.application import main

__all__ = ["main"]
