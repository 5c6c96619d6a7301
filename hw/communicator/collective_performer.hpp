// Performs the steps of a collective (models/program/collective.hpp) as one member: what is simulated is what is sent.
// The steps of a round need not wait for the round before: each waits only for those that touch the same chunk, and
// large chunks go segment by segment. Whoever moves messages also reduces what has come, so that a rank's wait for one
// message never stops another. A message without bytes is sent, too: its receiver learns when the sender was ready.
//
// Order of reduction: what a member holds, op what comes; contributions to one chunk in the order of the rounds, and in
// a round in the order of the senders' places. It is a matter of the algorithm alone, so that every transport gives the
// same bits. Only hw/communicator includes this file. Read next: hw/communicator/communicator.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hw/communicator/element.hpp"
#include "hw/communicator/messenger.hpp"
#include "hw/communicator/scratch.hpp"
#include "models/program/collective.hpp"

namespace motley {

struct CollectiveOrder {
  std::vector<Rank> members;
  int place = 0;  // of this rank among them
  std::uint64_t context = 0, operation = 0;
  Call call;
  std::shared_ptr<const CollectiveSteps> steps;
  // Where each chunk lies in this member's memory, by number. A chunk that no step of it touches may be missing.
  std::vector<std::span<std::byte>> chunks;
  ElementType element = ElementType::fp32;
  ReduceOp reduce = ReduceOp::sum;
  bool keeps_zeros_back = false;
  std::vector<std::vector<std::byte>> kept;  // memory that `chunks` lie in and that ends with the operation
  Posted mine;
};

class CollectivePerformer final : public Operation, public std::enable_shared_from_this<CollectivePerformer> {
 public:
  CollectivePerformer(Messenger& messenger, CollectiveOrder order);
  // Posts what can be posted. Expects the messenger's mutex to be held.
  void start();

 private:
  // What this member and a peer exchange in one round, one way.
  struct Message {
    int round = 0;
    int peer = 0;  // a place
    bool sends = false;
    std::vector<CollectiveStep> steps;
    std::vector<std::size_t> followers;  // messages that wait for this one, segment by segment
    std::size_t waits_for = 0;           // number of messages that have it among their followers
  };
  enum class Progress : std::uint8_t { idle, posted, arrived, done };
  // A segment of a message.
  struct Item {
    std::size_t waits_for = 0;
    Progress progress = Progress::idle;
    Scratch scratch;  // what came, until it is reduced
    std::shared_ptr<Operation> transfer;
  };

  void list_messages();
  void find_order();
  void list_items();
  Item& item(std::size_t message, std::size_t segment) { return items_[message * segments_ + segment]; }
  // The bytes of the message's chunks in that segment; neighbours are joined.
  std::vector<std::span<std::byte>> runs_of(const Message& message, std::size_t segment) const;
  std::span<std::byte> segment_of(int chunk, std::size_t segment) const;
  bool lands_in_place(const Message& message, std::size_t segment) const;
  void post(std::size_t message, std::size_t segment);
  void receive_in_place(std::size_t message, std::size_t segment, std::span<std::byte> into);
  void receive_aside(std::size_t message, std::size_t segment, std::size_t bytes);
  void post_receive(std::size_t message, std::size_t segment, ReceiveOrder receive);
  void fill_window();
  void arrived(std::size_t message, std::size_t segment);
  void apply(std::size_t message, std::size_t segment);
  void end(std::size_t message, std::size_t segment);
  void go_on(std::size_t message, std::size_t segment);
  void finish();

  Messenger& messenger_;
  CollectiveOrder order_;
  std::size_t segments_ = 1;
  std::vector<Message> messages_;
  std::vector<Item> items_;
  std::size_t left_ = 0;  // items that are not done
  // Receives that need scratch memory, in an order that all members keep, so that a bounded window cannot make them
  // wait for each other.
  std::vector<std::pair<std::size_t, std::size_t>> window_;
  std::size_t next_in_window_ = 0, scratch_bytes_ = 0;
};

}  // namespace motley
