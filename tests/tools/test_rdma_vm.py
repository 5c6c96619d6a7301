#!/usr/bin/env python3
"""tools/rdma-vm: what a command in guests prints, how it ends, their clock, and what moves between them by verbs.

Arguments: the program, the source tree, the classes to run. CTest runs the quick ones each time, and the long ones
(label `long`) in tools/test --all. They are skipped where qemu is not installed, unless MOTLEY_TEST_ALL is set.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
SCRIPT = str(ROOT / "tools" / "rdma-vm")

FAILED, TIMED_OUT, SKIPPED = 125, 124, 77

# Sends messages back and forth and looks at every byte; guest 0 answers, and the other may try before it does.
# Arguments: the device, and more for ibv_rc_pingpong.
PING = r"""
ping() {
  device=$1; shift
  address=10.77.$((device)).1
  if [ "$RDMA_VM_RANK" = 0 ]; then timeout 60 ibv_rc_pingpong -e -c -g 1 -d "rxe$device" "$@"; return; fi
  until timeout 60 ibv_rc_pingpong -e -c -g 1 -d "rxe$device" "$@" "$address" 2>/tmp/error; do
    grep -q "connect to" /tmp/error || { cat /tmp/error >&2; return 1; }
    sleep 0.2
  done
}
"""


def rdma_vm(*arguments, **variables):
    return subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT,
                          stdin=subprocess.DEVNULL, timeout=500, env=os.environ | variables, check=False)


def children(process):
    return [int(child) for child in pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def is_alive(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Guests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def right(self, *arguments):
        answer = rdma_vm(*arguments)
        self.assertEqual((0, ""), (answer.returncode, answer.stderr), answer.stdout)
        return answer.stdout

    def assert_moved(self, output, times, prefix=""):
        """Each side of ibv_rc_pingpong says so once all messages came, with the right bytes."""
        self.assertEqual(times, len(re.findall(rf"^{prefix}\d+ bytes in [\d.]+ seconds", output, re.M)), output)


class Commands(Guests):
    def test_mistakes_are_named_with_what_helps(self):
        for mistake, message in [(("--guests", "9", "--", "true"), "9 is not from 1 to 8"),
                                 (("--no-rdma", "1", "--", "true"), "there are guests 0 to 0"),
                                 (("--netem", "loss 1%", "--", "true"), "one guest has no wire"),
                                 (("--rw", "nowhere", "--", "true"), "nowhere is no folder"),
                                 ((), "no command was named")]:
            answer = rdma_vm(*mistake)
            self.assertEqual((FAILED, ""), (answer.returncode, answer.stdout), mistake)
            self.assertIn(message, answer.stderr)
            self.assertIn("\n  hint: tools/rdma-vm --help", answer.stderr)

    def test_without_qemu_it_says_what_to_install(self):
        answer = rdma_vm("--", "true", PATH=str(self.folder))
        self.assertEqual((FAILED, "rdma-vm: qemu-system-x86_64 is not here\n  hint: apt-get install qemu-system-x86\n"),
                         (answer.returncode, answer.stderr))

    def other_apt(self, kernels):
        """The variables with which apt knows these kernels and reaches no mirror."""
        for name, script in [("apt-cache", f"printf '%s\\n' {' '.join(kernels)}"),
                             ("apt-get", "echo \"E: Failed to fetch $3\" >&2; exit 100")]:
            (self.folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (self.folder / name).chmod(0o755)
        return {"PATH": f"{self.folder}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(self.folder / "cache")}

    def test_without_a_network_for_the_kernel_it_says_so(self):
        names = [f"linux-image-6.1.0-{each}" for each in ["9-amd64", "56-amd64", "57-cloud-amd64", "7-amd64-dbg"]]
        answer = rdma_vm("--prepare", **self.other_apt(names))
        self.assertEqual(FAILED, answer.returncode)
        self.assertIn("the guests' kernel linux-image-6.1.0-56-amd64 could not be downloaded: E: Failed to fetch",
                      answer.stderr)
        self.assertIn("\n  hint: `apt-get update` as root, or see whether", answer.stderr)
        self.assertEqual(["lock"], os.listdir(self.folder / "cache" / "motley-rdma-vm"))
        answer = rdma_vm("--prepare", **self.other_apt([]))
        self.assertEqual(FAILED, answer.returncode)
        self.assertIn("apt knows no kernel linux-image-6.1.0-N-amd64\n  hint: `apt-get update` as root", answer.stderr)

    def test_what_a_command_prints_and_its_exit_code_come_back(self):
        (self.folder / "input").write_text("of the host\n")
        command = """
            echo "$GREETING" "$1"; echo to stderr >/dev/stderr; cat input
            echo "$RDMA_VM_RANK of $RDMA_VM_SIZE at $RDMA_VM_PEERS"
            echo of the guest >output; echo lost >/tmp/lost.$$ && echo "/tmp is writable"
            touch /usr/lost 2>/dev/null || echo "/usr is not writable"
            printf 'no last newline'; exit 7"""
        run = subprocess.run([sys.executable, SCRIPT, "--rw", self.folder, "--", "sh", "-c", command, "sh", "it's  $1"],
                             capture_output=True, text=True, cwd=self.folder, stdin=subprocess.DEVNULL, timeout=300,
                             env=os.environ | {"GREETING": "good\nday"}, check=False)
        self.assertEqual((7, "to stderr\n"), (run.returncode, run.stderr))
        self.assertEqual("good\nday it's  $1\nof the host\n0 of 1 at 10.77.0.1\n"
                         "/tmp is writable\n/usr is not writable\nno last newline", run.stdout)
        self.assertEqual("of the guest\n", (self.folder / "output").read_text())

    def test_a_guests_clock_goes_as_fast_as_the_hosts(self):
        command = "for i in 0 1 2 3 4; do date +%s.%N; read up rest </proc/uptime; echo $up; sleep 1; done"
        with subprocess.Popen([sys.executable, SCRIPT, "--", "sh", "-c", command], stdout=subprocess.PIPE, text=True,
                              stdin=subprocess.DEVNULL) as run:
            clocks = []
            for date in run.stdout:
                clocks.append((time.monotonic(), time.time(), float(date), float(next(run.stdout))))
        self.assertEqual((0, 5), (run.returncode, len(clocks)))
        (host, _, date, up), (host_end, today, date_end, up_end) = clocks[0], clocks[-1]
        for passed in [date_end - date, up_end - up]:
            self.assertGreater(passed, 4)
            self.assertAlmostEqual(1, passed / (host_end - host), delta=0.1)
        self.assertLess(abs(today - date_end), 5)

    def test_motley_doctor_lists_the_guests_device(self):
        names = ["libibverbs", "librdmacm"]
        on_host = subprocess.run([PROGRAM, "doctor", "--json"], capture_output=True, check=True).stdout
        parts = json.loads(on_host)["parts"]
        if any(part["state"] == "absent" for part in parts if part["name"] in names):
            self.skipTest("motley was built without libibverbs-dev or librdmacm-dev")
        parts = json.loads(self.right("--", PROGRAM, "doctor", "--json"))["parts"]
        verbs, rdmacm = ([part for part in parts if part["name"] == name][0] for name in names)
        self.assertEqual(("ran", "ran"), (verbs["state"], rdmacm["state"]))
        self.assertEqual("1 of 1 devices opened and registered memory, 1 can carry messages", verbs["detail"])
        self.assertEqual(["rxe0, port 1 ethernet active; messages use port 1, ::ffff:10.77.0.1"],
                         [re.sub(r" \d+ Gb/s; registers memory", "", device) for device in verbs["devices"]])


class Verbs(Guests):
    def test_bytes_move_between_two_guests_by_verbs(self):
        output = self.right("--guests", 2, "--", "sh", "-c", PING + "ping 0 -n 200 -s 65536")
        self.assert_moved(output, 1, r"\[0\] ")
        self.assert_moved(output, 1, r"\[1\] ")


class LongCommands(Guests):
    def test_a_guest_without_a_device_has_none(self):
        output = self.right("--guests", 2, "--no-rdma", 1, "--", "sh", "-c",
                            "ls /sys/class/infiniband 2>/dev/null; exec ip -o address show dev eth0")
        self.assertEqual(["[0] rxe0"], re.findall(r"^.*rxe.*$", output, re.M))
        self.assertEqual({("0", "10.77.0.1"), ("1", "10.77.0.2")},
                         set(re.findall(r"^\[(\d)\] .* inet ([\d.]+)/", output, re.M)))

    def test_the_guest_that_fails_first_gives_the_exit_code_and_the_others_end(self):
        begin = time.monotonic()
        answer = rdma_vm("--guests", 3, "--", "sh", "-c", "[ $RDMA_VM_RANK = 1 ] || sleep 300; kill -9 $$")
        self.assertEqual(128 + signal.SIGKILL, answer.returncode)
        self.assertIn("the command failed in guest 1, and was ended 5 s later in guest 0, 2", answer.stderr)
        self.assertLess(time.monotonic() - begin, 100)

    def test_a_guest_that_dies_is_named_with_the_end_of_its_console(self):
        answer = rdma_vm("--guests", 2, "--", "sh", "-c",
                         "[ $RDMA_VM_RANK = 0 ] || echo c >/proc/sysrq-trigger; sleep 300")
        self.assertEqual(FAILED, answer.returncode)
        self.assertIn("guest 1 died before its command had ended", answer.stderr)
        self.assertIn("sysrq: Trigger a crash", answer.stderr)
        answer = rdma_vm("--guests", 2, "--netem", "dellay 1ms", "--", "true")
        self.assertEqual(FAILED, answer.returncode)
        self.assertIn('What is "dellay"?', answer.stderr)
        answer = rdma_vm("--cpu", "None", "--", "true")
        self.assertEqual(FAILED, answer.returncode)
        self.assertIn("unable to find CPU model 'None'", answer.stderr)

    def started(self, *arguments):
        """A run whose command has begun, and its emulators."""
        run = subprocess.Popen([sys.executable, SCRIPT, "--guests", "2", *arguments, "--", "sh", "-c",
                                "echo begun; exec sleep 300"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                               env=os.environ | {"TMPDIR": str(self.folder)})
        self.addCleanup(run.kill)
        self.assertEqual({"[0] begun\n", "[1] begun\n"}, {run.stdout.readline() for _ in range(2)})
        return run, children(run.pid)

    def assert_none_left(self, emulators):
        self.assertEqual(2, len(emulators))
        while any(is_alive(process) for process in emulators):
            pass  # the kernel ends them
        self.assertEqual([], os.listdir(self.folder))

    def test_what_takes_too_long_is_ended_and_nothing_is_left(self):
        run, emulators = self.started("--timeout", "25")
        _, errors = run.communicate(timeout=300)
        self.assertEqual(TIMED_OUT, run.returncode)
        self.assertIn("had not ended after 25 s in guest 0, 1\n  hint: --timeout S", errors)
        self.assert_none_left(emulators)

    def test_nothing_is_left_of_a_run_that_a_signal_ends(self):
        for end in [signal.SIGKILL, signal.SIGTERM, signal.SIGINT]:
            with self.subTest(end=end):
                run, emulators = self.started()
                run.send_signal(end)
                run.communicate(timeout=100)
                self.assertIn(run.returncode, {-end, 128 + end})
                self.assert_none_left(emulators)


class LongVerbs(Guests):
    def test_bytes_move_inside_one_guest_by_verbs(self):
        command = PING + "(RDMA_VM_RANK=0; ping 0 -n 300) & RDMA_VM_RANK=1; ping 0 -n 300; wait $!"
        output = self.right("--", "sh", "-c", command)
        self.assert_moved(output, 2)

    def test_a_third_guest_without_a_device_is_no_obstacle(self):
        output = self.right("--guests", 3, "--no-rdma", 1, "--", "sh", "-c",
                            PING + "[ $RDMA_VM_RANK = 1 ] || ping 0 -n 200 -s 65536")
        self.assert_moved(output, 1, r"\[0\] ")
        self.assert_moved(output, 1, r"\[2\] ")

    def test_writes_come_in_although_packets_are_lost(self):
        command = """
            write="timeout 60 ib_write_bw -d rxe0 -x 1 -F -s 65536 -n 50"
            if [ $RDMA_VM_RANK = 0 ]; then $write; else
              until $write rdma0 2>/tmp/error; do
                grep -q "connect" /tmp/error || { cat /tmp/error >&2; exit 1; }
                sleep 0.3
              done
            fi
            tc -s qdisc show dev eth0"""
        output = self.right("--guests", 2, "--rate", "40mbit", "--netem", "delay 1ms loss 1%",
                            "--", "sh", "-c", command)
        self.assertEqual(2, len(re.findall(r"^\[\d\]  65536 +50 +[\d.]+", output, re.M)), output)
        self.assertTrue(re.search(r"^\[1\] .*dropped [1-9]", output, re.M), output)

    def test_one_of_two_rails_is_lost_and_comes_back(self):
        command = """
            ping 1 -n 50
            [ $RDMA_VM_RANK = 1 ] || rdma-vm-link down 1
            for rail in 0 1; do echo "rail $rail: $(cat /sys/class/infiniband/rxe$rail/ports/1/state)"; done
            ping 0 -n 50
            timeout 2 ping 1 2>/dev/null && echo "rail 1 answers"
            rdma-vm-link up 1
            ping 1 -n 50"""
        output = self.right("--guests", 2, "--rails", 2, "--", "sh", "-c", PING + command)
        for rank in range(2):
            self.assert_moved(output, 3, rf"\[{rank}\] ")
        self.assertEqual(1, output.count("rail 1: 1: DOWN"))
        self.assertIn("[0] rail 1: 1: DOWN", output)
        self.assertNotIn("answers", output)


if __name__ == "__main__":
    if shutil.which("qemu-system-x86_64") is None and not os.environ.get("MOTLEY_TEST_ALL"):
        print("skipped: qemu-system-x86_64 is not here; tools/test installs it, and all that tools/rdma-vm needs")
        sys.exit(SKIPPED)
    unittest.main()
