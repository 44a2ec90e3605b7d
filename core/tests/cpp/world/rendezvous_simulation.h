// A job that starts, in one thread, on a simulated clock and network. The server, the clients and, on ranks that are
// ready, Liveness are the real classes. The actions that they request take random time and may fail. The seed
// determines each run.
//
//   ranks start late, die at any step, while they speak, or when they are ready, stop for a while or for good; machines
//   cannot share memory; data connections are blocked; strangers connect, and second processes with one rank
//
//   rendezvous_simulation.cc         up to rank 0's word
//   rendezvous_simulation_ready.cc   who is ready, and whom it blames when others end
//   rendezvous_simulation_judge.cc   what must hold
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "world/liveness.h"
#include "world/rendezvous/client.h"
#include "world/rendezvous/server.h"

namespace farandole {

// Decisions that are wrong on purpose. The simulation must notice them.
enum class Planted { kNothing, kSkippedValidation, kSwappedOrder, kDroppedRank, kSilentEnd };

class RendezvousSimulation {
 public:
  RendezvousSimulation(uint64_t seed, Planted planted);
  // A start without faults, of hosts with so many ranks each.
  RendezvousSimulation(int hosts, int ranks_each);
  void Run();
  // The first violation, or "".
  std::string FindMistake() const;
  // How each rank ended.
  std::string Story() const;

  // The messages of a rank's control connection.
  struct Traffic {
    size_t sent_messages = 0, sent_bytes = 0, received_messages = 0, received_bytes = 0;
  };
  const Traffic& traffic(int r) const { return ranks_[static_cast<size_t>(r)].traffic; }
  size_t link_count(int r) const { return ranks_[static_cast<size_t>(r)].linked.size(); }

 private:
  struct Rank {
    std::unique_ptr<RendezvousClient> client;
    TimePoint start, deadline, over_at, paused_until = {}, timer = {};
    bool dead = false, connected = false, done = false;
    int steps = 0, dies_at_step = -1;
    int messages = 0, dies_at_message = -1;  // of rank 0
    TimePoint dies_at = TimePoint::max();    // also when it is ready
    bool cannot_make_segment = false, cannot_reach_leader = false, cannot_attach = false, cannot_listen = false;
    bool other_setting = false;
    int segment = 0;     // the one it holds
    std::set<int> come;  // members that have come before the leader knew its node
    std::set<int> linked, waiting;
    Traffic traffic;
    // of a rank that is ready
    Liveness liveness;
    std::vector<int> closed, ended;  // evidence that is not yet reported to Liveness
    bool ends = false;
    std::optional<int> blamed;

    bool cannot_share() const { return cannot_make_segment || cannot_reach_leader || cannot_attach; }
  };
  struct Event {
    TimePoint at;
    uint64_t order;
    int rank;
    std::function<void()> happen;
    bool operator<(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  void Plan();
  void AddRank(int r, const std::string& host, TimePoint::duration patience);
  void PlanTroubles(TimePoint::duration patience);
  void PlanStarts();
  void Count(int from, int to, const RendezvousMessage& message);
  void At(TimePoint time, int rank, std::function<void()> happen);
  TimePoint::duration Delay();
  bool Chance(int percent) { return static_cast<int>(random_() % 100) < percent; }
  TimePoint Arrival(int from, int to);
  Rank& rank(int r) { return ranks_[static_cast<size_t>(r)]; }
  bool listens() const { return server_ && !server_->over() && !ranks_[0].dead; }

  void StartRank(int r);
  void Connect(int r);
  void Die(int r);
  void After(int r);
  void SetTimer(int r);
  void Deliver(const AddressedMessage& addressed);
  void Tell(int r, const RendezvousMessage& message);
  void Perform(int r, const RendezvousClient::Action& action);
  void Share(int r);
  void Come(int r, int leader);
  void HandOut(int r);
  void Link(int r);
  void Reach(int r, int peer);
  void LetIn(int r, int peer);
  void LoseControl(int r);
  bool Blocked(int a, int b) const { return blocked_.count({std::min(a, b), std::max(a, b)}) > 0; }

  // rendezvous_simulation_ready.cc
  TimePoint::duration EvidenceDelay();
  void ShowEnd(int r);
  void EndLater(int r, int culprit);
  void ShowEvidence(int from, int to, std::vector<int> Rank::* evidence);
  void Look(int r);
  void Blame(int r, int culprit);
  void ReportBlame(int r, int culprit);

  std::string CheckRank(int r, const std::set<int>& faulty) const;
  std::string CheckReady() const;
  std::string CheckBlame(const std::set<int>& faulty) const;
  bool Stopped(const Rank& each) const { return each.paused_until == TimePoint::max(); }

  const Planted planted_;
  std::mt19937_64 random_;
  TimePoint now_ = {};
  int size_ = 0;
  int64_t max_events_ = 200'000;
  bool has_strangers_ = true;
  std::vector<Rank> ranks_;
  std::vector<PeerInfo> peers_;
  std::unique_ptr<RendezvousServer> server_;
  std::priority_queue<Event> events_;
  uint64_t order_ = 0;
  std::map<std::pair<int, int>, TimePoint> last_arrival_;
  std::set<std::pair<int, int>> blocked_;
  std::map<int, int> abort_words_;  // by segment: who is to blame
  int next_segment_ = 1;
  int percent_slow_ = 0;
};

}  // namespace farandole
