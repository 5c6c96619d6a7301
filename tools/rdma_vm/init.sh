#!/bin/busybox sh
# The first process of a guest of tools/rdma-vm. It loads modules, mounts the host's files and lets run.sh do the rest.
# The kernel passes on what tools/rdma_vm/guests.py writes on its command line: RDMA_VM_RANK, RDMA_VM_RDMA (yes or no).
/bin/busybox --install -s /bin
export PATH=/bin
die() {
  echo "rdma-vm: $*" >/dev/console
  reboot -f
}
mount -t devtmpfs devices /dev
mount -t proc processes /proc
mount -t sysfs system /sys

while read -r module; do insmod "/modules/$module" || die "module $module cannot be loaded"; done </modules/list
if [ "$RDMA_VM_RDMA" = yes ]; then
  while read -r module; do insmod "/modules/$module" || die "module $module cannot be loaded"; done </modules/rdma-list
fi

shared=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o "ro,$shared,cache=loose" root /host || die "the host's files cannot be mounted"
mount -t proc processes /host/proc
mount -t sysfs system /host/sys
mount -t devtmpfs devices /host/dev
ln -s /proc/self/fd /host/dev/fd
ln -s /proc/self/fd/0 /host/dev/stdin
ln -s /proc/self/fd/1 /host/dev/stdout
ln -s /proc/self/fd/2 /host/dev/stderr
mkdir -p /host/dev/pts /host/dev/shm
mount -t devpts terminals /host/dev/pts
mount -t tmpfs -o mode=1777 shm /host/dev/shm
mount -t tmpfs -o mode=755 run /host/run
# /tmp shows what the host has there, and what the guest writes there stays in the guest.
mkdir -p /host/run/rdma-vm/bin /host/run/rdma-vm/tmp/upper /host/run/rdma-vm/tmp/work
chmod 1777 /host/run/rdma-vm/tmp/upper
mount -t overlay -o lowerdir=/host/tmp,upperdir=/host/run/rdma-vm/tmp/upper,workdir=/host/run/rdma-vm/tmp/work \
  tmp /host/tmp || die "/tmp cannot be mounted"
number=0
while IFS= read -r folder; do
  mkdir -p "/host$folder" 2>/dev/null
  mount -t 9p -o "$shared,cache=mmap" "rw$number" "/host$folder" || die "$folder cannot be mounted"
  number=$((number + 1))
done </writable

hostname "rdma$RDMA_VM_RANK"
cp /hosts /host/run/rdma-vm/
[ ! -f /host/etc/hosts ] || mount -o bind /host/run/rdma-vm/hosts /host/etc/hosts
cp /run.sh /environment /command /host/run/rdma-vm/
cp /rdma-vm-link /host/run/rdma-vm/bin/
chroot /host /bin/sh /run/rdma-vm/run.sh </dev/null >/dev/console 2>&1 || die "run.sh ended"
# The command has ended. The guest keeps its addresses until the host ends it together with the others.
while true; do sleep 3600; done
