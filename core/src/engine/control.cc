#include "engine/control.h"

#include <algorithm>
#include <iterator>

namespace farandole {
namespace {

constexpr size_t kMaxUnsentBytes = 64 << 20;  // of messages to a rank that does not read them
constexpr int64_t kPatienceMs = 100;          // to wait for the other ends of connections that close

}  // namespace

ControlPlane::ControlPlane(World* world) : world_(world) {
  if (world->rank == kCoordinatorRank) coordinator_.emplace(world->layout);
}

Status ControlPlane::Open() {
  FRD_RETURN_IF_ERROR(poller_.Open());
  FRD_RETURN_IF_ERROR(poller_.Watch(world_->node->event(), MakeTag(TagKind::kDoorbell, 0)));
  for (int r = 0; r < world_->size; ++r) {
    const auto at = static_cast<size_t>(r);
    if (stream(r).open()) FRD_RETURN_IF_ERROR(poller_.Watch(stream(r).descriptor(), MakeTag(TagKind::kControl, r)));
    if (world_->pidfds[at].valid())
      FRD_RETURN_IF_ERROR(poller_.Watch(world_->pidfds[at].get(), MakeTag(TagKind::kDeath, r)));
  }
  for (int r = 0; r < world_->size; ++r) Receive(r);  // messages that came while the job started
  return world_->transport->Watch(&poller_, MakeTag(TagKind::kData, 0));
}

void ControlPlane::Sleep(int timeout_ms) const { poller_.Sleep(timeout_ms); }

// Each look tries again to send what a connection did not take, whatever poll says: that costs a system call only where
// something is queued.
bool ControlPlane::Look(int timeout_ms) {
  tags_.clear();
  poller_.Wait(timeout_ms, &tags_);
  bool found = false;
  for (uint64_t tag : tags_) {
    const int rank = RankOf(tag);
    if (KindOf(tag) == TagKind::kDoorbell) DrainEvent(world_->node->event());
    if (KindOf(tag) == TagKind::kControl) found |= Receive(rank);
    if (KindOf(tag) == TagKind::kData) {
      world_->transport->OnReady(static_cast<uint32_t>(rank));
      found = true;
    }
    if (KindOf(tag) == TagKind::kDeath) {
      poller_.Forget(world_->pidfds[static_cast<size_t>(rank)].get());
      events_.gone.push_back(rank);
    }
  }
  for (int r = 0; r < world_->size; ++r) Flush(r);
  return found;
}

// Takes messages before it notes the end of the connection, since a rank that leaves says so in a message.
bool ControlPlane::Receive(int rank) {
  if (!stream(rank).open()) return false;
  std::vector<Bytes> messages;
  const Status status = stream(rank).Receive(&messages);
  const bool any = !messages.empty();
  if (coordinator_) {
    Coordinate(rank, messages);
  } else {
    std::move(messages.begin(), messages.end(), std::back_inserter(events_.messages));
  }
  if (!status.ok() && stream(rank).open()) {
    poller_.Forget(stream(rank).descriptor());
    stream(rank) = MessageStream();
    events_.closed.push_back(rank);
  }
  return any;
}

// Answers once all messages at hand are handled. Only a stranger or a faulty rank sends a message that the coordinator
// cannot read, so that ends the epoch.
void ControlPlane::Coordinate(int from, const std::vector<Bytes>& messages) {
  std::vector<Outgoing> answers;
  for (const Bytes& message : messages) {
    const Status status = coordinator_->OnMessage(from, message, &answers);
    if (!status.ok()) events_.ends.push_back({status, from});
  }
  coordinator_->Flush(&answers);
  for (const Outgoing& each : answers) Send(each.rank, each.message);
}

// On rank 0 the coordinator reads the messages at once.
void ControlPlane::ToCoordinator(const std::vector<Bytes>& messages) {
  if (coordinator_) return Coordinate(world_->rank, messages);
  for (const Bytes& message : messages) Send(kCoordinatorRank, message);
}

// Keeps a message to this rank itself as an event: a call of the negotiation here would come in the middle of a look. A
// rank that never reads would let its messages fill this rank's memory, so there is a limit.
void ControlPlane::Send(int rank, const Bytes& message) {
  if (rank == world_->rank) return events_.messages.push_back(message);
  MessageStream& to = stream(rank);
  if (!to.open()) return;
  to.Queue(message);
  Flush(rank);
  if (!to.open() || to.unsent_bytes() <= kMaxUnsentBytes) return;
  const std::string unread = std::to_string(to.unsent_bytes() >> 10) + " KiB of messages about operations";
  events_.ends.push_back(
      {Status(Code::kDeadline, world_->NameOf(rank), " has not read ", unread, " from rank ", world_->rank,
              ", more than may be kept for it; it may have been stopped, by SIGSTOP or a debugger"),
       -1});
}

// Reading finds the end of a connection, behind what the other rank sent before. So a send error that only says that
// the connection has ended is ignored here.
void ControlPlane::Flush(int rank) {
  MessageStream& to = stream(rank);
  if (!to.open()) return;
  const Status flushed = to.Flush();
  if (flushed.ok()) return;
  to.DropQueue();
  if (flushed.code() != Code::kPeerLost) events_.ends.push_back({flushed, world_->rank});
}

void ControlPlane::Close() { CloseAll(&world_->control, kPatienceMs); }

}  // namespace farandole
