#!/usr/bin/env bash
# Makes sure that a cargo subcommand is there: setup-cargo-tool.sh NAME VERSION.
# One that is on the PATH is taken as it is; otherwise the version named is built into .tools of the
# project, which takes some minutes once.
set -euo pipefail
cd "$(dirname "$0")/.."

name=$1
version=$2
if command -v "$name" >/dev/null 2>&1 || [ -x ".tools/bin/$name" ]; then
    exit 0
fi

echo "setup: building $name $version into .tools"
cargo install --quiet --locked --root .tools --version "$version" "$name"
