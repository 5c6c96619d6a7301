"""Hosts that are network namespaces of this machine, each with a link of its own to one switch, for tests and benches.

The links have a rate (tc's tbf, both ways) or none, as "100mbit", "1gbit" or "-". The switch is in a namespace of its
own, so that nothing of this machine's network is touched. A script named ssh, which stands first in PATH, runs commands
there: `motley launch --hosts h0:2,h1:2` works as on real hosts. MOTLEY_HOST_ID tells the hosts apart, because they have
one kernel. It needs root, iproute2 and a kernel with veth, bridge and tbf; why_not() says what is missing.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

SSH = """#!/bin/sh
while [ "$1" = -T ] || [ "$1" = -o ]; do [ "$1" = -o ] && shift; shift; done
host=$1
shift
exec ip netns exec "{prefix}-$host" env -i PATH="$PATH" MOTLEY_HOST_ID="$host" sh -c "$*"
"""


def call(*words):
    subprocess.run([*map(str, words)], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def why_not():
    """What keeps this machine from having such hosts; empty: nothing."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    missing = [each for each in ("ip", "tc") if shutil.which(each) is None]
    if missing:
        return f"{', '.join(missing)} is not here; the package iproute2 has it"
    try:
        with NetworkHosts(2, "1gbit"):
            return ""
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd)}: {error.stderr.strip()}"


class NetworkHosts:
    def __init__(self, count, rate):
        self.count, self.rate = count, rate
        self.prefix = f"motley-{os.getpid()}"
        self.switch = f"{self.prefix}-switch"
        self.names = [f"h{number}" for number in range(count)]

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        try:
            self.make()
        except subprocess.CalledProcessError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for namespace in [self.switch, *map(self.namespace, self.names)]:
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)
        self.folder.cleanup()

    def namespace(self, name):
        return f"{self.prefix}-{name}"

    def address(self, number):
        return f"10.78.0.{number + 1}"

    def make(self):
        call("ip", "netns", "add", self.switch)
        call("ip", "-n", self.switch, "link", "add", "name", "bridge", "type", "bridge")
        call("ip", "-n", self.switch, "link", "set", "bridge", "up")
        for number, name in enumerate(self.names):
            host, port = self.namespace(name), f"port{number}"
            call("ip", "netns", "add", host)
            call("ip", "-n", host, "link", "set", "lo", "up")
            call("ip", "-n", self.switch, "link", "add", "name", port, "type", "veth", "peer", "name", "eth0", "netns",
                 host)
            call("ip", "-n", self.switch, "link", "set", port, "master", "bridge", "up")
            call("ip", "-n", host, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            call("ip", "-n", host, "link", "set", "eth0", "up")
            if self.rate != "-":
                self.shape(host, "eth0")
                self.shape(self.switch, port)
        ssh = pathlib.Path(self.folder.name) / "ssh"
        ssh.write_text(SSH.format(prefix=self.prefix))
        ssh.chmod(0o755)

    def shape(self, namespace, device):
        """The burst is 2 ms of the rate and 16 KiB at least; the queue holds 20 ms."""
        number, unit = re.fullmatch(r"(\d+)([kmg])bit", self.rate).groups()
        rate = int(number) * {"k": 10**3, "m": 10**6, "g": 10**9}[unit] // 8
        call("ip", "netns", "exec", namespace, "tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate",
             self.rate, "burst", max(16384, rate // 500), "latency", "20ms")

    def sent_bytes(self, number):
        """What a host has sent into its link, with all headers."""
        counter = ["ip", "netns", "exec", self.namespace(self.names[number]), "cat",
                   "/sys/class/net/eth0/statistics/tx_bytes"]
        return int(subprocess.run(counter, check=True, capture_output=True, text=True).stdout)

    def launch(self, program, ranks_per_host, *command, timeout=600):
        """Runs a command as ranks of all hosts, by `motley launch`."""
        hosts = ",".join(f"{name}:{ranks_per_host}" for name in self.names)
        words = [program, "launch", "--hosts", hosts, "--rendezvous-host", self.address(0), "--", *command]
        return subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, timeout=timeout,
                              stdin=subprocess.DEVNULL,
                              env=os.environ | {"PATH": f"{self.folder.name}:{os.environ['PATH']}"})
