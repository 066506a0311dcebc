"""The optional packages that Iceberg tables need."""

from __future__ import annotations

from importlib.util import find_spec

from tamis.errors import MissingDependency

_PACKAGES = ("pyiceberg", "polars")


def check_installed() -> None:
    """Raise an error that names the missing packages and how to install them."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingDependency(f"an Iceberg table needs {' and '.join(missing)}: pip install 'tamis[iceberg]'")
