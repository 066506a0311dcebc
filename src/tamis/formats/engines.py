"""How the layers below `tamis.engines` reach an engine without importing it.

A layer declares what it needs of an engine as a protocol: `formats.jobs`, `scan.engine`, `query.engine`. The package
`tamis` installs a loader for each engine when it is imported, and the first call of `load_engine` imports the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_loaders: dict[str, Callable[[], Any]] = {}


def install_engines(loaders: Mapping[str, Callable[[], Any]]) -> None:
    """Set the functions that import the engines, by the names of the engines."""
    _loaders.update(loaders)


def load_engine(name: str) -> Any:
    """Import an engine on first use, and return the module that has its interface."""
    return _loaders[name]()
