"""A REST catalog of Iceberg tables that answers from memory, and the S3 store that it hands out keys for.

with RestServer() as server:
    server.add("ns.t", table.save())
    tamis.open("ns.t", catalog={"type": "rest", "uri": server.uri})
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_TABLE = re.compile(r"/v1/(?:[^/]+/)?namespaces/([^/]+)/tables/([^/]+)")
_TABLES = re.compile(r"/v1/(?:[^/]+/)?namespaces/([^/]+)/tables")


@dataclass
class SeenRequest:
    """A request that the server received."""

    method: str
    path: str
    headers: dict[str, str]
    """The headers, by name in lower case."""


@dataclass
class RestServer:
    """The catalog is at `/v1/…`, and every other path is an object of the store."""

    token: str | None = None
    """The token that requests must have, if any."""
    config: dict[str, Any] = field(default_factory=lambda: {"defaults": {}, "overrides": {}})
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Responses by table name."""
    buckets: dict[str, Path] = field(default_factory=dict)
    """The folders of the buckets of the store."""
    warehouse: Path | None = None
    """A folder whose tables `namespace/table` belong to the catalog too."""
    failing: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Status and text of failing responses, by the end of the path."""
    seen: list[SeenRequest] = field(default_factory=list)

    def __enter__(self) -> RestServer:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server._answer(self)

            def do_HEAD(self) -> None:
                server._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing: tests read `seen`."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def add(self, name: str, metadata: Path, location: str | None = None, **answer: Any) -> None:
        """Add a table by its metadata file. The catalog reports `location` if it is given."""
        content = metadata.read_bytes()
        table_metadata = json.loads(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)
        self.tables[name] = {
            "metadata-location": location or str(metadata),
            "metadata": table_metadata,
            "config": {},
        } | answer

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(request.path).path)
        self.seen.append(
            SeenRequest(request.command, path, {name.lower(): value for name, value in request.headers.items()})
        )
        failing = next((answer for end, answer in self.failing.items() if path.endswith(end)), None)
        if failing is not None:
            _send(request, failing[0], failing[1].encode())
        elif not path.startswith("/v1/"):
            self._send_object(request, path)
        elif self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            _send_error(request, 401, "NotAuthorizedException", "the token is not known")
        elif path == "/v1/config":
            _send(request, 200, json.dumps(self.config).encode())
        elif (match := _TABLE.fullmatch(path)) is not None:
            name = ".".join((*match[1].split("\x1f"), match[2]))
            self._add_written(name)
            if name in self.tables:
                _send(request, 200, json.dumps(self.tables[name]).encode())
            else:
                _send_error(request, 404, "NoSuchTableException", f"Table does not exist: {name}")
        elif (match := _TABLES.fullmatch(path)) is not None:
            namespace = match[1].split("\x1f")
            some = [name.split(".") for name in self.tables]
            own = [{"namespace": each[:-1], "name": each[-1]} for each in some if each[:-1] == namespace]
            _send(request, 200, json.dumps({"identifiers": own}).encode())
        else:
            _send_error(request, 404, "NotFoundException", f"nothing at {path}")

    def _add_written(self, name: str) -> None:
        """Add the newest state of a table of the warehouse."""
        if self.warehouse is not None:
            written = sorted(self.warehouse.joinpath(*name.split("."), "metadata").glob("*.metadata.json"))
            if written:
                self.add(name, written[-1])

    def _list_objects(self, request: BaseHTTPRequestHandler, bucket: str, asked: dict[str, list[str]]) -> None:
        """Answer ListObjectsV2: the keys below a prefix, or the first part of them up to a delimiter."""
        prefix, delimiter, after = (asked.get(name, [""])[0] for name in ("prefix", "delimiter", "start-after"))
        folder = self.buckets.get(bucket, Path("/nowhere"))
        keys = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        found, groups = [], dict[str, None]()
        for key in keys:
            head, sign, _ = key[len(prefix) :].partition(delimiter or "/")
            if not key.startswith(prefix) or key <= after:
                continue
            if delimiter and sign:
                groups[f"{prefix}{head}{sign}"] = None
            else:
                found.append(key)
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2024-03-01T00:00:00.000Z</LastModified><ETag>1</ETag>"
            f"<Size>{(folder / key).stat().st_size}</Size></Contents>"
            for key in found
        )
        common = "".join(f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in groups)
        count = f"<KeyCount>{len(found) + len(groups)}</KeyCount><IsTruncated>false</IsTruncated>"
        shown = f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix>{count}{contents}{common}"
        content = f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>{shown}</ListBucketResult>'
        _send(request, 200, content.encode(), {"Content-Type": "application/xml"})

    def _send_object(self, request: BaseHTTPRequestHandler, path: str) -> None:
        asked = parse_qs(urlsplit(request.path).query)
        if "list-type" in asked:
            self._list_objects(request, path.strip("/"), asked)
            return
        _, bucket, key = path.split("/", 2)
        file = self.buckets.get(bucket, Path("/nowhere")) / key
        if not file.is_file():
            _send(request, 404, b"")
            return
        content = file.read_bytes()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range") or "")
        if wanted is None:
            _send(request, 200, content, {"ETag": '"1"', "Last-Modified": "Fri, 01 Mar 2024 00:00:00 GMT"})
            return
        start, end = int(wanted[1]), min(int(wanted[2] or len(content)), len(content) - 1)
        headers = {
            "ETag": '"1"',
            "Last-Modified": "Fri, 01 Mar 2024 00:00:00 GMT",
            "Content-Range": f"bytes {start}-{end}/{len(content)}",
        }
        _send(request, 206, content[start : end + 1], headers)


def _send_error(request: BaseHTTPRequestHandler, status: int, kind: str, message: str) -> None:
    _send(request, status, json.dumps({"error": {"message": message, "type": kind, "code": status}}).encode())


def _send(request: BaseHTTPRequestHandler, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
    request.send_response(status, HTTPStatus(status).phrase)
    for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
        request.send_header(name, value)
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(content)
