"""What Iceberg tables need beyond the core: an optional part of the installation."""

from __future__ import annotations

from importlib.util import find_spec

from tamis.errors import MissingDependency

_PACKAGES = ("pyiceberg", "polars")


def check_installed() -> None:
    """An error that names what is missing, and how to get it."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingDependency(f"an Iceberg table needs {' and '.join(missing)}: pip install 'tamis[iceberg]'")
