"""Runs a command in guests: starts an emulator for each, passes on what the command prints, and ends all of them.

Nothing is written to disk. What a guest needs beside the image is a part of its initial file system, in memory; wires
are pairs of sockets, and what it prints comes through pipes. The kernel ends the emulators if this process is killed.
"""

import ctypes
import json
import os
import pathlib
import re
import secrets
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import time

import image

HERE = pathlib.Path(__file__).resolve().parent
FAILED, TIMED_OUT = 125, 124
CONSOLE_LINES = 60
PORTS = ["stdout", "stderr", "links", "console"]  # the first are /dev/vport0p1 and so on, the last is a serial line
# The clock is the HPET: with the emulated TSC it ran 3 to 10 times too fast in two of five boots on a busy host.
KERNEL = ("clocksource=hpet tsc=unstable no_timer_check console=ttyS0 panic=-1 reboot=t mitigations=off "
          "random.trust_cpu=on net.ifnames=0")
NOT_PASSED_ON = {"PWD", "OLDPWD", "SHLVL", "TMPDIR", "_", "PATH"}
libc = ctypes.CDLL(None)


def say(message):
    print(f"rdma-vm: {message}", file=sys.stderr, flush=True)


def environment(options, mark):
    """What run.sh reads, as text of a shell: the caller's environment, and how this guest is wired."""
    addresses = lambda rail: " ".join(f"10.77.{rail}.{rank + 1}" for rank in range(options.guests))
    exported = {name: value for name, value in os.environ.items()
                if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name not in NOT_PASSED_ON}
    exported = {name: value for name, value in exported.items() if not name.startswith("RDMA_VM_")}
    path = os.environ.get("PATH", "/usr/bin:/bin")
    exported |= {"PATH": f"/run/rdma-vm/bin:{path}:/usr/sbin:/sbin", "RDMA_VM_SIZE": options.guests,
                 "RDMA_VM_PEERS": addresses(0), "RDMA_VM_RAILS": options.rails}
    if options.rails > 1:
        exported["RDMA_VM_PEERS_1"] = addresses(1)
    own = {"rdma_vm_mark": mark, "rdma_vm_mtu": options.mtu, "rdma_vm_rate": options.rate,
           "rdma_vm_netem": options.netem, "rdma_vm_folder": os.getcwd()}
    quoted = lambda values: [f"{name}={shlex.quote(str(value))}\n" for name, value in values.items()]
    return "".join(quoted(own) + ["export " + line for line in quoted(exported)]).encode(errors="surrogateescape")


def in_memory(name, content):
    """A file that has no name on any disk: its descriptor, which an emulator inherits."""
    file = os.memfd_create(name)
    with open(file, "wb", closefd=False) as writable:
        writable.write(content)
    return file


def initial_file_system(folder, options, command, mark):
    command = "exec " + " ".join(map(shlex.quote, command)) + "\n"
    writable = "".join(f"{each}\n" for each in options.rw)
    hosts = "127.0.0.1 localhost\n" + "".join(f"10.77.0.{rank + 1} rdma{rank}\n" for rank in range(options.guests))
    files = {"init": (HERE / "init.sh").read_bytes(), "run.sh": (HERE / "run.sh").read_bytes(),
             "rdma-vm-link": (HERE / "rdma-vm-link").read_bytes(), "environment": environment(options, mark),
             "command": command.encode(errors="surrogateescape"), "writable": writable.encode(),
             "hosts": hosts.encode()}
    return in_memory("initial-files", (folder / "modules.cpio").read_bytes() + image.archive(files))


class Wires:
    """Joins the guests, once for each rail: two guests by a pair of sockets, more by pairs with guest 0, which has the
    hub. Each guest gets the arguments of its emulator, and the descriptors that it inherits."""

    def __init__(self, guests, rails):
        self.arguments = [[] for _ in range(guests)]
        self.sockets = [[] for _ in range(guests)]
        for rail in range(rails if guests > 1 else 0):
            if guests == 2:
                for guest, end in enumerate(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)):
                    self.plug(guest, end, f"n{rail}")
            else:
                self.arguments[0] += ["-netdev", f"hubport,hubid={rail},id=n{rail}"]
                for guest in range(1, guests):
                    hub, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
                    self.plug(0, hub, f"w{rail}-{guest}")
                    self.arguments[0] += ["-netdev", f"hubport,hubid={rail},id=p{rail}-{guest},netdev=w{rail}-{guest}"]
                    self.plug(guest, end, f"n{rail}")

    def plug(self, guest, end, name):
        self.sockets[guest].append(end)
        self.arguments[guest] += ["-netdev", f"dgram,id={name},local.type=fd,local.str={end.fileno()}"]

    def close(self):
        for ends in self.sockets:
            for end in ends:
                end.close()


def in_qemu(path):
    return str(path).replace(",", ",,")  # a comma would begin the next option


class Stream:
    """What a guest prints on a port: passed on as it comes, until the mark that carries the exit code."""

    def __init__(self, sink, prefix, mark):
        self.sink, self.prefix = sink, prefix.encode()
        self.mark = b"\0" + mark.encode() + b" "
        self.pending, self.code = b"", None

    def feed(self, data):
        if self.code is not None:
            return  # what processes print that the command left behind
        self.pending += data
        begin = self.pending.find(self.mark)
        if begin >= 0:
            code, end, _ = self.pending[begin + len(self.mark):].partition(b"\n")
            if end:
                self.code = int(code)
                self.pass_on(self.pending[:begin], last=True)
            return
        held = self.pending.rfind(b"\0", -len(self.mark))  # perhaps the begin of the mark
        if held < 0 or not self.mark.startswith(self.pending[held:]):
            held = len(self.pending)
        if self.prefix:
            held = self.pending.rfind(b"\n", 0, held) + 1
        data, self.pending = self.pending[:held], self.pending[held:]
        self.pass_on(data)

    def finish(self):
        """Passes on what was held back, where no mark came."""
        if self.code is None:
            self.pass_on(self.pending, last=True)

    def pass_on(self, data, last=False):
        if self.prefix and data:
            data = b"".join(self.prefix + line + b"\n" for line in data.removesuffix(b"\n").split(b"\n"))
        if last:
            self.pending = b""
        self.sink.write(data)
        self.sink.flush()


class Console:
    """What a guest's kernel and its emulator print: its end is shown if the guest dies."""

    def __init__(self, prefix, verbose):
        self.prefix, self.verbose, self.lines, self.pending = prefix, verbose, [], ""

    def feed(self, data):
        *lines, self.pending = (self.pending + data.decode(errors="replace").replace("\r", "")).split("\n")
        self.lines = (self.lines + lines)[-CONSOLE_LINES:]
        if self.verbose:
            for line in lines:
                print(f"{self.prefix}console: {line}", file=sys.stderr)

    def show(self):
        for line in filter(None, self.lines + [self.pending]):
            print(f"  console: {line}", file=sys.stderr)
        print("  hint: --verbose shows the whole console; --mem MB gives a guest more memory", file=sys.stderr)


class Links:
    """What rdma-vm-link asks for, in lines as `0 down`: the emulator takes the wire away, or gives it back."""

    def __init__(self, monitor):
        self.monitor, self.pending = monitor, b""
        self.execute("qmp_capabilities")

    def execute(self, command, **arguments):
        self.monitor.send(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")

    def feed(self, data):
        *lines, self.pending = (self.pending + data).split(b"\n")
        for line in lines:
            if match := re.fullmatch(rb"(\d) (down|up)", line):
                self.execute("set_link", name=f"nic{int(match[1])}", up=match[2] == b"up")


class Guest:
    """A guest and its emulator."""

    def __init__(self, rank, options, image_files, wires, mark):
        self.rank, self.prefix = rank, f"[{rank}] " if options.guests > 1 else ""
        pipes = [os.pipe() for _ in PORTS]
        own, monitor = socket.socketpair()
        self.streams = [Stream(sink, self.prefix, mark) for sink in [sys.stdout.buffer, sys.stderr.buffer]]
        self.console = Console(self.prefix, options.verbose)
        self.readers = list(zip((read for read, _ in pipes), [*self.streams, Links(own), self.console]))
        written = [write for _, write in pipes]
        inherited = [*image_files, *written, monitor.fileno(), *(end.fileno() for end in wires.sockets[rank])]
        parent = os.getpid()

        def end_with_parent():
            libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)

        command = [image.program("qemu-system-x86_64", "qemu-system-x86"),
                   *self.arguments(options, image_files, written, monitor.fileno()), *wires.arguments[rank]]
        self.emulator = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=written[-1], stderr=written[-1],
                                         pass_fds=inherited, preexec_fn=end_with_parent)
        for write in written:
            os.close(write)
        monitor.close()

    def arguments(self, options, image_files, written, monitor):
        kernel, initial_files = image_files
        quiet = "loglevel=6" if options.verbose else "quiet"
        rdma = "no" if self.rank in options.no_rdma else "yes"
        arguments = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                     "-machine", "q35,usb=off,smbus=off,sata=off", "-accel", "tcg,thread=multi,tb-size=256",
                     "-cpu", options.cpu, "-smp", str(options.cpus), "-m", str(options.mem),
                     "-kernel", f"/proc/self/fd/{kernel}", "-initrd", f"/proc/self/fd/{initial_files}",
                     "-append", f"{KERNEL} {quiet} RDMA_VM_RANK={self.rank} RDMA_VM_RDMA={rdma}",
                     "-device", "virtio-serial-pci", "-device", "virtio-rng-pci"]  # the first is vport0
        for port, write in zip(PORTS, written):
            arguments += ["-chardev", f"file,id={port},path=/proc/self/fd/{write}"]
            arguments += ["-serial", f"chardev:{port}"] if port == "console" else ["-device",
                                                                                   f"virtserialport,chardev={port}"]
        arguments += ["-chardev", f"socket,id=monitor,fd={monitor}", "-mon", "chardev=monitor,mode=control"]
        arguments += ["-virtfs", "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap"]
        for number, folder in enumerate(options.rw):
            arguments += ["-virtfs", f"local,path={in_qemu(folder)},mount_tag=rw{number},security_model=none,"
                                     "multidevs=remap"]
        for rail in range(options.rails if options.guests > 1 else 0):
            mac = f"52:54:00:77:{rail:02x}:{self.rank + 1:02x}"
            arguments += ["-device", f"virtio-net-pci,id=nic{rail},netdev=n{rail},mac={mac},romfile=,mrg_rxbuf=on,"
                                     f"host_mtu={options.mtu}"]
        return arguments

    def code(self):
        """The exit code of the command. None: it runs, or the guest died."""
        codes = [stream.code for stream in self.streams]
        return None if None in codes else codes[0]


class Run:
    """The guests of one run, from their start until none is left."""

    def __init__(self, options, command, folder):
        self.options, self.guests, self.failed = options, [], None
        self.selector = selectors.DefaultSelector()
        self.deadline = time.monotonic() + options.timeout
        mark = secrets.token_hex(16)
        wires = Wires(options.guests, options.rails)
        with open(folder / "kernel", "rb") as kernel:
            files = kernel.fileno(), initial_file_system(folder, options, command, mark)
            try:
                for rank in range(options.guests):
                    self.guests.append(guest := Guest(rank, options, files, wires, mark))
                    for port, reader in guest.readers:
                        self.selector.register(port, selectors.EVENT_READ, (guest, reader))
            except BaseException:
                self.end()
                raise
            finally:
                os.close(files[1])
                wires.close()

    def end(self):
        for guest in self.guests:
            guest.emulator.kill()
        for guest in self.guests:
            guest.emulator.wait()

    def read(self, key):
        guest, reader = key.data
        data = os.read(key.fd, 1 << 16)
        if data:
            reader.feed(data)
        else:  # the emulator is gone
            self.selector.unregister(key.fd)
            os.close(key.fd)
        if reader is guest.console and not data and guest.code() is None:
            say(f"guest {guest.rank} died before its command had ended")
            if self.failed is None:
                guest.console.show()
            self.fails(guest, FAILED)
        elif guest.code() and self.failed is None:
            self.fails(guest, guest.code())

    def fails(self, guest, code):
        if self.failed is None:
            self.failed = guest.rank, code
            self.deadline = min(self.deadline, time.monotonic() + self.options.grace)

    def unfinished(self):
        return [guest for guest in self.guests if guest.code() is None and guest.emulator.poll() is None]

    def wait(self):
        """The exit code: that of the guest that failed first, or 0."""
        try:
            while self.unfinished() or (self.failed is None and any(guest.code() is None for guest in self.guests)):
                left = self.deadline - time.monotonic()
                if left <= 0:
                    return self.too_late()
                for key, _ in self.selector.select(min(left, 1)):
                    self.read(key)
            return self.failed[1] if self.failed else 0
        finally:
            self.end()
            self.read_the_rest()

    def read_the_rest(self):
        for key in list(self.selector.get_map().values()):
            while data := os.read(key.fd, 1 << 16):
                key.data[1].feed(data)
        for guest in self.guests:
            for stream in guest.streams:
                stream.finish()

    def too_late(self):
        ranks = ", ".join(str(guest.rank) for guest in self.unfinished())
        if self.failed:
            say(f"the command failed in guest {self.failed[0]}, and was ended "
                f"{self.options.grace:g} s later in guest {ranks}")
            return self.failed[1]
        say(f"the command had not ended after {self.options.timeout:g} s in guest {ranks}")
        print("  hint: --timeout S gives it more time, --verbose shows how far a guest came", file=sys.stderr)
        return TIMED_OUT


def run(options, command):
    for name, package in [("qemu-system-x86_64", "qemu-system-x86"), ("rdma", "iproute2"), ("tc", "iproute2")]:
        image.program(name, package)
    folder = image.prepare(renew=False, say=say)
    return Run(options, command, folder).wait()
