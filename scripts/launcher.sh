# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For scripts that start a launcher and must not wait for ever for one that hangs.

# has_living_children PID
has_living_children() {
  local path line fields
  for path in /proc/[0-9]*/stat; do
    { read -r line <"$path"; } 2>/dev/null || continue
    read -ra fields <<<"${line##*) }"  # state, parent, process group, session …
    if [ "${fields[1]}" = "$1" ] && [ "${fields[0]}" != Z ]; then return 0; fi
  done
  return 1
}

# processes_of_session ID: into the array `found`.
processes_of_session() {
  local path line fields
  found=()
  for path in /proc/[0-9]*/stat; do
    { read -r line <"$path"; } 2>/dev/null || continue
    read -ra fields <<<"${line##*) }"
    [ "${fields[3]}" != "$1" ] || found+=("${line%% *}")
  done
}
