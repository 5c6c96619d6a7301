"""The guests' kernel and its modules: Debian's own package, downloaded and unpacked into a cache, never installed.

The image is a folder: `kernel` is an ELF file, which qemu starts without the seconds that emulated code needs to unpack
it, and `modules.cpio` is the first part of the guests' initial file system: busybox, and the modules in an order in
which they can be loaded. It is made once; `tools/rdma-vm --prepare` makes a new one if apt knows a newer kernel.
"""

import contextlib
import fcntl
import hashlib
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile

SERIES = "6.1.0"  # Debian 12's; its kernel has Soft-RoCE (rdma_rxe), and its cloud kernel has not
MODULES = ["virtio_pci", "virtio_console", "virtio_net", "virtio_rng", "9pnet_virtio", "9p", "overlay", "dummy",
           "sch_netem", "sch_tbf"]
RDMA_MODULES = ["crc32_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm"]
# Where the package has these modules and all that they need.
FOLDERS = ("arch/x86/crypto", "crypto", "drivers/char", "drivers/infiniband", "drivers/net", "drivers/virtio", "fs",
           "lib", "net")


class Failure(Exception):
    """The guests cannot run: what failed, and what helps."""

    def __init__(self, message, hint):
        super().__init__(message)
        self.hint = hint


def cache():
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "motley-rdma-vm"


def program(name, package):
    """The path of a program, in sbin too, where only root looks."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        raise Failure(f"{name} is not here", f"apt-get install {package}")
    return path


def output(*command, **options):
    """(exit code, stdout, last line of stderr)"""
    run = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    return run.returncode, run.stdout, (run.stderr.strip().splitlines() or ["it did not say why"])[-1]


def newest_kernel():
    """The name of the newest kernel package of the series that apt knows. None: it knows none."""
    _, names, _ = output(program("apt-cache", "apt"), "pkgnames", f"linux-image-{SERIES}-")
    names = re.findall(rf"^linux-image-{re.escape(SERIES)}-\d+-amd64$", names, re.M)
    return max(names, key=lambda name: int(name.split("-")[3]), default=None)


def download(package, folder):
    code, _, error = output(program("apt-get", "apt"), "-q", "download", package, cwd=folder)
    if code != 0:
        raise Failure(f"the guests' kernel {package} could not be downloaded: {error}",
                      "`apt-get update` as root, or see whether this machine reaches its Debian mirror")
    return next(folder.glob("*.deb"))


def unpack(package):
    """The bytes of the compressed kernel, and of each module by name."""
    kernel, modules = None, {}
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as unpacking:
        with tarfile.open(fileobj=unpacking.stdout, mode="r|") as files:
            for file in files:
                if file.name.startswith("./boot/vmlinuz-"):
                    kernel = files.extractfile(file).read()
                module = re.fullmatch(r"\./lib/modules/[^/]+/kernel/(.*)/([^/]+)\.ko", file.name)
                if module and (module[1] + "/").startswith(tuple(folder + "/" for folder in FOLDERS)):
                    modules[module[2].replace("-", "_")] = files.extractfile(file).read()
    return kernel, modules


def elf(kernel):
    """The kernel itself, out of the file that unpacks it at its start."""
    begin = kernel.find(b"\xfd7zXZ\0") if kernel else -1
    plain = lzma.LZMADecompressor().decompress(kernel[begin:]) if begin >= 0 else b""
    if not plain.startswith(b"\x7fELF"):
        raise Failure("the guests' kernel is packed in an unknown way", "this script knows Debian 12's packages")
    return plain


def with_needed(names, modules):
    """The names, and before each what it needs, as the modules say themselves."""
    order = []

    def add(name):
        if name not in modules:
            raise Failure(f"the guests' kernel has no module {name}", "this script knows Debian 12's packages")
        needs = re.search(rb"\0depends=([^\0]*)\0", modules[name])[1].decode()
        for other in filter(None, needs.split(",")):
            add(other.replace("-", "_"))
        if name not in order:
            order.append(name)

    for name in names:
        add(name)
    return order


def archive(files):
    """A cpio archive (newc), as the kernel unpacks it: {path: bytes of a program, None for a folder}."""
    parts = []
    padded = lambda data: data + b"\0" * (-len(data) % 4)
    for number, (path, data) in enumerate([*files.items(), ("TRAILER!!!", b"")], 1):
        name, mode, data = path.encode() + b"\0", 0o40755 if data is None else 0o100755, data or b""
        fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
        parts.append(padded(b"070701" + b"".join(b"%08x" % field for field in fields) + name) + padded(data))
    return b"".join(parts)


def initial_files(modules):
    plain = with_needed(MODULES, modules)
    rdma = [name for name in with_needed(RDMA_MODULES, modules) if name not in plain]
    busybox = pathlib.Path(program("busybox", "busybox-static")).read_bytes()
    if b"/ld-linux" in busybox:
        raise Failure("busybox is not linked statically", "apt-get install busybox-static")
    lists = {"modules/list": "".join(f"{name}.ko\n" for name in plain).encode(),
             "modules/rdma-list": "".join(f"{name}.ko\n" for name in rdma).encode()}
    return {"bin": None, "bin/busybox": busybox, "dev": None, "proc": None, "sys": None, "host": None, "modules": None,
            **lists, **{f"modules/{name}.ko": modules[name] for name in plain + rdma}}


def make(package, folder):
    """Makes the image in a new folder, which gets its name when it is whole."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="making-") as making:
        making = pathlib.Path(making)
        kernel, modules = unpack(download(package, making))
        whole = making / "image"
        whole.mkdir()
        (whole / "kernel").write_bytes(elf(kernel))
        (whole / "modules.cpio").write_bytes(archive(initial_files(modules)))
        whole.rename(folder)


@contextlib.contextmanager
def locked(folder):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def prepare(renew, say):
    """The folder of the image. It is made if there is none, or, with `renew`, if apt knows a newer kernel."""
    kind = hashlib.sha256(repr((MODULES, RDMA_MODULES)).encode()).hexdigest()[:8]
    with locked(cache()):
        there = sorted(cache().glob(f"linux-image-*-{kind}"), key=lambda folder: int(folder.name.split("-")[3]))
        if there and not renew:
            return there[-1]
        try:
            package = newest_kernel()
            if package is None:
                raise Failure(f"apt knows no kernel linux-image-{SERIES}-N-amd64", "`apt-get update` as root")
            folder = cache() / f"{package}-{kind}"
            if not folder.exists():
                say(f"downloading {package} into {cache()}")
                make(package, folder)
        except Failure as failure:
            if not there:
                raise
            say(f"{failure}; the guests keep {there[-1].name}")
            return there[-1]
        for other in cache().glob("*-*"):  # older kernels, and what a killed run left
            if other != folder:
                shutil.rmtree(other)
        return folder
