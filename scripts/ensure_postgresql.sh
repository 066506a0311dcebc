#!/usr/bin/env bash
# The tests of databases start their own PostgreSQL server. Check for its programs; if they are missing, install them
# (Debian, as root) or say how to. This script starts no server, and does not touch a running one.
set -euo pipefail

has_server() {
    command -v initdb >/dev/null && command -v pg_ctl >/dev/null && return
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

has_server && exit 0

if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "postgresql: no server: installing one" >&2
    export DEBIAN_FRONTEND=noninteractive
    # Keep the package from creating a cluster, which the tests do not use.
    mkdir -p /etc/postgresql-common
    [[ -e /etc/postgresql-common/createcluster.conf ]] ||
        echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
    apt-get update -qq || true
    apt-get install -y -qq postgresql >/dev/null || true
    hash -r
    has_server && exit 0
fi
echo "postgresql: no server was found, so its tests are skipped." \
    "On Debian and Ubuntu: sudo apt-get install postgresql; elsewhere put initdb and pg_ctl on the PATH." >&2
exit 1
