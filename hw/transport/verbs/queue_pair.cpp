#include "hw/transport/verbs/queue_pair.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

// A packet that is not acknowledged is sent again after 4.096 us * 2^kAckTimeout = 0.27 s, and after kRetries times the
// peer counts as unreachable: about 2 s. Soft-RoCE takes 7, the largest number of retries, for "without end".
constexpr std::uint8_t kAckTimeout = 16, kRetries = 6;
// By the number of a piece of work it is known which kind it was, and of which slot.
constexpr std::uint64_t kReceiveWork = std::uint64_t{1} << 32U, kSendWork = std::uint64_t{2} << 32U,
                        kCreditWork = std::uint64_t{3} << 32U, kWriteWork = std::uint64_t{4} << 32U;
constexpr std::uint64_t kKindOfWork = ~std::uint64_t{0xffffffffU};

void modify(ibv_qp* queues, ibv_qp_attr& attributes, int mask, const char* state) {
  if (const int error = ibv_modify_qp(queues, &attributes, mask); error != 0)
    throw VerbsFailure(fmt::format("ibv_modify_qp ({}): {}", state, std::strerror(error)));
}

// A packet's number has 24 bits.
std::uint32_t random_packet() { return std::random_device()() & 0xffffffU; }

}  // namespace

QueuePair::QueuePair(const VerbsDevice& device, std::uint8_t rail)
    : device_(device), memory_((2 * kSlots + kCreditSlots) * kSlotBytes) {
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE;
  region_ = own_verbs_object<decltype(region_)>(
      "ibv_reg_mr", ibv_reg_mr(device.domain(), memory_.data(), memory_.size(), kAccess));
  constexpr std::uint32_t kSends = 2 * kSlots + kCreditSlots;  // a message that writes is two pieces of work
  constexpr int kCompletions = kSends + kSlots + kCreditSlots;
  completions_ = own_verbs_object<decltype(completions_)>(
      "ibv_create_cq", ibv_create_cq(device.context(), kCompletions, nullptr, device.channel(), 0));
  if (const int error = ibv_req_notify_cq(completions_.get(), 0); error != 0)
    throw verbs_failure("ibv_req_notify_cq", error);
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = completions_.get();
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap.max_send_wr = kSends;
  wanted.cap.max_recv_wr = kSlots + kCreditSlots;
  wanted.cap.max_send_sge = 1 + kPiecesOfMessage;
  wanted.cap.max_recv_sge = 1;
  queues_ = own_verbs_object<decltype(queues_)>("ibv_create_qp", ibv_create_qp(device.domain(), &wanted));
  const RdmaPort& port = device.port();
  ibv_qp_attr begin{};
  begin.qp_state = IBV_QPS_INIT;
  begin.port_num = port.number;
  begin.qp_access_flags = int{IBV_ACCESS_LOCAL_WRITE} | int{IBV_ACCESS_REMOTE_WRITE};
  modify(queues_.get(), begin, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
  for (std::uint32_t i = 0; i < kSlots + kCreditSlots; ++i) post_receive(i);
  for (std::uint32_t i = 0; i < kSlots; ++i) free_slots_.push_back(kSlots + kCreditSlots + i);
  mine_.rail = rail;
  mine_.link = port.ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
  mine_.mtu = static_cast<std::uint8_t>(port.mtu);
  mine_.lid = port.lid;
  mine_.queue = queues_->qp_num;
  mine_.packet = random_packet();
  mine_.slots = kSlots;
  mine_.slot_bytes = kSlotBytes;
  std::copy(std::begin(port.gid.raw), std::end(port.gid.raw), mine_.gid.begin());
}

void QueuePair::connect(const Endpoint& theirs) {
  if (theirs.link != mine_.link) throw VerbsFailure("one end is of InfiniBand, the other of Ethernet");
  if (theirs.slots == 0 || theirs.slot_bytes != kSlotBytes || theirs.mtu < IBV_MTU_256 ||
      theirs.mtu > IBV_MTU_4096)
    throw VerbsFailure("the other end says nothing that can be used");
  const RdmaPort& port = device_.port();
  ibv_qp_attr receives{};
  receives.qp_state = IBV_QPS_RTR;
  receives.path_mtu = static_cast<ibv_mtu>(std::min(theirs.mtu, mine_.mtu));
  receives.dest_qp_num = theirs.queue;
  receives.rq_psn = theirs.packet;
  receives.ah_attr.port_num = port.number;
  receives.ah_attr.dlid = theirs.lid;
  ibv_gid gid{};
  std::copy(theirs.gid.begin(), theirs.gid.end(), std::begin(gid.raw));
  // In a subnet of InfiniBand a LID says where the other end is; the first half of the address names the subnet.
  if (port.ethernet || gid.global.subnet_prefix != port.gid.global.subnet_prefix) {
    receives.ah_attr.is_global = 1;
    receives.ah_attr.grh.dgid = gid;
    receives.ah_attr.grh.sgid_index = port.gid_index;
    receives.ah_attr.grh.hop_limit = 64;
  }
  modify(queues_.get(), receives,
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
         "RTR");
  ibv_qp_attr sends{};
  sends.qp_state = IBV_QPS_RTS;
  sends.timeout = kAckTimeout;
  sends.retry_cnt = kRetries;
  sends.rnr_retry = 0;
  sends.sq_psn = mine_.packet;
  modify(queues_.get(), sends,
         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
             IBV_QP_MAX_QP_RD_ATOMIC,
         "RTS");
  credits_ = std::min(theirs.slots, kSlots);
  connected_ = true;
}

ibv_sge QueuePair::piece_of_slots(std::span<const std::byte> bytes) const {
  return {reinterpret_cast<std::uint64_t>(bytes.data()), static_cast<std::uint32_t>(bytes.size()),
          region_->lkey};
}

void QueuePair::post_receive(std::uint32_t number) {
  ibv_sge piece = piece_of_slots(slot(number));
  ibv_recv_wr work{};
  work.wr_id = kReceiveWork | number;
  work.sg_list = &piece;
  work.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  if (const int error = ibv_post_recv(queues_.get(), &work, &refused); error != 0)
    stop(verbs_failure("ibv_post_recv", error).what());
}

void QueuePair::post_send(ibv_send_wr& work, std::span<ibv_sge> pieces) {
  if (broken_) return;
  work.sg_list = pieces.data();
  work.num_sge = static_cast<int>(pieces.size());
  ibv_send_wr* refused = nullptr;
  if (const int error = ibv_post_send(queues_.get(), &work, &refused); error != 0)
    stop(verbs_failure("ibv_post_send", error).what());
}

void QueuePair::send(const Frame& data, const Pieces& pieces, const std::vector<std::uint32_t>& keys,
                     const std::optional<Target>& target, std::uint64_t tag) {
  MOTLEY_CHECK(can_send() && keys.size() <= kPiecesOfMessage);
  const std::uint32_t number = free_slots_.back();
  const std::span<std::byte> bytes = slot(number);
  const std::vector<std::byte> head = encode(data);
  MOTLEY_CHECK(head.size() <= kHeaderBytes);
  std::copy(head.begin(), head.end(), bytes.data());
  std::vector<ibv_sge> body;
  for (std::size_t i = 0; i < keys.size(); ++i)
    body.push_back({reinterpret_cast<std::uint64_t>(pieces[i].data()),
                    static_cast<std::uint32_t>(pieces[i].size()), keys[i]});
  if (keys.empty()) {
    MOTLEY_CHECK(bytes_in(pieces) <= kSegment);
    std::byte* const begin = bytes.data() + head.size();
    std::byte* end = begin;
    for (const auto& piece : pieces) end = std::copy(piece.begin(), piece.end(), end);
    if (end != begin) body.push_back(piece_of_slots({begin, end}));
  }
  free_slots_.pop_back();
  --credits_;
  under_way_.push_back({tag, number});
  if (target && !body.empty()) {  // what it writes is there before the message comes
    ibv_send_wr write{};
    write.wr_id = kWriteWork | number;
    write.opcode = IBV_WR_RDMA_WRITE;
    write.wr.rdma.remote_addr = target->address;
    write.wr.rdma.rkey = target->key;
    post_send(write, body);
    body.clear();
  }
  body.insert(body.begin(), piece_of_slots(bytes.first(head.size())));
  ibv_send_wr message{};
  message.wr_id = kSendWork | number;
  message.opcode = IBV_WR_SEND;
  message.send_flags = IBV_SEND_SIGNALED;
  post_send(message, body);
}

void QueuePair::give_credits() {
  if (broken_ || unreturned_ < kSlots / 2 || credits_sent_ == kCreditSlots) return;
  ++credits_sent_;
  ibv_send_wr message{};
  message.wr_id = kCreditWork;
  message.opcode = IBV_WR_SEND_WITH_IMM;
  message.send_flags = IBV_SEND_SIGNALED;
  message.imm_data = htonl(std::exchange(unreturned_, 0));
  post_send(message, {});
}

void QueuePair::take_message(const ibv_wc& completion, QueuePairEvents& events) {
  const auto number = static_cast<std::uint32_t>(completion.wr_id);
  if ((completion.wc_flags & IBV_WC_WITH_IMM) != 0) {
    credits_ += ntohl(completion.imm_data);
    return post_receive(number);
  }
  const std::span<const std::byte> bytes = slot(number).first(completion.byte_len);
  const std::size_t head =
      bytes.size() < kFrameLengthBytes ? 0 : kFrameLengthBytes + WireReader(bytes).number<std::uint16_t>();
  const auto frame = head == 0 || head > bytes.size()
                         ? std::nullopt
                         : decode(bytes.subspan(kFrameLengthBytes, head - kFrameLengthBytes));
  const bool is_data = frame && frame->kind == FrameKind::data;
  if (!is_data || bytes.size() - head != (frame->is_written ? 0 : frame->length))
    return stop("the peer sent something that is no data");
  ++came_;
  events.came(*frame, bytes.subspan(head));
  ++unreturned_;
  post_receive(number);
}

void QueuePair::take(const ibv_wc& completion, QueuePairEvents& events) {
  if (completion.status != IBV_WC_SUCCESS) {
    if (completion.status != IBV_WC_WR_FLUSH_ERR || !broken_) stop(ibv_wc_status_str(completion.status));
    return;
  }
  switch (completion.wr_id & kKindOfWork) {
    case kReceiveWork:
      return take_message(completion, events);
    case kCreditWork:
      --credits_sent_;
      return;
    case kSendWork: {
      MOTLEY_CHECK(!under_way_.empty());
      const Sent sent = under_way_.front();
      under_way_.pop_front();
      ++completed_;
      free_slots_.push_back(sent.slot);
      return events.sent(sent.tag);
    }
    default:
      return;
  }
}

void QueuePair::poll(QueuePairEvents& events) {
  std::array<ibv_wc, 16> completions{};
  for (;;) {
    const int count =
        ibv_poll_cq(completions_.get(), static_cast<int>(completions.size()), completions.data());
    if (count < 0) return stop("ibv_poll_cq failed");
    for (int i = 0; i < count; ++i) take(completions[static_cast<std::size_t>(i)], events);
    give_credits();
    if (count < static_cast<int>(completions.size())) return;
  }
}

void QueuePair::stop(const std::string& why) {
  if (broken_) return;
  broken_ = why;
  ibv_qp_attr ends{};
  ends.qp_state = IBV_QPS_ERR;
  ibv_modify_qp(queues_.get(), &ends, IBV_QP_STATE);
}

std::vector<std::uint64_t> QueuePair::take_arrived(std::uint64_t came) {
  std::vector<std::uint64_t> tags;
  for (; completed_ < came && !under_way_.empty(); ++completed_) {
    tags.push_back(under_way_.front().tag);
    under_way_.pop_front();
  }
  return tags;
}

}  // namespace motley
