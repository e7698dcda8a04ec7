#!/bin/bash
# One-node Slurm for tests, all its files in one folder. Needs root and Debian's slurm-wlm, munge.
#   slurm_node.sh start FOLDER   then: export SLURM_CONF=FOLDER/slurm.conf
#   slurm_node.sh stop FOLDER
set -eu
folder=$2
export SLURM_CONF=$folder/slurm.conf PATH=$PATH:/usr/sbin

stop_one() { # by its pid file, only what was started here; wait until it is gone
  [ -s "$1" ] || return 0
  local pid
  pid=$(cat "$1")
  kill "$pid" 2>/dev/null || return 0
  for _ in $(seq 50); do
    kill -0 "$pid" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -9 "$pid" 2>/dev/null || true
}

if [ "$1" = stop ]; then
  for name in slurmd slurmctld munged; do stop_one "$folder/$name.pid"; done
  exit 0
fi

host=$(hostname -s)
port=${SLURM_TEST_PORT:-26817} # not Slurm's own: a real node may run here
mkdir -p "$folder"/{munge,state,spool}
chmod 755 "$folder" "$folder/munge"

# a munged of our own: own key, own socket
chown munge: "$folder/munge"
runuser -u munge -- /usr/sbin/mungekey --create --keyfile="$folder/munge/key"
runuser -u munge -- /usr/sbin/munged --force --num-threads=2 --key-file="$folder/munge/key" \
  --socket="$folder/munge/socket" --pid-file="$folder/munge/munged.pid" \
  --seed-file="$folder/munge/seed" --log-file="$folder/munge/log"
cp "$folder/munge/munged.pid" "$folder/munged.pid"
munge -S "$folder/munge/socket" -n | unmunge -S "$folder/munge/socket" >/dev/null

cat >"$SLURM_CONF" <<CONF
ClusterName=fcforge
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
ReturnToService=2
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=test Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF

slurmctld
slurmd
for _ in $(seq 30); do
  sinfo --noheader -o %t 2>/dev/null | grep -q idle && exit 0
  sleep 0.5
done
echo "the node did not become idle:" >&2
tail -n 5 "$folder"/*.log >&2
exit 1
