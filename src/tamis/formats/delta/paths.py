"""Resolution of paths in a Delta log: relative to the table's directory, or absolute URIs.

Paths in a log are URIs, percent-encoded once: `a%2525b` is the file `a%25b`. They are decoded before every check, so
`%2e%2e` is `..`. No writer writes it, and it is rejected. A file outside the table's directory is read only where the
log gives its absolute path and the caller allows it: otherwise anyone who can write to the log could make a reader read
any file that the reader has access to.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import UnsupportedFeature
from tamis.formats.delta.log.replay import get_bytes, percent_decode
from tamis.formats.errors import make_corrupt_log_error
from tamis.io.storage import Storage

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?://([^/]*))?(/.*)", re.DOTALL)

_SAME_STORE = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs"}

_BUCKETS = frozenset({"s3", "gs"})
"""Stores whose paths start with the bucket, which is the host of the URI."""

_PARENT = frozenset({".."})


def resolve_path(storage: Storage, path: str, *, allow_outside: bool = False) -> str:
    """Return the path, in the table's file system, of a path in the log.

    >>> from tamis.io.storage import open_storage
    >>> resolve_path(open_storage("/data/table"), "day=1/a%20b.parquet")
    '/data/table/day=1/a b.parquet'
    """
    if (match := _URI.fullmatch(path)) is not None:
        return _check_inside(storage, _resolve_uri(storage, path, *match.groups()), path, allow_outside)
    decoded = _decode(storage, path)
    if decoded.startswith("/"):
        return _check_inside(storage, _resolve_absolute(storage, decoded), path, allow_outside)
    return join_below_root(storage, decoded)


_SUSPECT = b"%:\0"
_DOT = ord(".")
_BLOCK = 64 * 1024

_PLAIN = r"^[^/:][^:]*$"
"""A decoded relative path: without a scheme and not absolute."""


def resolve_paths(storage: Storage, paths: pa.StringArray, *, allow_outside: bool = False) -> pa.StringArray:
    """Return the paths, in the table's file system, of many paths in the log; relative ones are resolved together."""
    root = storage.root.rstrip("/")
    try:
        # Parquet allows any bytes in a string. Validating a million paths takes 20 ms.
        paths.validate(full=True)
    except pa.ArrowInvalid as error:
        location = storage.format_path(storage.root)
        raise make_corrupt_log_error(
            f"the log of '{location}' has a path that is not UTF-8: a checkpoint is damaged"
        ) from error
    if _are_plain(paths):
        return pc.binary_join_element_wise(root, paths, "/")
    try:
        decoded = percent_decode(paths).cast(pa.string())
    except pa.ArrowInvalid:
        # Some path is not UTF-8: resolved one by one, the error names it.
        return pa.array([resolve_path(storage, path, allow_outside=allow_outside) for path in paths.to_pylist()])
    is_plain = pc.and_(pc.match_substring_regex(decoded, _PLAIN), pc.match_substring_regex(paths, _PLAIN))
    is_plain = pc.and_not(is_plain, pc.or_(pc.match_substring(decoded, ".."), pc.match_substring(decoded, "\0")))
    joined = pc.binary_join_element_wise(root, decoded, "/")
    if pc.all(is_plain, min_count=0).as_py():
        return joined
    others = [
        resolve_path(storage, path, allow_outside=allow_outside)
        for path in paths.filter(pc.invert(is_plain)).to_pylist()
    ]
    return pc.replace_with_mask(joined, pc.invert(is_plain), pa.array(others, pa.string()))


def _are_plain(paths: pa.StringArray) -> bool:
    """Return whether all paths are relative and need neither decoding nor checks. Only their bytes are tested."""
    content = get_bytes(paths.cast(pa.binary()))
    blocks = (content[start : start + _BLOCK + 1] for start in range(0, len(content), _BLOCK))
    is_suspect = any(
        any((block == each).any() for each in _SUSPECT) or ((block[1:] == _DOT) & (block[:-1] == _DOT)).any()
        for block in blocks
    )
    starts_plain = pc.not_equal(pc.binary_slice(paths.cast(pa.binary()), 0, 1), b"/")
    has_name = pc.greater(pc.binary_length(paths), 0)
    return not is_suspect and bool(pc.all(pc.and_(starts_plain, has_name), min_count=0).as_py())


def join_below_root(storage: Storage, path: str) -> str:
    """Join a decoded relative path to the table's directory, which it must not leave."""
    if _PARENT & set(path.split("/")):
        raise make_corrupt_log_error(
            f"the log of '{storage.format_path(storage.root)}' has the path {path!r}: a path in a log must not "
            "contain '..'"
        )
    return f"{storage.root.rstrip('/')}/{path}"


def _resolve_uri(storage: Storage, path: str, scheme: str, host: str | None, rest: str) -> str:
    scheme = scheme.lower()
    if scheme == "file" and storage.is_local:
        return _decode(storage, rest)
    match = _URI.fullmatch(storage.uri)
    own_scheme, own_host = (match[1].lower(), match[2]) if match is not None else ("file", None)
    if _SAME_STORE.get(scheme, scheme) == _SAME_STORE.get(own_scheme, own_scheme):
        if _SAME_STORE.get(scheme, scheme) in _BUCKETS:
            return f"{host}{_decode(storage, rest)}"
        if host == own_host and match is not None:
            # The root ends with the path of the table's own URI; before it is the file system's own prefix.
            return storage.root.rstrip("/").removesuffix(unquote(match[3].rstrip("/"))) + _decode(storage, rest)
    raise UnsupportedFeature(
        f"the log of '{storage.format_path(storage.root)}' has the path {path!r}, which is in another file system: "
        "Tamis reads the files of a table from one file system; rewrite the table or clone it into its own directory"
    )


def _resolve_absolute(storage: Storage, decoded: str) -> str:
    match = _URI.fullmatch(storage.uri)
    if match is not None and _SAME_STORE.get(match[1].lower(), match[1].lower()) in _BUCKETS:
        return f"{match[2]}{decoded}"
    return decoded


def _check_inside(storage: Storage, path: str, given: str, allow_outside: bool) -> str:
    root = f"{storage.root.rstrip('/')}/"
    if path.startswith(root):
        return join_below_root(storage, path.removeprefix(root))
    if not allow_outside or _PARENT & set(path.split("/")):
        raise UnsupportedFeature(
            f"the log of '{storage.format_path(storage.root)}' has the path {given!r}, which is outside of the table's "
            "directory: pass allow_outside=True to read such files; a path with '..' is never read"
        )
    return path


def _decode(storage: Storage, text: str) -> str:
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise make_corrupt_log_error(
            f"the log of '{storage.format_path(storage.root)}' has the path {text!r}, which is not percent-encoded "
            "UTF-8"
        ) from error
    if not decoded or "\0" in decoded:
        raise make_corrupt_log_error(f"the log of '{storage.format_path(storage.root)}' has the invalid path {text!r}")
    return decoded
