"""pandas is left out of the process of a command.

pyarrow imports pandas, where it is installed, with the first Python value that it is given, to know it should it be
one of pandas. That takes a third of a second and 40 MiB, more than most commands need for all else.
"""

from __future__ import annotations

import sys

_NAME = "pandas"


class _NotInstalled:
    """Finds pandas before others do, and says that there is none."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == _NAME:
            raise ModuleNotFoundError(f"No module named {_NAME!r}", name=_NAME)


def leave_pandas_out() -> None:
    """Let pandas be as if it were not installed, in this process."""
    sys.meta_path.insert(0, _NotInstalled)


def let_pandas_in() -> None:
    """Undo `leave_pandas_out`, for Spark, which moves Arrow batches only where pandas is installed."""
    if _NotInstalled in sys.meta_path:
        sys.meta_path.remove(_NotInstalled)
