#include "transport/store.h"

#include "common/bytes.h"
#include "common/clock.h"
#include "common/log.h"

namespace farandole {
namespace {

constexpr size_t kExchangeLimitBytes = 16u << 20;
constexpr const char* kPurpose = "store";

Status Lost(int rank, const Status& cause) {
  return {cause.code(), "rank " + std::to_string(rank) + " was lost while the job started: " + cause.message()};
}

}  // namespace

Status Store::Meet(const std::string& endpoint, const Key& key, int rank, int size, Deadline deadline) {
  rank_ = rank;
  size_ = size;
  connections_.resize(static_cast<size_t>(size));
  return rank == 0 ? Serve(endpoint, key, deadline) : Join(endpoint, key, deadline);
}

Status Store::Serve(const std::string& endpoint, const Key& key, Deadline deadline) {
  Descriptor listener;
  FRD_RETURN_IF_ERROR(Listen(endpoint, &listener));
  for (int missing = size_ - 1; missing > 0;) {
    Descriptor connection;
    const Status accepted = Accept(listener.get(), deadline, &connection);
    if (accepted.code() == Code::kDeadline) {
      return {Code::kDeadline, "rank 0 waited for " + Missing() + " of " + std::to_string(size_) + " at " + endpoint +
                                   ": they did not come before the start timeout (FARANDOLE_START_TIMEOUT)"};
    }
    if (accepted.code() == Code::kMismatch) continue;
    FRD_RETURN_IF_ERROR(accepted);
    const Status admitted = Admit(std::move(connection), key, deadline);
    if (admitted.ok()) {
      --missing;
    } else {
      Log(LogLevel::kWarning, "turned a connection away at " + endpoint + ": " + admitted.message());
    }
  }
  return Status::Ok();
}

Status Store::Admit(Descriptor connection, const Key& key, Deadline deadline) {
  Hello theirs;
  FRD_RETURN_IF_ERROR(HandshakeServer(connection.get(), key, Hello{kPurpose, 0, 0}, &theirs, deadline));
  if (theirs.purpose != kPurpose || theirs.rank == 0 || theirs.rank >= static_cast<uint32_t>(size_)) {
    return Invalid("rank " + std::to_string(theirs.rank) + " does not belong to a job of " + std::to_string(size_));
  }
  if (connections_[theirs.rank].valid()) {
    return Invalid("rank " + std::to_string(theirs.rank) +
                   " is there already; are two processes started with one rank?");
  }
  connections_[theirs.rank] = std::move(connection);
  return Status::Ok();
}

Status Store::Join(const std::string& endpoint, const Key& key, Deadline deadline) {
  for (;;) {
    FRD_RETURN_IF_ERROR(ConnectRetry(endpoint, deadline, &connections_[0]));
    const Hello mine{kPurpose, static_cast<uint32_t>(rank_), 0};
    Hello theirs;
    const Status met = HandshakeClient(connections_[0].get(), key, mine, &theirs, deadline);
    // A listener of rank 0's last epoch may just be closing; the next one is about to open.
    if (met.code() != Code::kPeerLost || Now() >= deadline) return met;
  }
}

Status Store::Exchange(const std::string& mine, std::vector<std::string>* all, Deadline deadline) {
  all->assign(static_cast<size_t>(size_), {});
  (*all)[static_cast<size_t>(rank_)] = mine;
  if (size_ == 1) return Status::Ok();
  if (rank_ == 0) return Collect(all, deadline);

  const int hub = connections_[0].get();
  if (const Status sent = SendFrame(hub, mine.data(), mine.size(), kExchangeLimitBytes, deadline); !sent.ok()) {
    return Lost(0, sent);
  }
  std::string frame;
  if (const Status got = RecvFrame(hub, kExchangeLimitBytes, &frame, deadline); !got.ok()) return Lost(0, got);
  ByteReader reader(reinterpret_cast<const uint8_t*>(frame.data()), frame.size());
  for (std::string& item : *all) item = reader.GetString();
  return reader.AtEnd() ? Status::Ok() : Internal("rank 0 sent an exchange that cannot be read");
}

Status Store::Collect(std::vector<std::string>* all, Deadline deadline) {
  for (int r = 1; r < size_; ++r) {
    const auto at = static_cast<size_t>(r);
    const Status got = RecvFrame(connections_[at].get(), kExchangeLimitBytes, &(*all)[at], deadline);
    if (!got.ok()) return Lost(r, got);
  }
  ByteWriter writer;
  for (const std::string& item : *all) writer.PutString(item);
  const Bytes frame = writer.Take();
  for (int r = 1; r < size_; ++r) {
    const int peer = connections_[static_cast<size_t>(r)].get();
    const Status sent = SendFrame(peer, frame.data(), frame.size(), kExchangeLimitBytes, deadline);
    if (!sent.ok()) return Lost(r, sent);
  }
  return Status::Ok();
}

std::string Store::Missing() const {
  std::string text;
  for (int r = 1; r < size_; ++r) {
    if (!connections_[static_cast<size_t>(r)].valid()) text += (text.empty() ? "rank " : ", ") + std::to_string(r);
  }
  return text;
}

}  // namespace farandole
