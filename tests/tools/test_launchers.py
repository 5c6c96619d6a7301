#!/usr/bin/env python3
"""Ranks that Open MPI or Slurm has started on one host, with no other configuration, and what ranks find between them.

Arguments: the program, the source tree. A test whose launcher is not installed is skipped; tools/test --all installs
them. Some tests need root.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
BENCH = [PROGRAM, "bench", "comm", "--operations", "all_reduce", "--bytes", "1 KiB", "--seconds-a-time", "0.002",
         "--json"]
MPIRUN = ["mpirun", "-n", "4", "--oversubscribe"]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

OK, FAILED, USAGE, INFEASIBLE = range(4)


def run(*command, **variables):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=ROOT, stdin=subprocess.DEVNULL,
                          timeout=300, env=os.environ | variables, check=False)


def need(*programs):
    missing = [program for program in programs if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin") is None]
    return unittest.skipIf(missing, f"{', '.join(missing)} is not here; tools/test --all installs it")


def need_root(test):
    return unittest.skipIf(os.geteuid() != 0, "only root may do this")(test)


def need_namespaces(test):
    """Roots of containers, or of chroot, may not make a mount namespace."""
    answer = subprocess.run(["unshare", "--mount", "--time", "true"], capture_output=True, text=True, check=False)
    return unittest.skipIf(answer.returncode != 0, answer.stderr.strip())(test)


def free_ports():
    """The first of two ports that stand side by side."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


class Launchers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def assert_four_ranks_reduce(self, answer):
        self.assertEqual(OK, answer.returncode, answer.stderr)
        told = json.loads(answer.stdout)
        self.assertEqual(4, told["ranks"])
        self.assertEqual({("all_reduce", 1024)}, {(call["operation"], call["bytes"]) for call in told["calls"]})

    @need("mpirun")
    def test_open_mpi_starts_four_ranks_that_reduce(self):
        self.assert_four_ranks_reduce(run(*MPIRUN, *BENCH, **AS_ROOT))

    @need("mpirun")
    def test_jobs_of_open_mpi_run_side_by_side(self):
        # Each has a folder of its own: where two make the same one at once, Open MPI fails.
        runs = [subprocess.Popen([*MPIRUN, "--mca", "orte_tmpdir_base", self.folder / str(job), *BENCH], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=ROOT,
                                 env=os.environ | AS_ROOT) for job in range(2)]
        for each in runs:
            output, errors = each.communicate(timeout=300)
            self.assert_four_ranks_reduce(subprocess.CompletedProcess([], each.returncode, output, errors))

    @need("mpirun")
    def test_flags_that_contradict_the_launcher_are_refused(self):
        answer = run(*MPIRUN, *BENCH, "--rank", "0", "--ranks-in-all", "5", **AS_ROOT)
        self.assertIn("--rank says rank 0 of 5, OMPI_COMM_WORLD_RANK says rank ", answer.stderr)

    @need("srun", "slurmctld", "munged")
    @need_root
    def test_slurm_starts_four_ranks_that_reduce(self):
        slurm = [ROOT / "tests" / "tools" / "slurm-one-node"]
        script = self.folder / "job"
        script.write_text("#!/bin/sh\nsrun \"$@\"; echo first $?\nsrun \"$@\"; echo second $?\n")
        answer = run(*slurm, "srun", "-n", "4", *BENCH, PORT=str(free_ports()))
        self.assert_four_ranks_reduce(answer)
        # In a batch script the first process is no rank, and every step has ranks of its own.
        output = self.folder / "output"
        answer = run(*slurm, "sbatch", "-W", "-n", "4", "-o", output, script, *BENCH[:-1], PORT=str(free_ports()))
        self.assertEqual(OK, answer.returncode, answer.stderr)
        self.assertEqual(2, output.read_text().count("operation "), output.read_text())
        self.assertIn("first 0", output.read_text())
        self.assertIn("second 0", output.read_text())

    def test_flags_place_ranks_that_nobody_launched(self):
        at = f"127.0.0.1:{free_ports()}"
        ranks = [subprocess.Popen([*BENCH, "--rank", str(rank), "--ranks-in-all", "2", "--rendezvous", at],
                                  stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL) for rank in range(2)]
        outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
        self.assertEqual([OK, OK], [rank.returncode for rank in ranks])
        self.assertEqual(2, json.loads(outputs[0])["ranks"])
        self.assertEqual("", outputs[1])




def other_host(folder):
    """Words for a shell that run a command as if on another host, whose steady clock is 1,000 s ahead."""
    boot = folder / "boot_id"
    boot.write_text("00000000-0000-4000-8000-000000000000\n")
    return ["unshare", "--mount", "--time", "--monotonic", "1000", "--fork", "--kill-child", "sh", "-c",
            f"'mount --bind {boot} /proc/sys/kernel/random/boot_id; exec \"$@\"'", "sh"]


# What it starts has a session of its own, as on another host: whoever kills the local ssh leaves it to end by itself.
FAKE_SSH = """#!/bin/sh
while [ "$1" = -T ] || [ "$1" = -o ]; do [ "$1" = -o ] && shift; shift; done
echo "$1" >>"$FAKE_SSH_HOSTS"
shift
exec env -i PATH="$PATH" setsid --wait sh -c "$*"
"""


def is_alive(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Hosts(unittest.TestCase):
    """Ranks of other hosts, where ssh is a script that stays here and forgets the variables as a real one does."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.hosts = self.folder / "hosts"
        ssh = self.folder / "ssh"
        ssh.write_text(self.ssh())
        ssh.chmod(0o755)
        self.variables = {"PATH": f"{self.folder}:{os.environ['PATH']}", "FAKE_SSH_HOSTS": str(self.hosts)}
        self.remote = ["launch", "--hosts", "alpha:2,beta:2", "--rendezvous-host", "127.0.0.1", "--"]

    def ssh(self):
        """The script that the launcher finds as ssh."""
        return FAKE_SSH

    def launch(self, *command, hosts=()):
        return run(PROGRAM, *(hosts or self.remote), *command, **self.variables)

    def test_ranks_of_two_hosts_reduce(self):
        answer = self.launch(*BENCH)
        self.assertEqual((OK, ""), (answer.returncode, answer.stderr))
        self.assertEqual(4, json.loads(answer.stdout)["ranks"])
        self.assertEqual(["alpha", "alpha", "beta", "beta"], sorted(self.hosts.read_text().split()))

    def test_the_first_rank_may_be_here_and_others_there(self):
        hosts = ["launch", "--hosts", "localhost:1,beta:1", "--rendezvous-host", "127.0.0.1", "--"]
        answer = self.launch(PROGRAM, "doctor", "--peers", "--json", hosts=hosts)
        self.assertEqual((OK, ""), (answer.returncode, answer.stderr))
        self.assertEqual(["beta"], self.hosts.read_text().split())

    def test_words_and_the_folder_arrive_as_they_are(self):
        script = '[ "$MOTLEY_RANK" != 3 ] || printf "%s|" "$PWD" "$@"'
        answer = self.launch("sh", "-c", script, "sh", "it's", "$HOME  *", "")
        self.assertEqual((OK, f"{ROOT}|it's|$HOME  *||"), (answer.returncode, answer.stdout), answer.stderr)

    def test_no_list_of_processes_shows_the_token(self):
        script = """
            for each in /proc/[0-9]*/cmdline; do
              case "$(tr '\\0' ' ' 2>/dev/null <$each)" in *"$MOTLEY_JOB_TOKEN"*) echo "shown in $each";; esac
            done 2>/dev/null
            echo "token ${#MOTLEY_JOB_TOKEN}" """
        answer = self.launch("sh", "-c", script)
        self.assertEqual("token 32\n" * 4, answer.stdout, answer.stderr)

    def test_the_first_failure_ends_all_and_its_exit_code_and_host_are_told(self):
        for end, code, message in [("exit 7", 7, "rank 2 on beta ended with exit code 7"),
                                   ("kill -9 $$", 137, "rank 2 on beta was ended by signal 9 (Killed)")]:
            answer = self.launch("sh", "-c", f'echo $$; [ "$MOTLEY_RANK" != 2 ] || {end}; sleep 600')
            self.assertEqual(code, answer.returncode, answer.stderr)
            self.assertIn(message, answer.stderr)
            self.assertFalse(any(is_alive(process) for process in answer.stdout.split()))

    def started(self, script):
        """A launch, and the processes that its ranks say they are."""
        launched = subprocess.Popen([PROGRAM, *self.remote, "sh", "-c", script], stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, text=True, stdin=subprocess.DEVNULL,
                                    env=os.environ | self.variables)
        self.addCleanup(launched.stdout.close)
        self.addCleanup(launched.wait)
        self.addCleanup(launched.kill)
        return launched, [launched.stdout.readline().strip() for _ in range(4)]

    def test_signals_reach_the_ranks_and_nothing_outlives_the_launcher(self):
        for end in [signal.SIGTERM, signal.SIGKILL]:
            with self.subTest(end=end):
                launched, ranks = self.started("trap 'exit 5' TERM; echo $$; while :; do sleep 0.05; done")
                launched.send_signal(end)
                self.assertEqual(5 if end == signal.SIGTERM else -end, launched.wait(100))
                while any(is_alive(rank) for rank in ranks):
                    time.sleep(0.01)

    def test_a_rank_that_will_not_end_is_killed_by_the_second_signal(self):
        launched, ranks = self.started("trap '' TERM; echo $$; while :; do sleep 0.05; done")
        launched.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        self.assertIsNone(launched.poll())
        launched.send_signal(signal.SIGTERM)
        self.assertEqual(137, launched.wait(100))
        self.assertFalse(any(is_alive(rank) for rank in ranks))

    def test_a_binding_is_printed_and_read(self):
        printed = run(PROGRAM, "launch", "--hosts", "localhost:1,beta:1", "--print-binding")
        self.assertEqual((OK, ""), (printed.returncode, printed.stderr))
        processor = min(os.sched_getaffinity(0))
        bound = self.folder / "ranks.yaml"
        bound.write_text(f"ranks:\n  - {{rank: 0, processors: {processor}, device: 3, nic: eth7}}\n"
                         f"  - {{rank: 1, host: beta, processors: {processor}}}\n")
        hosts = ["launch", "--bind", bound, "--rendezvous-host", "127.0.0.1", "--"]
        script = "echo $MOTLEY_RANK $(taskset -pc $$ | sed 's/.*: //') $MOTLEY_DEVICE $MOTLEY_NIC"
        answer = self.launch("sh", "-c", script, hosts=hosts)
        self.assertEqual((OK, [f"0 {processor} 3 eth7", f"1 {processor}"]),
                         (answer.returncode, sorted(answer.stdout.splitlines())), answer.stderr)
        again = run(PROGRAM, "launch", "--bind", bound, "--print-binding", "--json")
        self.assertEqual([{"rank": 0, "host": "localhost", "processors": str(processor), "device": 3, "nic": "eth7"},
                          {"rank": 1, "host": "beta", "processors": str(processor)}], json.loads(again.stdout)["ranks"])

    def test_a_bound_nic_that_is_not_there_is_named_and_messages_go_without_it(self):
        bound = self.folder / "ranks.yaml"
        bound.write_text("ranks:\n  - {rank: 0, nic: nowhere0}\n  - {rank: 1, host: beta}\n")
        hosts = ["launch", "--bind", bound, "--rendezvous-host", "127.0.0.1", "--"]
        script = f"MOTLEY_HOST_ID=$MOTLEY_RANK exec {PROGRAM} doctor --peers --json"
        answer = self.launch("sh", "-c", script, hosts=hosts)
        self.assertEqual((OK, ""), (answer.returncode, answer.stderr))
        told = json.loads(answer.stdout)
        self.assertEqual(["tcp", "tcp"], [each["large"] for each in told["pairs"]])
        notes = [each for each in told["notes"] if "nowhere0" in each["note"]]  # there may be others, of real devices
        self.assertEqual([0], [each["rank"] for each in notes])

    def test_a_host_that_ssh_cannot_reach_is_named(self):
        (self.folder / "ssh").write_text("#!/bin/sh\nexit 255\n")
        answer = self.launch("true")
        self.assertEqual(255, answer.returncode)
        self.assertIn("ended with exit code 255, as where ssh cannot reach it", answer.stderr)


@need("ssh", "sshd", "ssh-keygen")
@need_root
class HostsBySsh(Hosts):
    """The same with the real ssh, and a server of its own on the loopback interface that all hosts are."""

    def ssh(self):
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)  # the server wants it
        port = free_ports()
        for key in ["host", "user"]:
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / key)
        server = self.folder / "sshd_config"
        server.write_text(f"Port {port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host\nStrictModes no\n"
                          # Another home: what a user's shell says when it starts is no matter of the launcher.
                          f"SetEnv HOME={self.folder}\n"
                          f"AuthorizedKeysFile {self.folder}/user.pub\nUsePAM no\nPidFile none\nMaxStartups 100\n")
        client = self.folder / "ssh_config"
        client.write_text(f"Host *\nHostName 127.0.0.1\nPort {port}\nIdentityFile {self.folder}/user\n"
                          "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n")
        sshd = subprocess.Popen([shutil.which("sshd", path="/usr/sbin:" + os.environ["PATH"]), "-D", "-f", server],
                                stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(sshd.wait)
        self.addCleanup(sshd.kill)
        while True:
            with socket.socket() as client_end:
                if client_end.connect_ex(("127.0.0.1", port)) == 0:
                    break
            self.assertIsNone(sshd.poll())
            time.sleep(0.01)
        return f'#!/bin/sh\necho "$6" >>"$FAKE_SSH_HOSTS"\nexec {shutil.which("ssh")} -F {client} "$@"\n'


class Peers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def peers(self, *arguments):
        answer = run(PROGRAM, *arguments, "doctor", "--peers", "--json")
        self.assertEqual((OK, ""), (answer.returncode, answer.stderr))
        told = json.loads(answer.stdout)
        self.assertEqual("motley.doctor_peers/1", told["schema"])
        return [(pair["from"], pair["to"], pair["small"], pair["large"], pair["why"]) for pair in told["pairs"]]

    def launched(self, rank, *words):
        """Two ranks, one of which is started by these words."""
        script = f'if [ "$MOTLEY_RANK" = {rank} ]; then exec {" ".join(words)} "$@"; else exec "$@"; fi'
        return self.peers("launch", "-n", "2", "--", "sh", "-c", script, "sh", PROGRAM)

    def test_ranks_of_one_host_read_each_others_memory(self):
        answer = run(PROGRAM, "doctor", "--peers", "-n", "3")
        self.assertEqual((OK, ""), (answer.returncode, answer.stderr))
        rows = answer.stdout.splitlines()
        self.assertEqual(["from", "to", "small", "large", "why"], rows[0].split())
        self.assertEqual([f"{sender} {receiver} tcp shm one host: rank {receiver} reads the memory of rank {sender}"
                          for sender in range(3) for receiver in range(3) if sender != receiver],
                         [" ".join(row.split()) for row in rows[1:7]])

    @need("setpriv")
    @need_root
    def test_a_rank_that_may_not_read_says_why(self):
        pairs = self.launched(1, "setpriv", "--bounding-set=-all")
        (_, _, small, large, why), back = pairs
        self.assertEqual(("tcp", "tcp"), (small, large))
        self.assertRegex(why, r"^rank 1 cannot read the memory of rank 0: .*: Operation not permitted$")
        self.assertEqual((1, 0, "tcp", "shm", "one host: rank 0 reads the memory of rank 1"), back)

    @need_root
    @need_namespaces
    def test_other_namespaces_and_other_hosts_are_named(self):
        for words, why in [(["unshare", "--pid", "--fork", "--kill-child"], "another namespace of process ids"),
                           (other_host(self.folder), "another host")]:
            self.assertEqual([(0, 1, "tcp", "tcp", why), (1, 0, "tcp", "tcp", why)], self.launched(1, *words))

    @need_root
    @need_namespaces
    def test_times_of_two_hosts_whose_clocks_differ_are_those_of_one_clock(self):
        trace = self.folder / "trace.json"
        command = [PROGRAM, "train", "scenarios/quickstart-train.yaml", "--steps", "2", "--trace", str(trace),
                   "--any-hosts"]
        script = f'if [ "$MOTLEY_RANK" = 1 ]; then exec {" ".join(other_host(self.folder))} "$@"; else exec "$@"; fi'
        answer = run(PROGRAM, "launch", "-n", "2", "--", "sh", "-c", script, "sh", *command, "--json")
        self.assertEqual((OK, ""), (answer.returncode, answer.stderr))
        uncertainty_s = json.loads(answer.stdout)["clock_uncertainty_s"]
        self.assertTrue(0 < uncertainty_s < 0.1, uncertainty_s)
        written = json.loads(trace.read_text())
        self.assertTrue(0 < written["motley"]["clock_uncertainty_s"] < 0.1)
        begins = [event["ts"] for event in written["traceEvents"] if event["ph"] == "X"]
        self.assertLess(max(begins) - min(begins), 100e6)  # the clocks are 1,000 s apart

    def train_on_hosts(self, hosts, scenario, *more):
        """Two ranks, each on the host of its place in `hosts`."""
        script = f'set -- {hosts} "$@"; shift $MOTLEY_RANK; host=$1; shift $((2 - $MOTLEY_RANK)); ' \
                 'MOTLEY_HOST_ID=$host exec "$@"'
        return run(PROGRAM, "launch", "-n", "2", "--", "sh", "-c", script, "sh", PROGRAM, "train", scenario, "--steps",
                   "1", *more)

    def test_hosts_that_are_not_the_nodes_of_the_cluster_are_refused_with_both(self):
        one_node = "scenarios/quickstart-train.yaml"
        nodes = (ROOT / "platforms" / "host-2.yaml").read_text()
        two_nodes = self.folder / "two.yaml"
        cluster = nodes.replace("nodes: 1", "nodes: 2").replace("chips_per_node: 2", "chips_per_node: 1")
        (self.folder / "pair.yaml").write_text(
            cluster + "    nics: [{kind: ethernet, count: 1, bandwidth: 1 Gb/s, latency: 50 us}]\n")
        two_nodes.write_text((ROOT / one_node).read_text().replace("cluster: host-2", "cluster: ./pair.yaml"))
        refused = self.train_on_hosts("a b", one_node)
        self.assertEqual((INFEASIBLE, ""), (refused.returncode, refused.stdout))
        self.assertIn("the ranks run on 2 hosts (rank 0 on 127.0.0.1; rank 1 on 127.0.0.1), and cluster `host-2` has "
                      "them on 1 node (ranks 0-1 on node 0 of `host`)", refused.stderr)
        for accepted in [self.train_on_hosts("a b", one_node, "--any-hosts"), self.train_on_hosts("a b", two_nodes),
                         self.train_on_hosts("a a", one_node), self.train_on_hosts("a a", two_nodes)]:
            self.assertEqual((OK, ""), (accepted.returncode, accepted.stderr))

    def test_one_rank_has_no_peers(self):
        answer = run(PROGRAM, "doctor", "--peers", "-n", "1")
        self.assertEqual(USAGE, answer.returncode)
        self.assertIn("one rank has no peers", answer.stderr)


if __name__ == "__main__":
    unittest.main()
