#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mpirun_local_test.sh MPIRUN_LOCAL: what tests and demonstrations expect of the launcher.
set -u
mpirun_local=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

expect() { # what, got, wanted
  if [[ $2 != "$3" ]]; then
    echo "FAILED: $1: got $2, wanted $3" >&2
    failures=$((failures + 1))
  fi
}

"$mpirun_local" -n 2 bash -c 'exit 75' 2>/dev/null
expect "the ranks' status comes back" $? 75

long="$scratch/a folder with spaces/$(printf 'x%.0s' {1..150})"
mkdir -p "$long"
lines=$(TMPDIR=$long "$mpirun_local" -n 3 bash -c 'echo rank' 2>/dev/null | grep -c rank)
expect "ranks started with a long TMPDIR" "$lines" 3

"$mpirun_local" 2>/dev/null
expect "no arguments" $? 78

# SIGTERM reaches the ranks as SIGUSR2, and their answer comes back.
cat >"$scratch/rank" <<'END'
trap 'exit 75' USR2
touch "$1/up.$OMPI_COMM_WORLD_RANK"
for _ in $(seq 200); do sleep 0.05; done
END
"$mpirun_local" -n 2 bash "$scratch/rank" "$scratch" >/dev/null 2>&1 &
launcher=$!
for _ in $(seq 200); do
  [[ -e $scratch/up.0 && -e $scratch/up.1 ]] && break
  sleep 0.05
done
kill -TERM "$launcher"
wait "$launcher"
expect "SIGTERM lets the ranks save" $? 75

# An mpirun that stays when its ranks are gone.
mkdir "$scratch/bin"
cat >"$scratch/bin/mpirun" <<'END'
#!/usr/bin/env bash
sleep 1.5
exec 3<> <(:)
read -r -t 60 <&3
END
chmod +x "$scratch/bin/mpirun"
PATH=$scratch/bin:$PATH "$mpirun_local" -n 2 true 2>"$scratch/said"
expect "a launcher that hangs is killed" $? 137
expect "and that is said" "$(grep -c 'does not end: it is killed' "$scratch/said")" 1

exit $((failures > 0))
