#!/usr/bin/env bash
# Puts the conformance suite, the client SDKs and the Node release that they need into
# tests/node/node_modules, exactly as locked. Does nothing the second time.
set -euo pipefail
cd "$(dirname "$0")/../tests/node"

stamp=node_modules/.installed
digest=$(sha256sum package-lock.json | cut -d' ' -f1)
if [ "$(cat "$stamp" 2>/dev/null)" = "$digest" ] && node_modules/.bin/node -e '' 2>/dev/null; then
    exit 0
fi

echo "setup: installing the locked Node packages into tests/node/node_modules"
npm ci --no-audit --no-fund --loglevel=error
echo "$digest" >"$stamp"
