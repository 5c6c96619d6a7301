# The Debian packages that Motley needs, once for every script. Sourced, not run.
# Optional parts (CUDA, HIP, RDMA) are not here: motley doctor says what they would give.
build_packages=(
  g++ cmake ninja-build pkg-config
  libsimgrid-dev libboost-dev libyaml-cpp-dev libfmt-dev libspdlog-dev nlohmann-json3-dev
  libcli11-dev libdnnl-dev libxxhash-dev
)
fit_packages=(libceres-dev libeigen3-dev)  # tools/fit-published alone
test_packages=(catch2 ccache python3 python3-torch)
check_packages=(clang-format clang-tidy git)

# need_packages NAME...: installs those that are missing, by name; silent when none is. As root or
# with sudo.
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
