#!/usr/bin/env python3
"""How fast Motley's messages go over verbs beside ib_write_bw (perftest), in one boot of two guests with Soft-RoCE
devices (tools/rdma-vm): Motley, ib_write_bw, Motley, ib_write_bw, ...

Arguments: the program and the root of the repository; --rounds N (default 5); --json prints JSON; --smoke runs one
round of few calls and does not ask who is faster.

ib_write_bw has 16 writes on their way at once and waits for nobody; Motley's time is that of one way of a ping-pong of
whole messages, which are matched and in which both sides take turns. So of small ones it says how long a turn takes,
and only of large ones is a ratio asked. Guests are emulated: the speeds say nothing about a card.
"""

import json
import pathlib
import statistics
import subprocess
import sys

SIZES = (1 << 20, 8 << 20, 65536)
LARGE = 1 << 20

# In each guest. Both run the same commands in the same order; rank 0 prints.
SCRIPT = """
set -e
round() {  # round SIZE CALLS PORT SECONDS
  theirs="ib_write_bw -d rxe0 -x 1 -s $1 -n $2 -t 16 -F -p $3"
  if [ $RDMA_VM_RANK = 0 ]; then
    $theirs | awk -v size=$1 '$1 == size { print "theirs", size, $4 * 1048576 }'
  else
    tries=0
    until $theirs rdma0 >/dev/null 2>&1; do
      sleep 0.2
      tries=$((tries + 1))
      [ $tries -lt 100 ]
    done
  fi
  $MOTLEY bench comm --rank $RDMA_VM_RANK --ranks-in-all 2 --rendezvous rdma0:$(($3 + 1)) --operations message \\
    --paths verbs --bytes "$1 B" --seconds-a-time $4 --json > /tmp/mine
  if [ $RDMA_VM_RANK = 0 ]; then echo "mine $1 $(tr -d '\\n' < /tmp/mine)"; fi
}
"""


def main():
    smoke, as_json = "--smoke" in sys.argv, "--json" in sys.argv
    rounds = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 5
    program, root = (pathlib.Path(each).resolve() for each in sys.argv[1:3])
    script, port = SCRIPT, 18600
    for _ in range(1 if smoke else rounds):
        for size in SIZES[:1] if smoke else SIZES:
            calls = 20 if smoke else max(20, (24 << 20) // size)
            script += f"round {size} {calls} {port} {0.01 if smoke else 0.3}\n"
            port += 2
    command = [root / "tools/rdma-vm", "--guests", "2", "--timeout", "500", "--", "env", f"MOTLEY={program}",
               "MOTLEY_JOB_TOKEN=bench", "bash", "-c", script]
    guests = subprocess.run([str(each) for each in command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if guests.returncode != 0:
        sys.exit(f"{guests.stdout}{guests.stderr}\ntools/rdma-vm ended with {guests.returncode}")
    theirs, mine = ({size: [] for size in SIZES} for _ in range(2))
    for line in guests.stdout.splitlines():
        words = line.removeprefix("[0] ").split(maxsplit=2)
        if words[:1] == ["theirs"]:
            theirs[int(words[1])].append(float(words[2]))
        if words[:1] == ["mine"]:
            call = json.loads(words[2])["calls"][0]
            if call["path"] != "verbs":
                sys.exit(f"Motley's messages went over {call['path']}")
            mine[int(words[1])].append(call["bytes"] / call["seconds"])
    rows = []
    for size in SIZES:
        if not theirs[size] or not mine[size]:
            continue
        ours, its = statistics.median(mine[size]), statistics.median(theirs[size])
        rows.append({"bytes": size, "motley_Bps": ours, "ib_write_bw_Bps": its, "ratio": ours / its,
                     "asked": 0.9 if size >= LARGE else None,
                     "holds": None if smoke or size < LARGE else ours >= 0.9 * its})
    if not rows:
        sys.exit(f"nothing was measured\n{guests.stdout}{guests.stderr}")
    if as_json:
        print(json.dumps({"schema": "motley.bench_verbs/1", "rows": rows}, indent=2))
    else:
        print("| verbs, message of | Motley | ib_write_bw | Motley is so many times as fast | asked | holds |\n"
              "|---|---|---|---|---|---|")
        for row in rows:
            holds = {None: "-", True: "yes", False: "no"}[row["holds"]]
            asked = "-" if row["asked"] is None else f"{row['asked']:.2f}"
            print(f"| {row['bytes'] >> 10} KiB | {row['motley_Bps'] / 1e6:.0f} MB/s | "
                  f"{row['ib_write_bw_Bps'] / 1e6:.0f} MB/s | {row['ratio']:.2f} | {asked} | {holds} |")
    return any(row["holds"] is False for row in rows)


sys.exit(main())
