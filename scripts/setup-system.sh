#!/usr/bin/env bash
# Makes sure that the programs are there which the build and the tests call: a C compiler and cmake
# (cryptography underneath rustls and pingora), Python with venv, Node with npm (client SDKs), Redis
# (state that replicas share).
# Installs what is missing with apt-get, where there is one. Asks first when a terminal is attached.
set -euo pipefail

missing=()
want() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }

want cc gcc
want cmake cmake
want python3 python3
want node nodejs
want npm npm
want curl curl
want redis-server redis-server
if command -v python3 >/dev/null 2>&1 && ! python3 -c 'import ensurepip, venv' >/dev/null 2>&1; then
    missing+=(python3-venv)
fi

if ! command -v cargo >/dev/null 2>&1; then
    echo "setup: cargo is missing; install Rust from https://rustup.rs and come back" >&2
    exit 1
fi

if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi

if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: please install these with your package manager: ${missing[*]}" >&2
    exit 1
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo)
fi

echo "setup: missing on this machine: ${missing[*]}"
echo "setup: will run: ${as_root[*]} apt-get install --no-install-recommends ${missing[*]}"
if [ -t 0 ]; then
    read -r -p "setup: go ahead? [Y/n] " answer
    case "$answer" in
        "" | y | Y | yes) ;;
        *) echo "setup: left as it is" >&2 && exit 1 ;;
    esac
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}"
