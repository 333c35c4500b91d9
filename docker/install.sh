#!/bin/sh
# Installs syphon into a folder, at the versions of the lock files and with their hashes. The Dockerfile and the tests use it.
#   docker/install.sh SOURCE TARGET [LOCK]
# SOURCE is a checkout. TARGET becomes an environment without pip; its file sbom.json lists what is installed. LOCK is the lock
# file of its packages, by default the one of the worker.
set -eu
source=$1
target=$2
lock=${3:-$source/docker/requirements.lock}
python=${PYTHON:-python3}

# The tools of the build stay out of the target: pip, the build backend, and what writes the list of components.
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"$python" -m venv "$tools/venv"
pip="$tools/venv/bin/python -m pip --disable-pip-version-check --no-cache-dir -q"
$pip install --require-hashes -r "$source/docker/build.lock"

"$python" -m venv --without-pip "$target"
$pip --python "$target/bin/python" install --require-hashes -r "$lock"
$pip wheel --no-build-isolation --no-deps -w "$tools" "$source"
$pip --python "$target/bin/python" install --no-deps "$tools"/syphon_servicebus-*.whl
# The path of the wheel says nothing to anybody, and is another one in each build.
rm "$target"/lib/python3*/site-packages/syphon_servicebus-*.dist-info/direct_url.json

# SPARK_HOME, whatever the version of Python.
(cd "$target" && if [ -d lib/python3*/site-packages/pyspark ]; then ln -s lib/python3*/site-packages/pyspark spark; fi)

"$tools/venv/bin/cyclonedx-py" environment --output-reproducible --output-format JSON --output-file "$target/sbom.json" \
    "$target/bin/python"
