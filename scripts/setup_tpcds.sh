#!/usr/bin/env bash
# setup_tpcds.sh: create .venv-tpcds with the DuckDB that the TPC-DS extension needs.
#
# The extension has the texts of the 99 queries and the generator of the data. It loads only in the DuckDB version
# that it was built for, which is older than that of the other tests. So it has its own environment.
set -euo pipefail
cd "$(dirname "$0")/.."

duckdb=1.5.5
home=.venv-tpcds

say() { printf 'setup: %s\n' "$*" >&2; }

[[ -f $home/.installed && $(<"$home/.installed") == "$PWD $duckdb" ]] && exit 0
say "installing duckdb $duckdb and its TPC-DS extension into $home"
.venv/bin/python -m venv --clear "$home"
"$home/bin/python" -m pip install --quiet --disable-pip-version-check \
    "duckdb==$duckdb" "duckdb-extension-tpcds==$duckdb" || {
    say "pip could not install the TPC-DS extension of duckdb $duckdb (see above): the TPC-DS queries will be skipped"
    exit 1
}
printf '%s %s\n' "$PWD" "$duckdb" >"$home/.installed"
