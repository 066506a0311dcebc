"""The engines that run jobs, by name or by Spark session: the implementation of `formats.jobs.JobEngines`."""

from __future__ import annotations

from typing import Any

from tamis.engines.local import LocalEngine
from tamis.engines.spark.jobs import SparkEngine
from tamis.engines.spark.sessions import get_active_session

__all__ = ["LocalEngine", "SparkEngine", "make_local", "make_spark"]


def make_local() -> LocalEngine:
    return LocalEngine()


def make_spark(session: Any | None) -> SparkEngine:
    """Return the engine of a Spark session, by default the active one."""
    return SparkEngine(get_active_session() if session is None else session)
