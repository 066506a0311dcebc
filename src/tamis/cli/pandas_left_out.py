"""Keep pandas from being imported by the command line.

If pandas is installed, pyarrow imports it with the first Python value that it converts, to recognise values of pandas.
That takes a third of a second and 40 MiB, more than most commands need for everything else.
"""

from __future__ import annotations

import sys

_NAME = "pandas"


class _NotInstalled:
    """An import finder that runs before all others, and reports that pandas is not installed."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == _NAME:
            raise ModuleNotFoundError(f"No module named {_NAME!r}", name=_NAME)


def leave_pandas_out() -> None:
    """Make this process behave as if pandas were not installed."""
    sys.meta_path.insert(0, _NotInstalled)


def let_pandas_in() -> None:
    """Undo `leave_pandas_out`, for Spark, which transfers Arrow batches only if pandas is installed."""
    if _NotInstalled in sys.meta_path:
        sys.meta_path.remove(_NotInstalled)
