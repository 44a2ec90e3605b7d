// ProgressLoop: control messages, in and out.
#include "engine/progress_loop.h"
#include "engine/tags.h"

namespace farandole {
namespace {

constexpr size_t kMostUnsentBytes = 64 << 20;  // of messages to a rank that does not read them

}  // namespace

bool ProgressLoop::ReadDescriptors() {
  tags_.clear();
  poller_.Wait(0, &tags_);
  bool moved = false;
  std::vector<int> dead;
  for (uint64_t tag : tags_) {
    if (KindOf(tag) == TagKind::kBell) DrainEvent(world_->group->event());
    if (KindOf(tag) == TagKind::kControl) moved |= ReadControl(RankOf(tag));
    if (KindOf(tag) == TagKind::kPut) {
      eager_.OnReadable(RankOf(tag));
      moved = true;  // the next pass reads it
    }
    if (KindOf(tag) == TagKind::kDeath) dead.push_back(RankOf(tag));
  }
  for (int r = 0; r < world_->size; ++r) FlushControl(r);
  // Last words first: a rank that left in good order said so before its process ended.
  OnDeaths(dead);
  return moved;
}

bool ProgressLoop::ReadControl(int rank) {
  std::vector<Bytes> messages;
  MessageStream& stream = world_->control[static_cast<size_t>(rank)];
  if (!stream.open()) return false;
  const Status status = stream.Receive(&messages);
  for (const Bytes& message : messages) Dispatch(rank, message);
  FlushCoordinator();
  if (!status.ok()) OnClosed(rank);
  return !messages.empty();
}

// Rank 0 is the coordinator, so what comes to it is for the coordinator and what comes from it is for the negotiation.
void ProgressLoop::Dispatch(int from, const Bytes& message) {
  const Status status = coordinator_ ? Coordinate(from, message) : Obey(message);
  if (!status.ok()) Abort({status, from});
}

// Rank 0 alone: what the coordinator makes of a message. An error means that the sender is none of us.
Status ProgressLoop::Coordinate(int from, const Bytes& message) {
  std::vector<Outgoing> out;
  Status status = coordinator_->OnMessage(from, message, &out);
  Deliver(out);
  return status;
}

// What the coordinator has kept until all messages at hand were in.
void ProgressLoop::FlushCoordinator() {
  if (!coordinator_) return;
  std::vector<Outgoing> out;
  coordinator_->Flush(&out);
  Deliver(out);
}

// What the coordinator says to this rank.
Status ProgressLoop::Obey(const Bytes& message) {
  std::vector<Negotiation::Event> events;
  Status status;
  bool ring = false;
  {
    std::lock_guard<std::mutex> lock(table_->mutex);
    status = table_->negotiation.OnMessage(message, &events);
    ring = table_->negotiation.TakeRing();
  }
  if (ring) world_->group->RingOthers();
  for (const Negotiation::Event& event : events) Handle(event);
  return status;
}

bool ProgressLoop::SendOutgoing() {
  if (!table_->has_outgoing.exchange(false)) return false;
  std::vector<Bytes> messages;
  {
    std::lock_guard<std::mutex> lock(table_->mutex);
    messages = table_->negotiation.TakeOutgoing();
  }
  table_->messages_sent.fetch_add(messages.size());
  for (const Bytes& message : messages) {
    if (coordinator_) {
      Dispatch(world_->rank, message);
    } else {
      Send(kCoordinatorRank, message);
    }
  }
  FlushCoordinator();
  return !messages.empty();
}

void ProgressLoop::Deliver(const std::vector<Outgoing>& messages) {
  for (const Outgoing& each : messages) {
    if (each.rank != world_->rank) {
      Send(each.rank, each.message);
      continue;
    }
    const Status status = Obey(each.message);
    if (!status.ok()) Abort({status, world_->rank});
  }
}

void ProgressLoop::Send(int rank, const Bytes& message) {
  MessageStream& stream = world_->control[static_cast<size_t>(rank)];
  if (!stream.open()) return;
  stream.Queue(message);
  FlushControl(rank);
  if (!stream.open() || stream.unsent_bytes() <= kMostUnsentBytes) return;
  Abort({{Code::kDeadline, world_->NameOf(rank) + " has not read " + std::to_string(stream.unsent_bytes() >> 10) +
                               " KiB of messages about operations from rank " + std::to_string(world_->rank) +
                               ", more than may be kept for it; was it stopped, by SIGSTOP or a debugger?"},
         -1});
}

// That the other end has closed is seen by reading, behind what it said before: that it leaves, for one thing.
void ProgressLoop::FlushControl(int rank) {
  MessageStream& stream = world_->control[static_cast<size_t>(rank)];
  if (!stream.open()) return;
  const Status flushed = stream.Flush();
  if (flushed.ok()) return;
  stream.StopSending();
  if (flushed.code() != Code::kPeerLost) Abort({flushed, world_->rank});
}

}  // namespace farandole
