#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a machine with one GPU shows in eight minutes from a clean clone: builds with CUDA, runs what the
# tests have for a device, compares with the CPU, and measures steps of GPT-2 124M beside PyTorch.
#
#   bench/gpu.sh [--build FOLDER] [--fake] [-- options of bench/gpu.py]
#     --build FOLDER   one that is built already, of the presets cuda or cuda-fake
#     --fake           over the fake libraries, on any machine: tries this script, measures nothing
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
cd "$ROOT" || exit
fake=false build=''
while [ $# -gt 0 ]; do
  case "$1" in
    --fake) fake=true ;;
    --build) build=$2; shift ;;
    --) shift; break ;;
    *) echo "usage: bench/gpu.sh [--build FOLDER] [--fake] [-- options of bench/gpu.py]" >&2; exit 78 ;;
  esac
  shift
done
began=$(date +%s)
preset=cuda words=()
if $fake; then
  preset=cuda-fake words=(--fake)
elif ! nvidia-smi -L 2>/dev/null | grep -q '^GPU 0'; then
  echo "bench/gpu.sh: no GPU: \`nvidia-smi -L\` names none. --fake tries the script without one." >&2
  exit 78
fi
if [ -z "$build" ]; then
  scripts/build "$preset" lockstep nccl_test cuda_kernels_test process_group_mpi_test gradients_probe
  build="$ROOT/build/$preset"
fi
exec python3 bench/gpu.py --build "$build" --began "$began" "${words[@]}" "$@"
