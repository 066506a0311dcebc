#!/usr/bin/env bash
# setup_iceberg_spark.sh: create .venv-iceberg with the Spark that Iceberg's jars need.
#
# Iceberg 1.12 has jars for Spark 4.1. They do not load in Spark 4.2, which the other tests run with: there
# org.apache.spark.sql.connector.catalog.View became a class and CatalogManager an interface. This
# environment has Spark only; the interpreter of .venv compares the results.
set -euo pipefail
cd "$(dirname "$0")/.."

spark=4.1.4
home=.venv-iceberg

say() { printf 'setup: %s\n' "$*" >&2; }

[[ -f $home/.installed && $(<"$home/.installed") == "$PWD $spark" ]] && exit 0
say "installing pyspark $spark into $home"
.venv/bin/python -m venv --clear "$home"
"$home/bin/python" -m pip install --quiet --disable-pip-version-check "pyspark==$spark" || {
    say "pip could not install pyspark $spark (see above): the tests with Iceberg on Spark will be skipped"
    exit 1
}
printf '%s %s\n' "$PWD" "$spark" >"$home/.installed"
