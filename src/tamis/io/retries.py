"""Retries of transient errors, and errors that name the location.

An object store answers 429 and 503 under load, connections break, reads come back short: such an error is
*transient*, and the call is retried after a growing pause, a bounded number of times. Permanent errors (missing file,
no permission, wrong credentials) are raised immediately.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from tamis.errors import StorageError, to_one_line

Result = TypeVar("Result")

logger = logging.getLogger("tamis")

_PERMANENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)

# Arrow raises these as a plain OSError with the error code of S3 in the text.
_PERMANENT_TEXTS = (
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "UNRECOGNIZED_CLIENT",
    "EXPIRED_TOKEN",
    "ExpiredToken",
    "NO_SUCH_BUCKET",
    "NoSuchBucket",
    "HTTP status 401",
    "HTTP status 403",
    "is a directory",
)

_MISSING_TEXT = "NO_SUCH_KEY"
"""What Arrow says of an object that vanished while its file was open. If it never existed, opening says so."""


class ShortRead(OSError):
    """A read returned fewer bytes than requested: the connection broke, or the store misbehaved."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """At most `tries` attempts, with a pause of `first_pause` seconds before the second that grows by `growth`."""

    tries: int = 3
    first_pause: float = 0.1
    growth: float = 4.0

    def compute_pause(self, failures: int) -> float:
        # Jitter: threads that fail together should not retry together.
        return self.first_pause * self.growth ** (failures - 1) * random.uniform(0.5, 1.0)


def is_transient(error: OSError) -> bool:
    if isinstance(error, _PERMANENT):
        return False
    text = str(error)
    return not any(permanent in text for permanent in _PERMANENT_TEXTS)


def _format_reason(error: OSError) -> str:
    """Return the reason without the location, which the message already names, and without the error number."""
    return os.strerror(error.errno) if error.errno else to_one_line(error)


def run_with_retries(action: Callable[[], Result], policy: RetryPolicy, task: str, location: str) -> Result:
    """Return the result of `action`, with retries; if it keeps failing raise `cannot <task> '<location>'`.

    FileNotFoundError, NotADirectoryError and IsADirectoryError are not handled: only the caller knows what was expected
    at that location.
    """
    failures = 0
    while True:
        try:
            return action()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise
        except PermissionError as error:
            reason = "" if error.errno else f": {to_one_line(error)}"
            right = task if task in ("write", "remove") else "read"
            raise StorageError(
                f"no permission to {task} '{location}'{reason}. Ask its owner for the right to {right} it"
            ) from error
        except OSError as error:
            failures += 1
            if _MISSING_TEXT in str(error):
                raise FileNotFoundError(location) from error
            if not is_transient(error):
                raise StorageError(f"cannot {task} '{location}': {_format_reason(error)}") from error
            if failures >= policy.tries:
                tries = "1 try" if failures == 1 else f"{failures} tries"
                raise StorageError(f"cannot {task} '{location}' after {tries}: {_format_reason(error)}") from error
            logger.info("cannot %s '%s' (try %d of %d): %s", task, location, failures, policy.tries, error)
            time.sleep(policy.compute_pause(failures))
        except UnicodeEncodeError as error:
            raise StorageError(
                f"cannot {task} {location!r}: it has half of a surrogate pair, which is not valid Unicode"
            ) from error
        except UnicodeDecodeError as error:
            raise StorageError(
                f"cannot {task} '{location}': a name there is not UTF-8 ({to_one_line(error)})"
            ) from error
        except (pa.ArrowException, ValueError) as error:
            raise StorageError(f"cannot {task} '{location}': {to_one_line(error)}") from error
