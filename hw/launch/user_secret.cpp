#include "hw/launch/user_secret.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "hw/transport/tcp/socket.hpp"
#include "hw/transport/token.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

[[noreturn]] void refuse_secret(const std::string& folder, const std::string& why,
                                RefusalSite site = RefusalSite::here()) {
  throw Refusal(Exit::usage, "no-job-token", {},
                fmt::format("this user's secret cannot be kept in {}: {}", folder, why),
                "export MOTLEY_JOB_TOKEN=$(openssl rand -hex 16) where the ranks are started", site);
}

// Refuses with what the system says.
[[noreturn]] void refuse_error(const std::string& folder, int error) {
  refuse_secret(folder, std::strerror(error));
}

// Writes a new secret beside the file, then links it there, so that nobody reads a part; another process may be first.
void draw(const std::string& folder, const std::string& path) {
  const std::string secret = random_secret();
  const std::string beside = fmt::format("{}.{}", path, random_secret());
  const Socket file(
      open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file.open()) refuse_error(folder, errno);
  const bool written =
      write(file.descriptor(), secret.data(), secret.size()) == static_cast<ssize_t>(secret.size());
  const int error = written && link(beside.c_str(), path.c_str()) == 0 ? 0 : errno;
  unlink(beside.c_str());
  if (error != 0 && error != EEXIST) refuse_error(folder, error);
}

}  // namespace

std::string secret_of_user(const std::string& folder) {
  constexpr std::size_t kDigits = 32;
  const std::string path = fmt::format("{}/motley-secret-{}", folder, geteuid());
  const auto open_it = [&] { return Socket(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC)); };
  Socket file = open_it();
  if (!file.open() && errno == ENOENT) {
    draw(folder, path);
    file = open_it();
  }
  if (!file.open()) refuse_error(folder, errno);
  struct stat facts {};
  if (fstat(file.descriptor(), &facts) != 0) refuse_error(folder, errno);
  if (!S_ISREG(facts.st_mode) || facts.st_uid != geteuid() || (facts.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    refuse_secret(folder, path + " is not a file of this user alone");
  std::array<char, kDigits> digits{};
  if (read(file.descriptor(), digits.data(), digits.size()) != static_cast<ssize_t>(kDigits))
    refuse_secret(folder, path + " holds no secret");
  return {digits.data(), digits.size()};
}

}  // namespace motley
