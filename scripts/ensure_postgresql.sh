#!/usr/bin/env bash
# The tests of databases start a PostgreSQL server of their own. Check for its programs; where they are missing,
# install them (Debian, as root) or say how to. No server is started, and none that runs is touched.
set -euo pipefail

has_server() {
    command -v initdb >/dev/null && command -v pg_ctl >/dev/null && return
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

has_server && exit 0

if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "postgresql: no server: installing one" >&2
    export DEBIAN_FRONTEND=noninteractive
    # The package would start a cluster of its own, which nobody needs here.
    mkdir -p /etc/postgresql-common
    [[ -e /etc/postgresql-common/createcluster.conf ]] ||
        echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
    apt-get update -qq || true
    apt-get install -y -qq postgresql >/dev/null || true
    hash -r
    has_server && exit 0
fi
echo "postgresql: there is no server to test with, so those tests are skipped." \
    "On Debian and Ubuntu: sudo apt-get install postgresql; elsewhere put initdb and pg_ctl on the PATH." >&2
exit 1
