#include "world/meeting.h"

#include <algorithm>

#include "common/failpoint.h"
#include "common/log.h"
#include "common/sha256.h"
#include "transport/poll.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

constexpr const char* kPurpose = "arena";
constexpr size_t kDescriptorLimit = 16384;
constexpr size_t kPayloadLimitBytes = 256;
// Descriptors are passed by ranks that hold the key, in one piece.
constexpr milliseconds kPassTimeout{2000};
constexpr milliseconds kComeAgain{20};

}  // namespace

std::string Meeting::Open() {
  uint8_t name[16];
  if (!RandomBytes(name, sizeof(name)).ok()) return "";
  std::string endpoint = "unix:farandole-";
  for (uint8_t byte : name) {
    static constexpr char kHex[] = "0123456789abcdef";
    endpoint += {kHex[byte >> 4], kHex[byte & 15]};
  }
  Descriptor listener;
  if (!Listen(endpoint, &listener).ok()) return "";
  lobby_.Open(std::move(listener), spec_.key, {kPurpose, static_cast<uint32_t>(spec_.rank), 0});
  return endpoint;
}

// The round stands where the epoch does: meetings belong to one start.
Hello Meeting::MyHello() const { return {kPurpose, static_cast<uint32_t>(spec_.rank), static_cast<uint64_t>(round_)}; }

void Meeting::Begin(TimePoint now, Applicant* applicant) {
  ranks_ = applicant->group();
  round_ = applicant->round();
  member_ = static_cast<size_t>(std::find(ranks_.begin(), ranks_.end(), spec_.rank) - ranks_.begin());
  arena_ = Arena();
  guests_.clear();
  call_.reset();
  leader_.Reset();
  events_.clear();
  pidfds_.clear();
  events_.resize(ranks_.size());
  pidfds_.resize(ranks_.size());
  Status status = MakeEvent(&events_[member_]);
  if (status.ok() && ranks_.size() > 1) status = OpenOwnPidfd(&pidfds_[member_]);
  if (status.ok() && member_ == 0) status = Arena::Create(Group::ArenaBytes(spec_.plan, ranks_.size()), &arena_);
  if (!status.ok()) return applicant->OnNotMet(spec_.rank, status.message());
  if (ranks_.size() == 1) return applicant->OnMet();
  if (member_ == 0) return;
  const std::string& endpoint = applicant->cards()[static_cast<size_t>(ranks_[0])].meeting;
  call_.emplace(endpoint, spec_.key, MyHello(), now);
}

void Meeting::Watch(PollSet* set) const {
  lobby_.Watch(set);
  for (const auto& [rank, connection] : guests_) set->Add(connection, POLLIN);
  if (call_) call_->Watch(set);
  set->Add(leader_, POLLIN);
}

void Meeting::Step(const PollSet& set, TimePoint now, Applicant* applicant) {
  std::vector<Guest> arrived;
  if (const Status status = lobby_.Step(set, now, &arrived); !status.ok()) {
    lobby_.Close();
    applicant->OnNotMet(spec_.rank, status.message());
  }
  for (Guest& guest : arrived) LetIn(std::move(guest), applicant);
  std::vector<int> ready;
  for (const auto& [rank, connection] : guests_) {
    if (set.ready(connection)) ready.push_back(rank);
  }
  for (int rank : ready) TakeHandles(rank, applicant);
  StepMember(set, now, applicant);
}

void Meeting::LetIn(Guest guest, Applicant* applicant) {
  const int rank = static_cast<int>(guest.hello.rank);
  const bool welcome =
      guest.hello.purpose == kPurpose && applicant->MayEnter(rank, static_cast<int>(guest.hello.epoch));
  // Who comes too early comes again; see above.
  if (welcome) guests_[rank] = std::move(guest.connection);
}

void Meeting::TakeHandles(int rank, Applicant* applicant) {
  const auto at = static_cast<size_t>(std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
  const Descriptor& connection = guests_[rank];
  if (!applicant->MayEnter(rank, round_)) {
    guests_.erase(rank);  // it has hung up, or says more than it has to say
    applicant->OnGone(rank);
    return;
  }
  std::vector<Descriptor> handles;
  std::string payload;
  const Status got = RecvDescriptors(connection.get(), 2, kPayloadLimitBytes, &handles, &payload, After(kPassTimeout));
  if (!got.ok() || handles.size() != 2) {
    guests_.erase(rank);
    return;
  }
  events_[at] = std::move(handles[0]);
  pidfds_[at] = std::move(handles[1]);
  applicant->OnEntered(rank);
}

void Meeting::HandOut(Applicant* applicant) {
  const Status failed = FRD_FAILPOINT_STATUS("meeting.hand_out");
  if (!failed.ok()) return applicant->OnNotMet(spec_.rank, failed.message());
  std::vector<int> all{arena_.descriptor()};
  for (const Descriptor& event : events_) all.push_back(event.get());
  for (const Descriptor& pidfd : pidfds_) all.push_back(pidfd.get());
  for (size_t m = 1; m < ranks_.size(); ++m) {
    const auto guest = guests_.find(ranks_[m]);
    const Status sent = guest == guests_.end() ? Status(Code::kPeerLost, "it has hung up")
                                               : SendDescriptors(guest->second.get(), all, "", After(kPassTimeout));
    if (!sent.ok()) return applicant->OnNotMet(ranks_[m], sent.message());
  }
  // The connections stay until the start is over: their end would look like a refusal to who has not read yet.
  applicant->OnMet();
}

void Meeting::StepMember(const PollSet& set, TimePoint now, Applicant* applicant) {
  Status status;
  if (call_) {
    status = call_->Step(now);
    if (status.ok() && call_->done()) status = Enter();
  } else if (leader_.valid() && set.ready(leader_)) {
    status = TakeShared();
    if (status.ok()) {
      leader_.Reset();
      applicant->OnMet();
    }
  }
  if (status.code() == Code::kPeerLost) {
    leader_.Reset();
    const std::string& endpoint = applicant->cards()[static_cast<size_t>(ranks_[0])].meeting;
    call_.emplace(endpoint, spec_.key, MyHello(), now + kComeAgain);
  } else if (!status.ok()) {
    leader_.Reset();
    call_.reset();
    applicant->OnNotMet(spec_.rank, status.message());
  }
}

Status Meeting::Enter() {
  FRD_RETURN_IF_ERROR(FRD_FAILPOINT_STATUS("meeting.enter"));
  leader_ = call_->Take();
  call_.reset();
  const std::vector<int> mine{events_[member_].get(), pidfds_[member_].get()};
  return SendDescriptors(leader_.get(), mine, "", After(kPassTimeout));
}

Status Meeting::TakeShared() {
  std::vector<Descriptor> all;
  std::string payload;
  FRD_RETURN_IF_ERROR(
      RecvDescriptors(leader_.get(), kDescriptorLimit, kPayloadLimitBytes, &all, &payload, After(kPassTimeout)));
  if (all.size() != 1 + 2 * ranks_.size())
    return Internal("rank " + std::to_string(ranks_[0]) + " handed out too few descriptors");
  for (size_t m = 0; m < ranks_.size(); ++m) {
    events_[m] = std::move(all[1 + m]);
    pidfds_[m] = std::move(all[1 + ranks_.size() + m]);
  }
  return Arena::Attach(std::move(all[0]), Group::ArenaBytes(spec_.plan, ranks_.size()), &arena_);
}

void Meeting::TellGroup(const Status& why, int culprit) {
  if (arena_.size_bytes() == 0 || ranks_.size() == 1) return;
  Group group(std::move(arena_), std::move(events_), spec_.plan, static_cast<int>(member_));
  group.abort_word().Set(why.code(), culprit, why.message());
}

void Meeting::MoveInto(World* world) {
  for (size_t m = 0; m < ranks_.size(); ++m) {
    if (m != member_) world->pidfds[static_cast<size_t>(ranks_[m])] = std::move(pidfds_[m]);
  }
  arena_.CloseDescriptor();
  world->group.emplace(std::move(arena_), std::move(events_), spec_.plan, static_cast<int>(member_));
}

}  // namespace farandole
