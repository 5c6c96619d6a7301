"""Times of calls on a GPU, by events, with the inputs in or out of its L2 cache; and what the GPU is."""

import csv
import datetime
import platform
import statistics
import subprocess
import threading
import time

import torch

FLUSH_BYTES = 256 << 20  # more than any L2; it is read, so that no line of it has to be written back later
SLEEP_CYCLES = 300_000   # about 0.15 ms: the host has launched the whole call before the GPU begins it


def median(times):
    return statistics.median(times)


class Machine:
    """The device that is measured: a GPU, or this machine's processor, where only the script itself is tried."""

    def __init__(self, cpu):
        self.cpu = cpu
        self.device = torch.device("cpu" if cpu else "cuda")
        self.flush_buffer = None

    def synchronize(self):
        if not self.cpu:
            torch.cuda.synchronize()

    def flush(self):
        """Fills L2 with lines that no case reads, and keeps the GPU busy until the host is ahead of it."""
        if self.cpu:
            return
        if self.flush_buffer is None:
            self.flush_buffer = torch.ones(FLUSH_BYTES // 4, device=self.device)
        self.flush_buffer.amax()
        torch.cuda._sleep(SLEEP_CYCLES)

    def mark(self):
        if self.cpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, begin, end):
        """Seconds between two marks; the caller has synchronized."""
        return end - begin if self.cpu else begin.elapsed_time(end) * 1e-3

    def free_memory(self):
        import gc
        gc.collect()
        if not self.cpu:
            torch.cuda.empty_cache()

    def time_once(self, call):
        begin = self.mark()
        call()
        return begin, self.mark()

    def time_cold_and_warm(self, call, warm):
        """Seconds of the call with its inputs out of L2, and of each of `warm` calls right after it."""
        self.flush()
        cold = self.time_once(call)
        again = []
        for _ in range(warm):
            if not self.cpu:
                torch.cuda._sleep(SLEEP_CYCLES)
            again.append(self.time_once(call))
        self.synchronize()
        return self.seconds(*cold), [self.seconds(*pair) for pair in again]

    def time_back_to_back(self, call, seconds):
        """Seconds of each call in a row of calls that lasts about so long: the clock is the one of steady work."""
        call()
        self.synchronize()
        once = max(self.seconds(*self._timed(call)), 1e-6)
        marks = [self.mark()]
        for _ in range(max(3, int(seconds / once))):
            call()
            marks.append(self.mark())
        self.synchronize()
        return [self.seconds(a, b) for a, b in zip(marks, marks[1:])]

    def _timed(self, call):
        pair = self.time_once(call)
        self.synchronize()
        return pair


class Pool:
    """Random numbers that inputs are views of. Each input lies at another place than the ones before it."""

    def __init__(self, machine, elements):
        self.numbers = torch.empty(elements, dtype=torch.bfloat16, device=machine.device)
        part = 1 << 26
        for begin in range(0, elements, part):
            self.numbers[begin:begin + part].normal_()
        self.next = 0

    def take(self, *shape, dtype=torch.bfloat16):
        count = 1
        for size in shape:
            count *= size
        width = 2 if dtype == torch.float32 else 1  # two bf16 numbers read as one fp32 number are as random
        needed = -(-count * width // 128) * 128
        if needed > self.numbers.numel():
            raise RuntimeError("input is larger than the pool")
        if self.next + needed > self.numbers.numel():
            self.next = 0
        part = self.numbers[self.next:self.next + count * width]
        self.next += needed
        if dtype == torch.float32:
            return part.view(torch.float32).view(*shape)
        part = part.view(*shape)
        return part if dtype == torch.bfloat16 else part.to(dtype)


class Clocks(threading.Thread):
    """Reads clocks, power and temperature of the GPU twice a second until it is told to stop. Changes nothing."""

    FIELDS = ["clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "utilization.gpu"]

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path = path
        self.begin = time.time()
        self.phase = "start"
        self.process = None

    def run(self):
        command = ["nvidia-smi", "--query-gpu=" + ",".join(self.FIELDS), "--format=csv,noheader,nounits",
                   "-i", "0", "-lms", "500"]
        with open(self.path, "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["seconds", "phase", "sm_mhz", "memory_mhz", "power_w", "temperature_c",
                           "utilization_percent"])
            try:
                self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                                text=True)
                for line in self.process.stdout:
                    rows.writerow([f"{time.time() - self.begin:.1f}", self.phase] +
                                  [cell.strip() for cell in line.split(",")])
                    file.flush()
            except OSError:
                pass

    def stop(self):
        if self.process is not None:
            self.process.terminate()
        if self.is_alive():
            self.join(timeout=3)


def query_gpu(fields):
    """What nvidia-smi answers for each field; fields that it does not know are left out."""
    answers = {}
    for field in fields:
        try:
            output = subprocess.run(["nvidia-smi", "-i", "0", "--query-gpu=" + field,
                                     "--format=csv,noheader"], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if output.returncode == 0:
            answers[field] = output.stdout.strip()
    return answers


def describe(machine):
    facts = {
        "schema": "motley.torch-device/1",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }
    if machine.cpu:
        facts["name"] = "processor of this machine: the script was only tried"
        return facts
    facts["cudnn"] = torch.backends.cudnn.version()
    properties = torch.cuda.get_device_properties(0)
    facts["name"] = properties.name
    facts["multiprocessors"] = properties.multi_processor_count
    facts["total_memory_bytes"] = properties.total_memory
    facts["l2_bytes"] = getattr(properties, "L2_cache_size", None)
    try:
        from importlib import metadata
        facts["libraries"] = {each.metadata["Name"]: each.version for each in metadata.distributions()
                              if str(each.metadata["Name"]).startswith(("nvidia-cublas", "nvidia-cudnn", "triton"))}
    except Exception as error:  # a broken package's metadata must not end the measurement
        facts["libraries"] = str(error)
    facts["nvidia_smi"] = query_gpu([
        "name", "driver_version", "memory.total", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem",
        "clocks.applications.graphics", "power.limit", "power.default_limit", "pcie.link.gen.max",
        "pcie.link.width.max", "ecc.mode.current", "persistence_mode", "mig.mode.current"])
    free, total = torch.cuda.mem_get_info()
    facts["bytes_in_use_at_start"] = total - free  # of the context, before any tensor is made
    return facts
