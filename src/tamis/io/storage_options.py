"""`storage_options`: one table of option names, in the spellings of deltalake, polars and pyiceberg.

Names are case-insensitive. `AWS_REGION` and `region` (deltalake), `aws_region` (polars) and `s3.region` (pyiceberg) are
the same option; different values for one option are an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

import pyarrow.fs as pafs

from tamis.errors import InvalidArgument, make_argument_error

_SPELLINGS: dict[str, tuple[str, ...]] = {
    "access_key": ("aws_access_key_id", "access_key_id", "s3.access-key-id", "client.access-key-id"),
    "secret_key": ("aws_secret_access_key", "secret_access_key", "s3.secret-access-key", "client.secret-access-key"),
    "session_token": (
        "aws_session_token", "aws_token", "session_token", "token", "s3.session-token", "client.session-token",
    ),
    "region": ("aws_region", "region", "aws_default_region", "default_region", "s3.region", "client.region"),
    "endpoint": ("aws_endpoint_url", "aws_endpoint_url_s3", "aws_endpoint", "endpoint_url", "endpoint", "s3.endpoint"),
    "allow_http": ("aws_allow_http", "allow_http"),
    "anonymous": ("aws_skip_signature", "skip_signature", "anon", "anonymous", "s3.anonymous"),
    "virtual_addressing": (
        "aws_virtual_hosted_style_request", "virtual_hosted_style_request", "s3.force-virtual-addressing",
    ),
    "role_arn": ("aws_iam_role_arn", "aws_role_arn", "role_arn", "s3.role-arn", "client.role-arn"),
    "session_name": (
        "aws_iam_role_session_name", "aws_role_session_name", "role_session_name",
        "s3.role-session-name", "client.role-session-name",
    ),
    "connect_timeout": ("aws_connect_timeout", "connect_timeout", "s3.connect-timeout"),
    "request_timeout": ("aws_timeout", "timeout", "s3.request-timeout"),
    "proxy": ("aws_proxy_url", "proxy_url", "s3.proxy-uri"),
}  # fmt: skip

# Options of writers, accepted because users pass the same dictionary to readers.
_FOR_WRITERS = frozenset(
    {
        "aws_s3_allow_unsafe_rename", "allow_unsafe_rename", "aws_s3_locking_provider", "aws_conditional_put",
        "conditional_put", "aws_copy_if_not_exists", "copy_if_not_exists", "aws_server_side_encryption",
    }
)  # fmt: skip

_CANONICAL = {spelling: name for name, spellings in _SPELLINGS.items() for spelling in spellings}

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off", ""})
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 1.0}


def is_storage_option(name: str) -> bool:
    """Return whether a property of a catalog is a storage option of its tables."""
    return name.lower().startswith(("s3.", "client.")) and name.lower() in _CANONICAL


def check_storage_options(options: object) -> Mapping[str, Any]:
    """Return the options, `{}` for None; raise an error if they are not a mapping of known names."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise make_argument_error("storage_options", "a mapping of options, as in {'AWS_REGION': 'eu-west-1'}", options)
    if "filesystem" not in options:
        check_option_names(options)
    return options


def check_option_names(options: Iterable[str]) -> None:
    """Raise an error for an unknown option name, with similar names."""
    for option in options:
        if not isinstance(option, str):
            raise make_argument_error("the name of a storage option", "a string, as in {'AWS_REGION': …}", option)
        lowered = option.lower()
        if lowered not in _CANONICAL and lowered not in _FOR_WRITERS:
            known = [*_CANONICAL, "filesystem"]
            near = get_close_matches(lowered, known, n=3)
            hint = "Options are those of S3, spelled as deltalake, polars or pyiceberg do: AWS_REGION, s3.region, …"
            if near:
                hint = f"Did you mean {' or '.join(map(repr, near))}?"
            raise InvalidArgument(f"no storage option {option!r}. {hint}")


@dataclass(frozen=True, slots=True)
class S3Options:
    """The options of an S3 store; None means the environment decides, as pyarrow's S3FileSystem documents."""

    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None
    region: str | None = None
    endpoint: str | None = None
    allow_http: bool = False
    anonymous: bool = False
    virtual_addressing: bool = False
    role_arn: str | None = None
    session_name: str | None = None
    connect_timeout: float | None = None
    request_timeout: float | None = None
    proxy: str | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> S3Options:
        check_option_names(options)
        found: dict[str, tuple[str, Any]] = {}
        for option, value in options.items():
            name = _CANONICAL.get(option.lower())
            if name is None or value is None:
                continue
            parsed = _parse_value(name, option, value)
            if name in found and found[name][1] != parsed:
                raise InvalidArgument(f"storage options {found[name][0]!r} and {option!r} contradict each other")
            found[name] = (option, parsed)
        return cls(**{name: value for name, (_, value) in found.items()})

    def with_credentials(self, access_key: str, secret_key: str) -> S3Options:
        return replace(self, access_key=access_key, secret_key=secret_key)

    def to_arguments(self, bucket: str) -> dict[str, Any]:
        """Return the arguments of pyarrow's S3FileSystem."""
        arguments: dict[str, Any] = {
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            "session_token": self.session_token,
            "region": self.region or self._find_region(bucket),
            "role_arn": self.role_arn,
            "session_name": self.session_name,
            "connect_timeout": self.connect_timeout,
            "request_timeout": self.request_timeout,
            "proxy_options": self.proxy,
        }
        arguments = {name: value for name, value in arguments.items() if value is not None}
        # pyarrow takes the endpoint of the environment only where it parses a URI itself.
        endpoint = self.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        if endpoint:
            has_scheme = "://" in endpoint
            parts = urlsplit(endpoint if has_scheme else f"//{endpoint}")
            arguments["endpoint_override"] = parts.netloc
            arguments["scheme"] = parts.scheme if has_scheme else ("http" if self.allow_http else "https")
        if self.anonymous:
            arguments["anonymous"] = True
        if self.virtual_addressing:
            arguments["force_virtual_addressing"] = True
        return arguments

    def _find_region(self, bucket: str) -> str | None:
        named = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
        if self.endpoint is not None or any(os.environ.get(name) for name in named):
            return None
        try:
            return str(pafs.resolve_s3_region(bucket))
        except OSError:
            # A private or unknown bucket: the first request raises a better error.
            return None


def _parse_value(name: str, option: str, value: Any) -> str | bool | float:
    text = str(value).strip()
    if name in ("allow_http", "anonymous", "virtual_addressing"):
        if text.lower() in _TRUE:
            return True
        if text.lower() in _FALSE:
            return False
        raise InvalidArgument(f"storage option {option!r} is {value!r}: give true or false")
    if name in ("connect_timeout", "request_timeout"):
        match = _DURATION.fullmatch(text.lower())
        if match is None:
            raise InvalidArgument(f"storage option {option!r} is {value!r}: give seconds, as 30, '30s' or '500ms'")
        return float(match[1]) * _SECONDS[match[2]]
    return text
