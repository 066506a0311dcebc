"""The optional packages that Iceberg tables need."""

from __future__ import annotations

from importlib.util import find_spec

from tamis.errors import make_missing_package_error

_PACKAGES = ("pyiceberg", "polars")


def check_installed() -> None:
    """Raise an error that names the missing packages and how to install them."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise make_missing_package_error("an Iceberg table", *missing)
