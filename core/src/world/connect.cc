#include "world/connect.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "common/log.h"
#include "transport/tcp_link.h"

namespace farandole {
namespace {

constexpr size_t kDescriptorLimit = 4096;
constexpr size_t kPayloadLimitBytes = 256;

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

// Readable when this process has died. A pidfd names the process itself, never a successor with the same number.
Status OpenOwnPidfd(Descriptor* pidfd) {
  *pidfd = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  return pidfd->valid() ? Status::Ok() : SystemError("pidfd_open (Linux 5.3 or newer is needed to share memory)");
}

Hello HelloFor(const WorldSpec& spec, const char* purpose) { return {purpose, static_cast<uint32_t>(spec.rank), 0}; }

// What a member hands to its leader, and what the leader hands to all: one event and one pidfd per member, in member
// order.
struct Handles {
  std::vector<Descriptor> events;
  std::vector<Descriptor> pidfds;
};

Status AdmitMember(const WorldSpec& spec, Descriptor connection, const std::vector<int>& ranks, Deadline deadline,
                   Handles* handles, std::vector<Descriptor>* connections) {
  Hello theirs;
  FRD_RETURN_IF_ERROR(HandshakeServer(connection.get(), spec.key, HelloFor(spec, "arena"), &theirs, deadline));
  if (theirs.purpose != "arena") return Internal("somebody came for another purpose: " + theirs.purpose);
  for (size_t m = 1; m < ranks.size(); ++m) {
    if (static_cast<uint32_t>(ranks[m]) != theirs.rank || (*connections)[m].valid()) continue;
    std::vector<Descriptor> received;
    std::string payload;
    FRD_RETURN_IF_ERROR(RecvDescriptors(connection.get(), 2, kPayloadLimitBytes, &received, &payload, deadline));
    if (received.size() != 2) return Internal("rank " + std::to_string(theirs.rank) + " sent no event and pidfd");
    handles->events[m] = std::move(received[0]);
    handles->pidfds[m] = std::move(received[1]);
    (*connections)[m] = std::move(connection);
    return Status::Ok();
  }
  return Internal("rank " + std::to_string(theirs.rank) + " came to the wrong meeting");
}

Status Lead(const WorldSpec& spec, int listener, const std::vector<int>& ranks, Deadline deadline, Handles* handles,
            Arena* arena) {
  FRD_RETURN_IF_ERROR(Arena::Create(Group::ArenaBytes(spec.plan, ranks.size()), arena));
  std::vector<Descriptor> connections(ranks.size());
  for (size_t missing = ranks.size() - 1; missing > 0;) {
    Descriptor connection;
    const Status accepted = Accept(listener, deadline, &connection);
    if (accepted.code() == Code::kMismatch) continue;
    FRD_RETURN_IF_ERROR(accepted);
    const Status admitted = AdmitMember(spec, std::move(connection), ranks, deadline, handles, &connections);
    if (admitted.ok()) {
      --missing;
    } else {
      Log(LogLevel::kWarning, "turned a connection away while sharing memory: " + admitted.message());
    }
  }
  std::vector<int> all{arena->descriptor()};
  for (const Descriptor& event : handles->events) all.push_back(event.get());
  for (const Descriptor& pidfd : handles->pidfds) all.push_back(pidfd.get());
  for (size_t m = 1; m < ranks.size(); ++m)
    FRD_RETURN_IF_ERROR(SendDescriptors(connections[m].get(), all, "", deadline));
  return Status::Ok();
}

Status Follow(const WorldSpec& spec, const std::string& endpoint, const std::vector<int>& ranks, Deadline deadline,
              Handles* handles, Arena* arena, size_t member) {
  Descriptor connection;
  FRD_RETURN_IF_ERROR(ConnectRetry(endpoint, deadline, &connection));
  Hello theirs;
  FRD_RETURN_IF_ERROR(HandshakeClient(connection.get(), spec.key, HelloFor(spec, "arena"), &theirs, deadline));
  const std::vector<int> mine{handles->events[member].get(), handles->pidfds[member].get()};
  FRD_RETURN_IF_ERROR(SendDescriptors(connection.get(), mine, "", deadline));

  std::vector<Descriptor> all;
  std::string payload;
  FRD_RETURN_IF_ERROR(
      RecvDescriptors(connection.get(), kDescriptorLimit, kPayloadLimitBytes, &all, &payload, deadline));
  if (all.size() != 1 + 2 * ranks.size())
    return Internal("rank " + std::to_string(ranks[0]) + " handed out too few descriptors");
  for (size_t m = 0; m < ranks.size(); ++m) {
    handles->events[m] = std::move(all[1 + m]);
    handles->pidfds[m] = std::move(all[1 + ranks.size() + m]);
  }
  return Arena::Attach(std::move(all[0]), Group::ArenaBytes(spec.plan, ranks.size()), arena);
}

void KeepLink(World* world, uint32_t rank, Descriptor connection) {
  world->links[rank] = std::make_unique<TcpLink>(std::move(connection), world->NameOf(static_cast<int>(rank)));
}

}  // namespace

Status MeetGroup(const WorldSpec& spec, int listener, Deadline deadline, World* world) {
  const auto& ranks = world->layout.groups[static_cast<size_t>(world->my_group())];
  const auto member = static_cast<size_t>(world->layout.member_of[static_cast<size_t>(spec.rank)]);
  Handles handles{std::vector<Descriptor>(ranks.size()), std::vector<Descriptor>(ranks.size())};
  Arena arena;
  FRD_RETURN_IF_ERROR(MakeEvent(&handles.events[member]));
  if (ranks.size() > 1) FRD_RETURN_IF_ERROR(OpenOwnPidfd(&handles.pidfds[member]));
  if (member == 0) {
    FRD_RETURN_IF_ERROR(Lead(spec, listener, ranks, deadline, &handles, &arena));
  } else {
    const std::string& endpoint = world->cards[static_cast<size_t>(ranks[0])].meeting;
    FRD_RETURN_IF_ERROR(Follow(spec, endpoint, ranks, deadline, &handles, &arena, member));
  }
  for (size_t m = 0; m < ranks.size(); ++m) {
    if (m != member) world->pidfds[static_cast<size_t>(ranks[m])] = std::move(handles.pidfds[m]);
  }
  arena.CloseDescriptor();
  world->group.emplace(std::move(arena), std::move(handles.events), spec.plan, static_cast<int>(member));
  return Status::Ok();
}

Status ConnectLinks(const WorldSpec& spec, int listener, const std::vector<std::string>& endpoints, Deadline deadline,
                    World* world) {
  int expected = 0;
  for (int peer : Counterparts(world->layout, spec.rank)) {
    if (peer > spec.rank) {
      ++expected;
      continue;
    }
    Descriptor connection;
    Hello theirs;
    FRD_RETURN_IF_ERROR(ConnectRetry(endpoints[static_cast<size_t>(peer)], deadline, &connection));
    FRD_RETURN_IF_ERROR(HandshakeClient(connection.get(), spec.key, HelloFor(spec, "data"), &theirs, deadline));
    KeepLink(world, static_cast<uint32_t>(peer), std::move(connection));
  }
  while (expected > 0) {
    Descriptor connection;
    Hello theirs;
    FRD_RETURN_IF_ERROR(Accept(listener, deadline, &connection));
    const Status met = HandshakeServer(connection.get(), spec.key, HelloFor(spec, "data"), &theirs, deadline);
    const bool welcome = met.ok() && theirs.purpose == "data" && theirs.rank < static_cast<uint32_t>(spec.size) &&
                         !world->links[theirs.rank];
    if (!welcome) {
      const std::string why = met.ok() ? "rank " + std::to_string(theirs.rank) + " is not expected" : met.message();
      Log(LogLevel::kWarning, "turned a data connection away: " + why);
      continue;
    }
    KeepLink(world, theirs.rank, std::move(connection));
    --expected;
  }
  return Status::Ok();
}

}  // namespace farandole
