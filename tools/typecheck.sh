#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Usage: tools/typecheck.sh [MYPY ARGUMENT ...]      (default: all of assay)
#
# The rooms are imported as assay.oracles and so on, but no folder is called assay: an installed
# checkout maps the names by an import hook, which type checkers do not run. They would take every
# import between rooms for an unknown module, and find nothing. So the rooms are linked into a
# folder of that name and checked there. tests/test_types.py proves that errors are seen.

set -eu
cd "$(dirname "$0")/.."
: "${PYTHON:=$PWD/.venv/bin/python}"

rm -rf build/types
mkdir -p build/types/assay
for room in oracles kernels properties fuzz; do
    ln -s "../../../$room" "build/types/assay/$room"
done
cache=$PWD/.mypy_cache config=$PWD/pyproject.toml

cd build/types
[ $# -gt 0 ] || set -- --package assay
MYPYPATH=$PWD exec "$PYTHON" -m mypy --config-file "$config" --cache-dir "$cache" "$@"
