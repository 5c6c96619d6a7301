#!/bin/sh
# Runs in a guest of tools/rdma-vm, on the host's files: sets up its wires and RDMA devices, then runs the command.
# tools/rdma_vm/guests.py writes the files `environment` and `command`, and reads the two ports.
set -e
trap '[ $? = 0 ] || echo "rdma-vm: the guest could not be set up"' EXIT
. /run/rdma-vm/environment

ip link set lo up
echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6

rail=0
while [ "$rail" -lt "$RDMA_VM_RAILS" ]; do
  [ "$RDMA_VM_SIZE" -gt 1 ] || ip link add "eth$rail" type dummy
  ip link set "eth$rail" mtu "$rdma_vm_mtu" up
  ip address add "10.77.$rail.$((RDMA_VM_RANK + 1))/24" dev "eth$rail"
  parent=root
  # Burst and queue are large enough for any rate that this wire reaches.
  if [ -n "$rdma_vm_rate" ]; then
    tc qdisc add dev "eth$rail" root handle 1: tbf rate "$rdma_vm_rate" burst 64kb latency 200ms
    parent="parent 1:1"
  fi
  # shellcheck disable=SC2086  # both are lists of words
  [ -z "$rdma_vm_netem" ] || tc qdisc add dev "eth$rail" $parent netem $rdma_vm_netem
  if [ "$RDMA_VM_RDMA" = yes ]; then
    rdma link add "rxe$rail" type rxe netdev "eth$rail"
    tries=0
    until read -r state <"/sys/class/infiniband/rxe$rail/ports/1/state" && [ "$state" = "4: ACTIVE" ]; do
      tries=$((tries + 1))
      [ "$tries" -lt 200 ] || { echo "rxe$rail does not become active"; exit 1; }
      sleep 0.05
    done
  fi
  rail=$((rail + 1))
done

# The ports are devices that can be opened once, so the command writes into pipes, as it would under any script.
[ -c /dev/vport0p1 ] && [ -c /dev/vport0p2 ] && [ -c /dev/vport0p3 ] || { echo "the ports are not there"; exit 1; }
mkfifo /run/rdma-vm/stdout /run/rdma-vm/stderr
cat /run/rdma-vm/stdout >/dev/vport0p1 &
cat /run/rdma-vm/stderr >/dev/vport0p2 &
ulimit -l unlimited
cd "$rdma_vm_folder"
# What the command prints ends with a mark that carries its exit code: then the host has everything.
(
  exec >/run/rdma-vm/stdout 2>/run/rdma-vm/stderr
  code=0
  sh /run/rdma-vm/command || code=$?
  sync
  printf '\000%s %s\n' "$rdma_vm_mark" "$code"
  printf '\000%s %s\n' "$rdma_vm_mark" "$code" >&2
)
