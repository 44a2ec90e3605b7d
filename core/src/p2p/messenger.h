// Sends and receives single messages between ranks (point to point), without negotiation.
//
//   Submit --> Link to the peer, which is connected at its first use --> Matcher of the receiver --> done
//
// Progress. A thread that waits for a transfer moves the data itself; otherwise a thread of the Messenger does, which
// starts at the first use. One thread at a time sleeps on the sockets (`polling_`). The Messenger's own thread keeps
// away while others wait, and for a moment afterwards, so a program that sends and receives in turns does not wake it.
//
// Connections. The rank that needs a connection first makes it. A receive that names its source needs one, too, so that
// the end of that rank is noticed. If both ranks connect at the same time, there are two. Each rank sends on one of
// them only, the first that it has, so messages stay in order.
//
// Ends. If a connection ends, transfers with that rank wait for up to a second for the engine's reason, and then fail.
// A receive from any source fails when all other members of its process set are gone. If the epoch ends, all fail. What
// a rank had sent before it left can still be received.
//
// Thread safety: any thread. Lock: `mutex_`; nothing else is locked while it is held, except by `reason`.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "p2p/link.h"
#include "transport/connections.h"
#include "transport/poll.h"
#include "world/world.h"

namespace farandole {

class Messenger {
 public:
  // Why transfers with this rank, or kAnySource: with all, cannot complete any more; Ok while that is not known.
  using Reason = std::function<Status(int peer)>;

  // world: null in a world of one; its acceptors are the Messenger's from now on. REQUIRES: it outlives the Messenger.
  Messenger(World* world, Reason reason);
  ~Messenger() { Shutdown(); }
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  // Begins a transfer. Never waits for the other rank. An error: nothing has begun.
  Status Submit(const TransferPtr& transfer);
  // Returns whether it is done, after an attempt to make progress.
  bool Poll(const TransferPtr& transfer);
  // Waits until it is done or the time is up. Returns whether it is done.
  bool Wait(const TransferPtr& transfer, int64_t limit_ms);
  // Ends it with this error unless it is done. Its memory is not touched any more afterwards.
  void Cancel(const TransferPtr& transfer, const Status& why);
  // Ends everything; later transfers are refused. What has been sent still reaches the others.
  void Shutdown();

 private:
  struct Peer {
    std::vector<std::unique_ptr<Link>> links;  // this rank sends on the first
    std::optional<Connector> connector;
    TimePoint refused_since{};        // since when the connector finds nobody; zero: it does not
    std::vector<TransferPtr> unsent;  // until there is a link
    std::optional<TimePoint> lost_since;
    Status lost;                        // what this rank has seen of it
    Status failed;                      // final; transfers with the rank are refused
    std::vector<TransferPtr> stranded;  // of links that have ended, until `failed` is known
  };
  using Lock = std::unique_lock<std::mutex>;

  Status Check(const Transfer& transfer) const;
  void Begin(const TransferPtr& transfer);
  void BeginSend(const TransferPtr& send);
  void BeginReceive(const TransferPtr& receive);
  void SendToSelf(const TransferPtr& send);
  void TakeArrival(Arrival& arrival, const TransferPtr& receive);
  void NeedPeer(int rank, const TransferPtr& transfer);

  // ---- progress
  void Run();
  void PollOnce(Lock* lock, TimePoint until);
  void Watch(PollSet* set, TimePoint until) const;
  void Step(const PollSet& set, TimePoint now);
  void Connect(int rank, Peer* peer, TimePoint when);
  void StepConnector(int rank, Peer* peer, TimePoint now);
  void Pump(Peer* peer, size_t index);
  void PumpAll(int rank);
  void Progress(int rank);
  void PumpReady(const PollSet& set);
  void Admit(AuthenticatedPeer arrived);
  void AddLink(int rank, Descriptor socket);
  void Kick();
  void Announce();

  // ---- ends
  void EndLink(Peer* peer, size_t index, const Status& status);
  void Lose(Peer* peer, const Status& status, TimePoint now);
  void CheckEnds(TimePoint now);
  void FailAbandoned();
  bool IsGone(int rank) const;
  void FailPeer(int rank, Peer* peer, const Status& why);
  void FailAll(const Status& why);

  World* const world_;
  const int rank_, size_;
  const Reason reason_;
  const int pauses_;

  std::mutex mutex_;
  LinkContext context_;
  std::vector<Acceptor> acceptors_;
  std::map<int, Peer> peers_;
  size_t self_kept_bytes_ = 0;  // of messages to this rank itself
  Status over_;                 // why no transfer can begin any more
  bool stopping_ = false;
  bool polling_ = false;
  uint64_t announced_ = 0;    // of LinkContext::ended
  int waiters_ = 0;           // threads in Wait
  uint64_t waits_ = 0;        // so far
  bool sleeps_long_ = false;  // the Messenger's thread does, until the last waiter goes
  TimePoint quiet_until_{};
  TimePoint next_look_{};               // for receives from any source that nobody can send
  TimePoint accepts_again_{};           // the system refused to accept
  Descriptor wake_;                     // ends a sleep on the sockets
  std::condition_variable changed_;     // a transfer may be done, or nobody sleeps on the sockets
  std::condition_variable background_;  // for the Messenger's own thread
  std::thread thread_;
};

}  // namespace farandole
