# SPDX-License-Identifier: Apache-2.0
# Sourced by the other scripts: the root of the tree, and stages with their seconds and logs.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
LOGS="$ROOT/build/logs"
export LC_ALL=C.UTF-8 OMP_NUM_THREADS=1
# A second checkout finds what the first has compiled.
export CCACHE_BASEDIR="$ROOT" CCACHE_NOHASHDIR=1
mkdir -p "$LOGS"

# Compilers here need about 1 GB each.
jobs_default() {
  local cores memory
  cores=$(env -u OMP_NUM_THREADS nproc)  # which else counts as a limit
  memory=$(awk '/^MemAvailable:/{print int($2 / 1048576)}' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  echo $((cores < memory ? cores : memory))
}
JOBS=${LOCKSTEP_JOBS:-$(jobs_default)}

# stage NAME COMMAND…: runs it with its output in a log; prints name, seconds and log. A failure shows
# the end of the log, then the command as the last line, and ends the script with its status.
stage() {
  local name=$1 log="$LOGS/$1.log" began=$SECONDS status=0
  shift
  printf '== %-14s … log: %s\n' "$name" "$log"
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [ "$status" -ne 0 ]; then
    tail -n 40 "$log"
    printf '== %-14s FAILED after %d s (status %d), log: %s\n' "$name" $((SECONDS - began)) "$status" "$log"
    printf 'failed:'
    printf ' %q' "$@"
    printf '\n'
    exit "$status"
  fi
  printf '== %-14s done in %d s\n' "$name" $((SECONDS - began))
}
