#!/usr/bin/env bash
# From a fresh Debian 12 machine to a running server: installs packages, builds, fetches SmolLM2
# and serves it, then prints requests to try. Ctrl-C stops the server.
#
# usage: quickstart.sh [--check] [--port PORT]
#   --check      send one request, print the answer, stop the server; exit 0 only if it is right
#   --port PORT  8000 by default; --check takes a free one
#
# The model lies in ~/.cache/headroom; HEADROOM_CACHE names another folder. Without network it
# serves builtin:needle-1hop, a tiny model that reads and writes token ids.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

check=false
port=""
while [ $# -gt 0 ]; do
  case "$1" in
    --check) check=true ;;
    --port)
      [ $# -ge 2 ] || die "--port needs a number"
      port="$2"
      shift
      ;;
    -h | --help)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) die "unknown argument '$1' (see --help)" ;;
  esac
  shift
done

"$REPO/scripts/install_packages.sh"
say "Building (the first time takes some minutes) ..."
# A build folder that is there keeps its own choice of tests.
if [ ! -f "$REPO/build/release/CMakeCache.txt" ]; then
  export CMAKE_ARGS="-DHEADROOM_TESTS=OFF"
fi
build_target release headroom >&2
binary="$REPO/build/release/server/headroom"

if fetch_smollm2; then
  model="$SMOLLM2_GGUF"
  kind=chat
else
  say "No SmolLM2 without network: serving the built-in needle-1hop, which speaks token ids only."
  model="builtin:needle-1hop"
  kind=needle
fi

ask() { python3 "$REPO/scripts/quickstart_request.py" "$@"; }
if [ -z "$port" ]; then
  port=8000
  if $check; then
    port="$(ask free-port)"
  fi
fi
url="http://127.0.0.1:$port"
ask port-is-free "$port" || die "port $port is in use; name another with --port"

server_pid=""
stop_server() {
  if [ -n "$server_pid" ] && kill -TERM "$server_pid" 2>/dev/null; then
    wait "$server_pid" 2>/dev/null || true
  fi
  server_pid=""
}
trap stop_server EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# In a session of its own: Ctrl-C then reaches it once, as the TERM that drains it.
setsid "$binary" serve "$model" --host 127.0.0.1 --port "$port" &
server_pid=$!
ready_deadline=$((SECONDS + 300))
until curl -fs -o /dev/null "$url/readyz"; do
  if ! kill -0 "$server_pid" 2>/dev/null; then
    server_pid=""
    die "the server stopped before it was ready; its own message is above"
  fi
  [ "$SECONDS" -lt "$ready_deadline" ] || die "the server was not ready within 300 seconds"
  sleep 0.2
done

if $check; then
  ask check "$kind" "$url"
  exit 0
fi
ask print "$kind" "$url"
wait "$server_pid"
