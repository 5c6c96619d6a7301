# The Debian packages that Motley needs, in one place for all scripts, which source this file.
# Optional parts (CUDA, HIP) are not here: motley doctor says what they would add.
build_packages=(
  g++ cmake ninja-build pkg-config
  libsimgrid-dev libboost-dev libyaml-cpp-dev libfmt-dev libspdlog-dev nlohmann-json3-dev
  libcli11-dev libdnnl-dev libxxhash-dev libsodium-dev libjs-d3
  zlib1g-dev libprotobuf-dev protobuf-compiler
)
fit_packages=(libceres-dev libeigen3-dev)  # only for tools/fit-published
test_packages=(catch2 ccache python3 python3-torch)
# For tests of ranks that other launchers have started.
launcher_packages=(openmpi-bin slurm-wlm munge)
# For tools/rdma-vm and its tests: the guests, and programs and libraries that move bytes in them by RDMA.
guest_packages=(
  qemu-system-x86 busybox-static iproute2 python3
  ibverbs-providers ibverbs-utils perftest libibverbs-dev librdmacm-dev
)
rival_packages=(openmpi-bin libopenmpi-dev ucx-utils libgloo-dev iperf3)  # only for tools/bench comm
# Tests complete words in zsh and fish, hold files to their JSON Schema, check the types of tools/python, and open pages
# in Chromium.
check_packages=(clang-format clang-tidy git zsh fish help2man python3-jsonschema python3-yaml mypy chromium)
fuzz_packages=(clang-14 libclang-rt-14-dev)  # for tools/fuzz
mutation_packages=(python3-clang-14)          # for tools/mutate

# need_packages NAME...: installs the packages that are missing; silent if none is. Needs root or
# sudo.
need_packages() {
  local missing=() name
  for name in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] ||
      missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || {
      echo "missing packages: ${missing[*]}; install them as root, or install sudo" >&2
      return 5
    }
    as_root=(sudo)
  fi
  echo "== installing ${missing[*]}" >&2
  "${as_root[@]}" apt-get update -q >/dev/null
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
    --no-install-recommends "${missing[@]}" >/dev/null
}
