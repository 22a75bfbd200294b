#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs nvcc and keeps what ptxas says of the kernels in FOLDER, a file an object, for list_kernels.py;
# all else that nvcc says is passed on. The build calls it (cmake/LockstepCuda.cmake).
#
#   scripts/keep_ptxas.sh FOLDER nvcc … -o OBJECT
set -euo pipefail
folder=$1 object='' previous='' status=0
shift
for argument in "$@"; do
  [ "$previous" != -o ] || object=$argument
  previous=$argument
done
report="$folder/${object//\//-}.txt"
mkdir -p "$folder"
rm -f "$report"
"$@" 2>"$report.new" || status=$?
grep -vE '^(ptxas info|    [0-9]+ bytes stack frame)' "$report.new" >&2 || true
if [ "$status" -eq 0 ]; then mv "$report.new" "$report"; else rm "$report.new"; fi
exit "$status"
