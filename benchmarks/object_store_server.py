"""An S3 server with latency: moto, with a delay of 30 ms for each request. It records all requests.

`serve(folder)` starts it in a process of its own. Every file of the folder is an object of one bucket. Moto answers the
requests, with one exception: moto copies a whole object to return a range of it, so this server reads ranges from the
file itself.

A request *depends* on another one if it began after the other was answered. The client waited at least for the longest
chain of such requests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUCKET = "bench"
DELAY = 0.03
CONTROL = "/_requests"
"""GET returns the recorded requests, DELETE clears them. Requests to this path are not recorded."""

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1"}


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the server saw it. Times are in seconds of one clock."""

    method: str
    path: str
    range: str | None
    status: int
    bytes: int
    """The size of the response body."""
    began: float
    answered: float

    def __str__(self) -> str:
        return f"{self.method} {self.path}{f' {self.range}' if self.range else ''}"


def dependent_round_trips(requests: Sequence[Request]) -> int:
    """Return the length of the longest chain of requests in which each began after the one before was answered."""
    chain, free_at = 0, float("-inf")
    # Always taking the request that is answered first gives a longest chain.
    for request in sorted(requests, key=lambda request: request.answered):
        if request.began >= free_at:
            chain, free_at = chain + 1, request.answered
    return chain


@dataclass(frozen=True, slots=True)
class Server:
    """A running server, as its clients see it."""

    endpoint: str

    def make_storage_options(self) -> dict[str, str]:
        """Return the storage options, in the spelling that Tamis, Polars and deltalake share."""
        lowered = {name.lower(): value for name, value in CREDENTIALS.items()}
        return lowered | {"aws_endpoint_url": self.endpoint, "aws_allow_http": "true"}

    def clear_requests(self) -> None:
        urllib.request.urlopen(urllib.request.Request(self.endpoint + CONTROL, method="DELETE")).close()

    def get_requests(self) -> list[Request]:
        with urllib.request.urlopen(self.endpoint + CONTROL) as answer:
            return [Request(**each) for each in json.load(answer)]


@contextmanager
def serve(folder: Path) -> Iterator[Server]:
    """Start a server for the files of a folder, and stop it at the end."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(folder)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        endpoint = process.stdout.readline().strip()
        if not endpoint:
            raise SystemExit("the S3 server did not start: is moto[s3] with flask installed?")
        yield Server(endpoint)
    finally:
        process.terminate()
        process.communicate()


# --- The process of the server ----------------------------------------------------------------------------------------

StartResponse = Callable[..., Any]
Application = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


class DelayedServer:
    """A WSGI application that wraps another one: it delays answers, reads ranges and records requests."""

    def __init__(self, application: Application, folder: Path) -> None:
        self._application = application
        self._folder = folder
        self._lock = threading.Lock()
        self._requests: list[dict[str, Any]] = []

    def __call__(self, environment: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if environment["PATH_INFO"] == CONTROL:
            return self._control(environment["REQUEST_METHOD"], start_response)
        began = time.monotonic()
        status, headers, body = self._answer(environment)
        time.sleep(max(0.0, began + DELAY - time.monotonic()))
        query = environment.get("QUERY_STRING")
        record = {
            "method": environment["REQUEST_METHOD"],
            "path": environment["PATH_INFO"] + (f"?{query}" if query else ""),
            "range": environment.get("HTTP_RANGE"),
            "status": int(status.split()[0]),
            "bytes": 0 if environment["REQUEST_METHOD"] == "HEAD" else len(body),
            "began": began,
            # Before the answer is sent, so that no request that depends on it has begun.
            "answered": time.monotonic(),
        }
        with self._lock:
            self._requests.append(record)
        start_response(status, headers)
        return [body]

    def _answer(self, environment: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        wants_range = environment["REQUEST_METHOD"] == "GET" and "HTTP_RANGE" in environment
        forwarded = {**environment, "REQUEST_METHOD": "HEAD"} if wants_range else environment
        answer: list[Any] = []
        answered = self._application(forwarded, lambda status, headers, *_: answer.extend((status, headers)))
        body = b"".join(answered)
        if hasattr(answered, "close"):
            answered.close()
        status, headers = answer
        if wants_range and status.startswith("206"):
            content_range = {name.lower(): value for name, value in headers}["content-range"]
            first, last = map(int, content_range.removeprefix("bytes ").split("/")[0].split("-"))
            body = self._read(environment["PATH_INFO"], first, last + 1 - first)
        return status, headers, body

    def _read(self, path: str, start: int, length: int) -> bytes:
        with (self._folder / path.removeprefix(f"/{BUCKET}/")).open("rb") as file:
            return os.pread(file.fileno(), length, start)

    def _control(self, method: str, start_response: StartResponse) -> Iterable[bytes]:
        with self._lock:
            body = json.dumps(self._requests).encode()
            if method == "DELETE":
                self._requests.clear()
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]


def main() -> None:
    import logging

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from moto.s3.models import s3_backends
    from werkzeug.serving import WSGIRequestHandler, make_server

    folder = Path(sys.argv[1])
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    WSGIRequestHandler.protocol_version = "HTTP/1.1"  # connections are kept, as an object store keeps them
    backend = s3_backends["123456789012"]["aws"]
    backend.create_bucket(BUCKET, CREDENTIALS["AWS_REGION"])
    for path in sorted(folder.rglob("*.parquet")):
        backend.put_object(BUCKET, path.relative_to(folder).as_posix(), path.read_bytes())
    application = DelayedServer(DomainDispatcherApplication(create_backend_app), folder)
    server = make_server("127.0.0.1", 0, application, threaded=True)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
