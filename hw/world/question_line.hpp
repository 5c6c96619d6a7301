// What carries questions to the process of a real rank, and answers back: bytes in their order. Read next:
// hw/world/rank_answers.hpp.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "hw/launch/connections.hpp"
#include "hw/transport/tcp/socket.hpp"

namespace motley {

class QuestionLine {
 public:
  virtual ~QuestionLine() = default;
  // Both move all bytes. They throw SocketFailure: the other end is gone, or nothing moved for too long.
  virtual void write_all(std::span<const std::byte> bytes, double timeout_s) = 0;
  virtual void read_all(std::span<std::byte> bytes, double timeout_s) = 0;
  // Waits for at most so many seconds. Returns whether read_all() would not wait: bytes have come, or the other end is
  // gone.
  virtual bool wait(double seconds) = 0;
  // Why nothing more will come from the other end; nothing: it is there. Any thread may ask.
  virtual std::optional<std::string> ending() const = 0;
};

// Between a process and its child. The kernel tells when either of them has ended.
class ChildLine : public QuestionLine {
 public:
  explicit ChildLine(Socket socket) : socket_(std::move(socket)) {}
  void write_all(std::span<const std::byte> bytes, double timeout_s) override {
    socket_.write_all(bytes, timeout_s);
  }
  void read_all(std::span<std::byte> bytes, double timeout_s) override { socket_.read_all(bytes, timeout_s); }
  bool wait(double seconds) override;
  std::optional<std::string> ending() const override;

 private:
  const Socket socket_;
};

// Between processes that a launcher has started, perhaps on other hosts: heartbeats tell that the other one runs.
class LaunchedLine : public QuestionLine {
 public:
  // `connections` has heartbeats and outlives the line; `other` is a rank of it.
  LaunchedLine(Connections& connections, Rank other) : connections_(connections), other_(other) {}
  void write_all(std::span<const std::byte> bytes, double timeout_s) override;
  void read_all(std::span<std::byte> bytes, double timeout_s) override;
  bool wait(double seconds) override;
  std::optional<std::string> ending() const override { return connections_.ending(other_); }

 private:
  Connections& connections_;
  const Rank other_;
  std::string message_;   // that came last
  std::size_t read_ = 0;  // bytes of it
};

}  // namespace motley
