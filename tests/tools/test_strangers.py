#!/usr/bin/env python3
"""Strangers at the ports of a run: they change no loss, keep the ranks waiting for 5 s at most, and end nobody.

Arguments: the program, the source tree. A stranger does not have the token of the job. What those are told who have it
is tested in tests/hw.
"""

import hashlib
import hmac
import json
import os
import pathlib
import re
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
TRAIN = ["train", "scenarios/quickstart-train.yaml", "--steps", "3", "--json"]

DELAY_S = 5  # that strangers may cost in all
SLACK_S = 10  # for a machine that does other things
FORGED_HELLO = {"protocol": 3, "rank": 1, "rank_count": 2, "binary": "0123456789abcdef", "program": "0123456789abcdef",
                "alike": [], "port": 1, "memory": ""}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def call(port):
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def answer(purpose, origin, to):
    """What a rank answers a challenge, with a proof that nobody can know to be right."""
    return struct.pack("<BIIH", purpose, origin, to, 0) + os.urandom(16) + os.urandom(32)


def framed(text):
    return struct.pack("<I", len(text)) + text.encode()


def listeners(process):
    """The ports on which it listens."""
    inodes = set()
    for each in pathlib.Path(f"/proc/{process}/fd").glob("*"):
        try:
            inodes |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(each)))
        except OSError:
            pass
    rows = [row.split() for row in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[9] in inodes}


class Strangers:
    """Calls by strangers, which stay open until close()."""

    def __init__(self, recorded):
        self.recorded = recorded
        self.open = []
        self.ends = threading.Event()
        self.threads = []

    def close(self):
        self.ends.set()
        for thread in self.threads:
            thread.join()
        for each in self.open:
            each.close()

    def call(self, port):
        self.open.append(call(port))
        return self.open[-1]

    def connect_then_close(self, port):
        for _ in range(30):
            call(port).close()

    def silence(self, port):
        self.call(port)

    def thirty_at_once(self, port):
        for _ in range(30):
            self.call(port)

    def slow_bytes(self, port):
        def trickle(to):
            try:
                while not self.ends.wait(0.05):
                    to.send(b"m")
            except OSError:
                pass  # turned away
        self.threads.append(threading.Thread(target=trickle, args=(self.call(port),)))
        self.threads[-1].start()

    def replay(self, port):
        self.call(port).sendall(self.recorded)

    def forged_hello(self, port):
        """The right form, another hash, and another rank."""
        for purpose in (0, 1):
            for rank in (1, 7):
                hello = json.dumps(FORGED_HELLO | {"rank": rank})
                self.call(port).sendall(answer(purpose, rank, 0) + framed(hello))

    def forged_without_a_secret(self, port):
        """The same with the proof of one who knows that the job was given no token."""
        def forge(to, rank):
            try:  # a port for data says nothing before the ranks have met
                theirs, mine = to.recv(24, socket.MSG_WAITALL)[8:], os.urandom(16)
                introduction = struct.pack("<BIIH", 0, rank, 0, 0)
                key = hashlib.blake2b(b"", digest_size=32).digest()
                statement = struct.pack("<H", 6) + b"dialer" + theirs + mine + introduction
                to.sendall(introduction + mine + hmac.new(key, statement, hashlib.sha256).digest() +
                           framed(json.dumps(FORGED_HELLO | {"rank": rank})))
            except OSError:
                pass
        for rank in (1, 7):
            self.threads.append(threading.Thread(target=forge, args=(self.call(port), rank)))
            self.threads[-1].start()

    def another_protocol(self, port):
        self.call(port).sendall(b"GET / HTTP/1.1\r\nHost: motley\r\n\r\n")


KINDS = ["connect_then_close", "silence", "slow_bytes", "replay", "forged_hello", "thirty_at_once", "another_protocol"]


class Ports(unittest.TestCase):
    def rank(self, rank, port, token):
        variables = os.environ | {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                  "MASTER_PORT": str(port)} | ({"MOTLEY_JOB_TOKEN": token} if token else {})
        process = subprocess.Popen([PROGRAM, *TRAIN], cwd=ROOT, env=variables, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        return process

    def wait_for(self, condition):
        until = time.monotonic() + 60
        while not (value := condition()):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.005)
        return value

    def trained(self, attack=None, token="a secret", through=None):
        """The losses, and how long it took from the start of rank 1."""
        port = free_port()
        first = self.rank(0, port, token)
        self.wait_for(lambda: port in listeners(first.pid))
        if attack:
            for each in self.wait_for(lambda: len(found := listeners(first.pid)) >= 2 and found):
                attack(each)  # that of the rendezvous and that of its data
        begin = time.monotonic()
        second = self.rank(1, through(port) if through else port, token)
        if attack:
            for each in self.wait_for(lambda: listeners(second.pid) or (second.poll() is not None and {0})):
                if each != 0:
                    attack(each)
        output, errors = first.communicate(timeout=300)
        second.communicate(timeout=300)
        self.assertEqual((0, 0), (first.returncode, second.returncode), errors)
        self.assertNotIn("internal", errors)
        return json.loads(output)["loss"], time.monotonic() - begin

    def recorded(self):
        """What rank 1 says to rank 0 at the rendezvous, in another run with the same token."""
        sent = []

        def through(port):
            door = socket.create_server(("127.0.0.1", 0))
            port_of_door = door.getsockname()[1]

            def pass_on(source, to, keep):
                try:
                    while data := source.recv(65536):
                        if keep:
                            sent.append(data)
                        to.sendall(data)
                except OSError:
                    pass
                finally:
                    to.close()

            def serve():
                with door:
                    there, here = door.accept()[0], call(port)
                threading.Thread(target=pass_on, args=(here, there, False), daemon=True).start()
                pass_on(there, here, True)
            threading.Thread(target=serve, daemon=True).start()
            return port_of_door

        losses, took_s = self.trained(through=through)
        return b"".join(sent), losses, took_s

    def test_strangers_of_every_kind_change_no_loss_and_cost_little(self):
        recorded, losses, usual_s = self.recorded()
        self.assertGreater(len(recorded), 100)
        # Ranks that are given no token have one that all processes of this user know.
        for kind, token in [*((kind, "a secret") for kind in KINDS), ("forged_without_a_secret", None)]:
            with self.subTest(kind=kind):
                strangers = Strangers(recorded)
                try:
                    mine, took_s = self.trained(getattr(strangers, kind), token)
                finally:
                    strangers.close()
                self.assertEqual(losses, mine)
                self.assertLess(took_s, usual_s + DELAY_S + SLACK_S)

    def test_a_false_rank_0_is_found_out(self):
        for sent in [b"motley\0\4" + os.urandom(16) + os.urandom(32) + struct.pack("<BI", 0, 1 << 30),
                     b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(100)]:
            with socket.create_server(("127.0.0.1", 0)) as door:
                rank = self.rank(1, door.getsockname()[1], "a secret")
                caller, _ = door.accept()
                caller.sendall(sent)
                _, errors = rank.communicate(timeout=100)
                caller.close()
            self.assertEqual(1, rank.returncode)
            self.assertRegex(errors, "rank 1: rank 0 does not let it in at the rendezvous .*: it does not have the "
                                     "token of the job|it is no process of Motley")
            self.assertNotIn("internal", errors)
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, 500 * 1024)  # KiB


if __name__ == "__main__":
    unittest.main()
