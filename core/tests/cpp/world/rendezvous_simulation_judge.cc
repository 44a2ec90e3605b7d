// The conditions that must hold after a simulated start.
#include <algorithm>

#include "world/rendezvous_simulation.h"

namespace farandole {

std::string RendezvousSimulation::FindMistake() const {
  std::set<int> faulty;
  for (int r = 0; r < size_; ++r) {
    const Rank& each = ranks_[static_cast<size_t>(r)];
    const bool late = each.start > ranks_[0].deadline || ranks_[0].start > each.deadline;
    const bool paused = each.paused_until != TimePoint();
    if (each.dead || paused || late || each.cannot_listen || each.cannot_share() || each.other_setting)
      faulty.insert(r);
    // The table names all ranks. Which of them is the odd one depends on the others that have arrived.
    for (int other = 0; each.other_setting && other < size_; ++other) faulty.insert(other);
    if (late) faulty.insert(0);  // a rank that starts after the others have given up cannot reach rank 0
  }
  for (const auto& [a, b] : blocked_) {
    faulty.insert(a);
    faulty.insert(b);
  }
  for (int r = 0; r < size_; ++r) {
    const std::string wrong = CheckRank(r, faulty);
    if (!wrong.empty()) return "rank " + std::to_string(r) + " of " + std::to_string(size_) + " " + wrong;
  }
  for (const std::string& wrong : {CheckReady(), CheckBlame(faulty)}) {
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string RendezvousSimulation::CheckRank(int r, const std::set<int>& faulty) const {
  const Rank& each = ranks_[static_cast<size_t>(r)];
  if (each.dead || Stopped(each)) return "";
  if (!each.client || !each.client->over()) return "waits for ever";
  if (each.over_at > std::max(each.deadline, each.paused_until)) return "waited past its deadline";
  if (each.done) return "";
  const RendezvousClient& client = *each.client;
  if (faulty.empty()) return "failed without a reason: " + client.status().message();
  if (client.culprits().empty()) return "names nobody: " + client.status().message();
  for (int culprit : client.culprits()) {
    // A rank that was not admitted before the others gave up cannot reach rank 0.
    const bool gone = culprit == 0 && !each.connected;
    if (faulty.count(culprit) == 0 && !gone) {
      return "blames rank " + std::to_string(culprit) + ", which is well: " + client.status().message();
    }
    if (client.status().message().find("rank") == std::string::npos) return "names no rank in its message";
  }
  return "";
}

// Ranks that are ready agree on layout, shared memory and links.
std::string RendezvousSimulation::CheckReady() const {
  const Layout* layout = nullptr;
  std::map<int, int> segment_by_node;
  for (int r = 0; r < size_; ++r) {
    const Rank& each = ranks_[static_cast<size_t>(r)];
    if (!each.done) continue;
    const Layout& mine = each.client->layout();
    if (layout == nullptr) layout = &mine;
    if (mine.nodes != layout->nodes) return "ready ranks disagree about their nodes";
    const int node = mine.node_of[static_cast<size_t>(r)];
    if (each.segment == 0 || segment_by_node.emplace(node, each.segment).first->second != each.segment)
      return "rank " + std::to_string(r) + " does not share the segment of its node";
    for (int peer : InterNodePeers(mine, r)) {
      if (each.linked.count(peer) == 0) return "rank " + std::to_string(r) + " is ready without all its links";
    }
  }
  const auto died = [](const Rank& each) { return each.dead || each.paused_until != TimePoint(); };
  if (layout == nullptr || std::any_of(ranks_.begin(), ranks_.end(), died)) return "";
  for (const Rank& each : ranks_) {
    if (!each.done) return "some ranks are ready, others gave up, though nobody died";
  }
  return "";
}

// A rank that is ready and sees others end blames one that really failed, not one that ended because of it.
std::string RendezvousSimulation::CheckBlame(const std::set<int>& faulty) const {
  const bool somebody_ended = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& each) { return each.ends; });
  for (int r = 0; r < size_; ++r) {
    const Rank& each = ranks_[static_cast<size_t>(r)];
    if (!each.done || each.dead || Stopped(each)) continue;
    const std::string name = "rank " + std::to_string(r) + " of " + std::to_string(size_) + ", which was ready, ";
    if (each.blamed && faulty.count(*each.blamed) == 0)
      return name + "blames rank " + std::to_string(*each.blamed) + ", which is well";
    if (!each.blamed && somebody_ended) return name + "does not notice that others have ended";
  }
  return "";
}

}  // namespace farandole
