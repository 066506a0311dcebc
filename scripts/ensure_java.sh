#!/usr/bin/env bash
# Spark needs Java 17 or newer. Check for it; if it is missing, install it (Debian, as root) or say how to.
set -euo pipefail

readonly needed=17

# Prints 0 if there is no Java. Java 8 reports 1.8.
java_major() {
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java version
    version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9.]*\).*/\1/p' | head -n 1) || true
    version=${version#1.}
    printf '%s' "${version%%.*}" | grep -E '^[0-9]+$' || printf '0\n'
}

is_enough() { [[ $(java_major) -ge $needed ]]; }

is_enough && exit 0

if [[ -n ${JAVA_HOME:-} ]]; then
    echo "java: JAVA_HOME=$JAVA_HOME is not Java $needed or newer. Unset it, or set it to one that is." >&2
    exit 1
fi
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "java: no Java $needed or newer: installing one" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq || true
    apt-get install -y -qq "openjdk-$needed-jre-headless" >/dev/null 2>&1 ||
        apt-get install -y -qq default-jre-headless >/dev/null || true
    hash -r
    is_enough && exit 0
fi
echo "java: Spark needs Java $needed or newer, and none was found." \
    "On Debian and Ubuntu: sudo apt-get install default-jre-headless; elsewhere install any JDK and set JAVA_HOME." >&2
exit 1
