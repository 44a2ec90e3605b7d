#include "world/bootstrap.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "common/log.h"
#include "common/sha256.h"
#include "transport/store.h"
#include "world/connect.h"

namespace farandole {
namespace {

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

// Ranks with equal answers see the same kernel, the same abstract socket names and the same user.
std::string MachineIdentity() {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  struct stat network{};
  stat("/proc/self/ns/net", &network);
  return boot_id + ":" + std::to_string(network.st_ino) + ":" + std::to_string(geteuid());
}

Status OpenMeeting(Descriptor* listener, std::string* endpoint) {
  uint8_t name[16];
  FRD_RETURN_IF_ERROR(RandomBytes(name, sizeof(name)));
  *endpoint = "unix:farandole-";
  for (uint8_t byte : name) {
    static constexpr char kHex[] = "0123456789abcdef";
    *endpoint += {kHex[byte >> 4], kHex[byte & 15]};
  }
  return Listen(*endpoint, listener);
}

Status ExchangeCards(const WorldSpec& spec, const std::string& meeting, Store* store, Deadline deadline, World* world) {
  const Card mine{HostName(), MachineIdentity(), getpid(), spec.arenas && !meeting.empty(), meeting};
  std::vector<std::string> texts;
  FRD_RETURN_IF_ERROR(store->Exchange(mine.Encode(), &texts, deadline));
  world->cards.resize(texts.size());
  for (size_t r = 0; r < texts.size(); ++r) FRD_RETURN_IF_ERROR(Card::Decode(texts[r], &world->cards[r]));
  return Status::Ok();
}

// Meets the members of this rank's group, and tells everyone how it went. A group that could not meet falls apart into
// groups of one on every rank alike.
Status FormGroups(const WorldSpec& spec, int meeting_listener, Store* store, Deadline deadline, World* world) {
  std::vector<bool> apart(static_cast<size_t>(spec.size), false);
  world->layout = MakeLayout(world->cards, apart);
  // A leader that fails must not cost its members the whole start timeout.
  const Deadline meeting_deadline = std::min(deadline, After(std::chrono::seconds(10)));
  const Status met = MeetGroup(spec, meeting_listener, meeting_deadline, world);
  std::vector<std::string> outcomes;
  FRD_RETURN_IF_ERROR(store->Exchange(met.message(), &outcomes, deadline));
  bool all_met = true;
  for (size_t r = 0; r < outcomes.size(); ++r) {
    if (outcomes[r].empty()) continue;
    all_met = false;
    for (int rank : world->layout.groups[static_cast<size_t>(world->layout.group_of[r])])
      apart[static_cast<size_t>(rank)] = true;
    if (world->rank == 0)
      Log(LogLevel::kWarning, world->NameOf(static_cast<int>(r)) + " cannot share memory, tcp is used: " + outcomes[r]);
  }
  if (all_met) return Status::Ok();
  world->layout = MakeLayout(world->cards, apart);
  if (!apart[static_cast<size_t>(spec.rank)]) return Status::Ok();
  world->pidfds.clear();
  world->pidfds.resize(static_cast<size_t>(spec.size));
  return MeetGroup(spec, -1, deadline, world);
}

Status OpenLinks(const WorldSpec& spec, Store* store, Deadline deadline, World* world) {
  world->links.resize(static_cast<size_t>(spec.size));
  if (world->one_group()) return Status::Ok();
  Descriptor listener;
  FRD_RETURN_IF_ERROR(Listen("tcp:" + spec.interface_address + ":0", &listener));
  std::string mine;
  FRD_RETURN_IF_ERROR(BoundEndpoint(listener.get(), &mine));
  std::vector<std::string> endpoints;
  FRD_RETURN_IF_ERROR(store->Exchange(mine, &endpoints, deadline));
  return ConnectLinks(spec, listener.get(), endpoints, deadline, world);
}

}  // namespace

Status Bootstrap(const WorldSpec& spec, Deadline deadline, std::unique_ptr<World>* result) {
  auto world = std::make_unique<World>();
  world->rank = spec.rank;
  world->size = spec.size;
  world->pidfds.resize(static_cast<size_t>(spec.size));

  Store store;
  FRD_RETURN_IF_ERROR(store.Meet(spec.store, spec.key, spec.rank, spec.size, deadline));
  Descriptor meeting;
  std::string meeting_endpoint;
  if (const Status opened = OpenMeeting(&meeting, &meeting_endpoint); !opened.ok()) meeting_endpoint.clear();
  FRD_RETURN_IF_ERROR(ExchangeCards(spec, meeting_endpoint, &store, deadline, world.get()));
  FRD_RETURN_IF_ERROR(FormGroups(spec, meeting.get(), &store, deadline, world.get()));
  FRD_RETURN_IF_ERROR(OpenLinks(spec, &store, deadline, world.get()));
  for (Descriptor& connection : store.TakeConnections()) world->control.emplace_back(std::move(connection));
  *result = std::move(world);
  return Status::Ok();
}

}  // namespace farandole
