#!/usr/bin/env bash
# setup.sh EXTRA: create .venv and install tamis[EXTRA] into it, if that is not done yet.
#
# A stamp in .venv, one for each extra, holds a digest of everything that the installation depends on. So a second run
# costs nothing and needs no network, while changed versions or a moved folder lead to a new installation.
set -euo pipefail
cd "$(dirname "$0")/.."

extra=${1:?usage: scripts/setup.sh EXTRA}
python=.venv/bin/python

say() { printf 'setup: %s\n' "$*" >&2; }

fail() {
    say "$@"
    exit 1
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    if [[ -n ${PYTHON:-} ]]; then
        command -v "$PYTHON" >/dev/null || fail "PYTHON=$PYTHON is not a program. Give the path of a Python 3.11 or newer."
        is_new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not Python 3.11 or newer ($("$PYTHON" --version 2>&1))."
        printf '%s' "$PYTHON"
        return
    fi
    local candidate
    for candidate in python3 python3.13 python3.12 python3.11 python3.14 python; do
        if command -v "$candidate" >/dev/null && is_new_enough "$candidate"; then
            printf '%s' "$candidate"
            return
        fi
    done
    fail "no Python 3.11 or newer on the PATH (python3: $(python3 --version 2>/dev/null || echo none))." \
        "Install one, or name it: make PYTHON=/path/to/python3.12 …"
}

# Debian ships the venv module without ensurepip, in a package of its own.
ensure_venv_module() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null && return
    local package
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
        say "$1 has no venv module: installing $package"
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null ||
            fail "apt-get could not install $package (see above)."
    else
        fail "$1 has no venv module. On Debian and Ubuntu: sudo apt-get install $package" \
            "(elsewhere: the package of your Python that holds venv and ensurepip)."
    fi
}

digest() {
    { printf '%s\n' "$PWD" && "$python" --version && cat pyproject.toml constraints.txt; } |
        "$python" -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())'
}

if ! is_new_enough "$python" || ! "$python" -m pip --version >/dev/null 2>&1; then
    interpreter=$(find_python)
    ensure_venv_module "$interpreter"
    say "making .venv with $("$interpreter" --version)"
    "$interpreter" -m venv --clear .venv || fail "$interpreter could not make .venv (see above)."
fi

wanted=$(digest)
stamps=(".venv/.installed-$extra")
# The test and bench extras contain the demo's.
[[ $extra == demo ]] && stamps+=(.venv/.installed-test .venv/.installed-bench)
for stamp in "${stamps[@]}"; do
    [[ -f $stamp && $(<"$stamp") == "$wanted" ]] && exit 0
done

say "installing tamis[$extra] into .venv; the first time this takes a minute or two"
"$python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$extra]" ||
    fail "pip could not install tamis[$extra] (see above). It needs a package index: pip's own settings apply."
printf '%s\n' "$wanted" >".venv/.installed-$extra"
