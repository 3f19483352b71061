#!/bin/bash
# Update a fleet of three vehicles from one checkout of fedwatt to another and roll it back: real
# processes, TLS, keys and masks, on this machine. It takes some minutes.
#
#     PYTHON=.venv/bin/python tools/try_update.sh OLD NEW [FOLDER]
OLD=$(realpath "$1") NEW=$(realpath "$2") WORK=${3:-$(mktemp -d)} PYTHON=$(which "${PYTHON:-python3}")
set -m # so that Ctrl-C reaches what runs behind a '&'
export OMP_NUM_THREADS=1 COLUMNS=160 PYTHONUNBUFFERED=1
at="--address 127.0.0.1:9192"
mkdir -p "$WORK" && cd "$WORK" || exit 1

old() { PYTHONPATH=$OLD exec "$PYTHON" -m fedwatt "$@"; }
new() { PYTHONPATH=$NEW exec "$PYTHON" -m fedwatt "$@"; }
say() { echo "$(date +%T) == $*"; }
rounds() { cat "runs/$1/progress.jsonl" 2> /dev/null | grep -c '"event": "round"'; }
stop() { kill -TERM "$1"; wait "$1" 2> /dev/null; }
server() { ("$1" deploy server $at >> server.log 2>&1) & server=$!; }
declare -A cars
vehicle() {
  ("$1" deploy vehicle "fleet/$2" --server 127.0.0.1:9192 --keys "keys/$2" --state "state/$2" >> "$2.log" 2>&1) &
  cars[$2]=$!
}
until_round() {
  for _ in $(seq 600); do [ "$(rounds "$1")" -ge "$2" ] && return; sleep 1; done
  say "round $2 of $1 did not come"; exit 1
}
interrupt() { kill -INT "$1"; wait "$1"; say "submit was stopped by Ctrl-C, status $?"; }
trap 'for p in $server ${cars[@]}; do kill -TERM $p 2> /dev/null; done' EXIT

cat > fleet.toml << T
seeds = [1]
[training]
rounds = 6
participation = 1.0
[deploy]
vehicles = 3
[secure]
enabled = true
[[method]]
name = "fo-ri-fedavg"
T
say "old is $(git -C "$OLD" rev-parse --short HEAD), new is $(git -C "$NEW" rev-parse --short HEAD)"
(old data synth --out fleet --vehicles 3) > /dev/null
(old deploy keys create --host 127.0.0.1) > /dev/null
for car in car-001 car-002 car-003; do (old deploy keys request $car --keys keys/$car) > /dev/null; done
(old deploy keys sign keys/car-001 keys/car-002 keys/car-003) > /dev/null

say "old server, old vehicles"
server old
for car in car-001 car-002 car-003; do vehicle old $car; done
(old deploy submit fleet.toml --out runs/fleet $at > submit1.log 2>&1) & run=$!
until_round fleet 2; interrupt $run
(new deploy backup before.tar --run runs/fleet --keys)

say "update the server after round $(rounds fleet)"
stop $server; server new
(new deploy submit --resume --out runs/fleet $at > submit2.log 2>&1) & run=$!
until_round fleet 4
say "new server, old vehicles: $(rounds fleet) rounds; update car-001 while the run goes on"
stop "${cars[car-001]}"; vehicle new car-001
wait $run; say "the run ended, status $?"
grep ": round" submit2.log
(new deploy status --out runs/fleet $at) | grep -A20 "rounds done"

say "a second run, and back to the old version after some rounds"
sed -i 's/seeds = \[1\]/seeds = [2]/' fleet.toml # vehicles answer about the models of a seed once
(new deploy submit fleet.toml --out runs/second $at > submit3.log 2>&1) & run=$!
until_round second 2; interrupt $run
stop $server; say "the new server was stopped, status $?"
stop "${cars[car-001]}"; server old; vehicle old car-001
(old deploy submit --resume --out runs/second $at > submit4.log 2>&1)
say "old server, old vehicles: the run ended, status $?"
grep ": round\|continuing" submit4.log

say "restore the backup"
(new deploy restore before.tar restored)
say "end"
