#!/usr/bin/env bash
# Puts the Python fixtures' packages, pinned, into .venv of the project. Does nothing the second time.
set -euo pipefail
cd "$(dirname "$0")/.."

lock=tests/fixtures/requirements.txt
stamp=.venv/.installed
digest=$(sha256sum "$lock" | cut -d' ' -f1)
if [ "$(cat "$stamp" 2>/dev/null)" = "$digest" ] && .venv/bin/python -c '' 2>/dev/null; then
    exit 0
fi

echo "setup: installing the pinned Python packages of $lock into .venv"
rm -rf .venv
python3 -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement "$lock"
echo "$digest" >"$stamp"
