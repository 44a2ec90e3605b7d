// Makes a World: one loop carries out over real sockets what the state machines of the start decide.
//
//   decide; pure    RendezvousServer (rank 0)   <- messages ->   RendezvousClient (every rank)
//   act             Acceptor, streams                            Connector, stream, ShmSetup, LinkSetup
//
// The loop waits for all peers at once, so it notices immediately when a connection fails, a rank dies or rank 0
// decides. All objects belong to one call of Bootstrap, and to its thread.
#include <dirent.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "common/failpoint.h"
#include "common/log.h"
#include "common/text.h"
#include "transport/poll.h"
#include "transport/socket.h"
#include "world/rendezvous/server.h"
#include "world/rendezvous/setup.h"
#include "world/world.h"

namespace farandole {
namespace {

constexpr const char* kPurpose = "control";  // of control connections, as the handshake names it
constexpr int64_t kEndTimeoutMs = 200;       // for sending the reason why the start has failed

// Each other rank needs descriptors: its pidfd, its event or data connections, on rank 0 its control connection, and up
// to two connections for messages.
constexpr rlim_t kForEachRank = 6, kForAll = 32;
constexpr rlim_t kMinForAll = 12;  // the least: this many, and one more for each rank

// The number of open descriptors, or 0 where /proc is missing.
rlim_t OpenNow() {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  rlim_t count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// Raises this process's soft limit of open files as far as the hard limit allows. kInvalid: the hard limit is too low
// for the world. The message says how many files are needed and how to raise the limit.
Status ProvideDescriptors(int world_size) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return SystemError("getrlimit");
  const rlim_t open = OpenNow();
  const rlim_t wanted = open + kForAll + kForEachRank * static_cast<rlim_t>(world_size);
  if (limit.rlim_cur >= wanted) return Status::Ok();
  rlimit raised = limit;
  raised.rlim_cur = std::min(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &raised);  // if the system refuses, the present limit may be enough
  getrlimit(RLIMIT_NOFILE, &raised);
  const rlim_t least = open + kMinForAll + static_cast<rlim_t>(world_size);
  if (raised.rlim_cur >= least) return Status::Ok();
  return Invalid("a world of " + std::to_string(world_size) + " ranks needs " + std::to_string(least - open) + " to " +
                 std::to_string(wanted - open) + " open files in each of them, and this process, which has " +
                 std::to_string(open) + ", may have no more than " + std::to_string(raised.rlim_cur) +
                 ": raise that with `ulimit -Hn " + std::to_string(wanted) +
                 "`, or in limits.conf, the service or the container that starts the ranks");
}

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

// Ranks with equal identities have the same kernel, abstract socket names and user, so they can share memory.
std::string MachineIdentity() {
  const std::vector<std::string> lines = Split(ContentsOf("/proc/sys/kernel/random/boot_id"), '\n');
  struct stat network{};
  stat("/proc/self/ns/net", &network);
  return (lines.empty() ? "" : lines.front()) + ":" + std::to_string(network.st_ino) + ":" + std::to_string(geteuid());
}

// The cores that this process may use, as a PeerInfo has them; empty where the machine has more than it can hold.
std::vector<uint64_t> MyCores() {
  std::vector<uint64_t> cores(kMaxCoreWords);
  auto* const mask = reinterpret_cast<cpu_set_t*>(cores.data());
  if (sched_getaffinity(0, cores.size() * sizeof(uint64_t), mask) != 0) return {};
  while (!cores.empty() && cores.back() == 0) cores.pop_back();
  return cores;
}

// Finds out whether this rank can share memory, and listens where the others may have to connect.
PeerInfo MyPeerInfo(const WorldSpec& spec, ShmSetup* shm_setup, LinkSetup* link_setup) {
  PeerInfo mine{HostName(), MachineIdentity(), getpid(), spec.shares_memory, ""};
  mine.size = spec.size;
  mine.settings = spec.settings;
  mine.cores = MyCores();
  if (spec.size == 1) return mine;
  if (spec.shares_memory) {
    const Status opened = shm_setup->Open(&mine.segment_endpoint);
    mine.shares_memory = opened.ok();
    mine.sharing_error = opened.message();
  }
  mine.listening_error = link_setup->Open(&mine.data_endpoint).message();
  return mine;
}

class Start {
 public:
  Start(const WorldSpec& spec, Deadline deadline)
      : spec_(spec),
        shm_setup_(spec),
        link_setup_(spec),
        client_(spec.rank, MyPeerInfo(spec, &shm_setup_, &link_setup_), Now(), deadline),
        control_(static_cast<size_t>(spec.size)),
        pidfds_(static_cast<size_t>(spec.size)) {
    const TimePoint now = Now();
    if (spec.rank == 0) {
      server_.emplace(spec.size, spec.rendezvous_endpoint, now, deadline);
    } else {
      connector_.emplace(spec.rendezvous_endpoint, spec.key, Hello{kPurpose, static_cast<uint32_t>(spec.rank), 0}, now);
    }
  }

  // Runs the loop until the client has finished.
  Status Run();
  // After a failure: gives the other ranks time to read the reason.
  void EndControl(const Status& why);
  // After success.
  void MoveInto(World* world);
  const std::vector<int>& culprits() const { return client_.culprits(); }
  // Returns whether the start is decided. Later messages, and the ends of connections, are left to the engine.
  bool decided() const { return server_ ? server_->over() : client_.over(); }

 private:
  // One pass over everything that is ready.
  void Step(TimePoint now);
  Status StepAcceptor(TimePoint now);
  Status StepConnector(TimePoint now);
  void Admit(AuthenticatedPeer peer);
  void Read(int rank, TimePoint now);
  void OnLost(int rank, const std::string& how);
  void Deliver(TimePoint now);
  void Perform(const RendezvousClient::Action& action, TimePoint now);
  void Send(int rank, const RendezvousMessage& message);
  // The last refusal, for messages about a deadline.
  std::string Detail() const;
  void WatchAll();

  const WorldSpec& spec_;
  ShmSetup shm_setup_;
  LinkSetup link_setup_;
  std::optional<RendezvousServer> server_;  // on rank 0
  RendezvousClient client_;
  Acceptor acceptor_;                   // on rank 0
  std::optional<Connector> connector_;  // on the other ranks, until rank 0 has answered
  std::vector<MessageStream> control_;  // by rank
  std::vector<MessageStream> refused_;  // of peers that were not admitted; they still read the reason
  std::vector<Descriptor> pidfds_;      // of the peers of control_, where the kernel tells
  PollSet set_;
  Status broken_;  // an error of this rank that the client cannot know
};

Status Start::Run() {
  if (server_) {
    Descriptor listener;
    if (spec_.listener) {
      listener = std::move(*spec_.listener);
    } else {
      FRD_RETURN_IF_ERROR(Listen(spec_.rendezvous_endpoint, &listener));
    }
    acceptor_.Open(std::move(listener), spec_.key, {kPurpose, 0, 0});
    client_.OnConnected(Now());
  }
  Deliver(Now());
  while (!client_.over()) {
    WatchAll();
    FRD_FAILPOINT("bootstrap.wait");
    if (!set_.Wait()) client_.Interrupt();
    Step(Now());
    FRD_RETURN_IF_ERROR(broken_);
  }
  return client_.status();
}

void Start::WatchAll() {
  acceptor_.Watch(&set_);
  if (connector_) connector_->Watch(&set_);
  for (const MessageStream& stream : control_) {
    if (stream.open()) set_.Add(stream.socket(), static_cast<short>(POLLIN | (stream.flushed() ? 0 : POLLOUT)));
  }
  for (const Descriptor& pidfd : pidfds_) set_.Add(pidfd, POLLIN);
  shm_setup_.Watch(&set_);
  link_setup_.Watch(&set_);
  set_.WakeAt(client_.next());
  if (server_) set_.WakeAt(server_->next());
}

void Start::Step(TimePoint now) {
  if (broken_.ok()) broken_ = server_ ? StepAcceptor(now) : StepConnector(now);
  for (int r = 0; r < spec_.size && !decided(); ++r) {
    const auto at = static_cast<size_t>(r);
    if (control_[at].open() && set_.ready(control_[at].socket())) Read(r, now);
    if (!decided() && set_.ready(pidfds_[at])) OnLost(r, "died");  // after its last messages are read
  }
  shm_setup_.Step(set_, now, &client_);
  link_setup_.Step(set_, now, &client_);
  Deliver(now);
  // Deadlines are checked last, so that a message which has arrived in time counts.
  if (server_) server_->OnTime(now);
  Deliver(now);
  client_.OnTime(now, Detail());
  Deliver(now);
}

Status Start::StepAcceptor(TimePoint now) {
  std::vector<AuthenticatedPeer> arrived;
  FRD_RETURN_IF_ERROR(acceptor_.Step(set_, now, &arrived));
  for (AuthenticatedPeer& peer : arrived) Admit(std::move(peer));
  if (acceptor_.turned_away() > 0) server_->OnTurnedAway(acceptor_.last_reason());
  return Status::Ok();
}

void Start::Admit(AuthenticatedPeer peer) {
  FRD_FAILPOINT("bootstrap.admit");
  if (peer.hello.purpose != kPurpose) return acceptor_.Reject("it came for another purpose: " + peer.hello.purpose);
  const auto at = static_cast<size_t>(peer.hello.rank);
  const Status admitted = server_->Admit(static_cast<int>(peer.hello.rank));
  if (admitted.ok()) {
    pidfds_[at] = PidfdOfPeer(peer.connection.get());
    control_[at] = MessageStream(std::move(peer.connection));
    return;
  }
  acceptor_.Reject(admitted.message());
  refused_.emplace_back(std::move(peer.connection));
  refused_.back().Queue(RendezvousMessage{RendezvousMessage::kGiveUp, admitted.code(), admitted.message()}.Encode());
  refused_.back().EndSending();
}

Status Start::StepConnector(TimePoint now) {
  if (!connector_) return Status::Ok();
  FRD_RETURN_IF_ERROR(connector_->Step(now));
  if (!connector_->done()) return Status::Ok();
  Descriptor connection = connector_->Take();
  connector_.reset();
  pidfds_[0] = PidfdOfPeer(connection.get());
  control_[0] = MessageStream(std::move(connection));
  FRD_FAILPOINT("bootstrap.connected");
  client_.OnConnected(now);
  return Status::Ok();
}

// Messages behind the one that decides the start are for the engine.
void Start::Read(int rank, TimePoint now) {
  MessageStream& stream = control_[static_cast<size_t>(rank)];
  std::vector<Bytes> messages;
  const Status status = stream.Receive(&messages);
  size_t next = 0;
  for (; next < messages.size() && !decided(); ++next) {
    RendezvousMessage message;
    if (!RendezvousMessage::Decode(messages[next], &message).ok())
      return OnLost(rank, "sent a message that cannot be read");
    if (server_) {
      server_->OnMessage(rank, message, now);
    } else {
      client_.OnMessage(message, now);
    }
  }
  if (!decided() && !status.ok()) return OnLost(rank, "died or closed its connection");
  stream.PutBack({messages.begin() + static_cast<ptrdiff_t>(next), messages.end()});
}

void Start::OnLost(int rank, const std::string& how) {
  const auto at = static_cast<size_t>(rank);
  if (!control_[at].open()) return;
  control_[at] = MessageStream();
  pidfds_[at].Reset();
  if (server_) {
    server_->OnLost(rank, how);
  } else {
    client_.OnServerLost(how);
  }
}

// Delivers messages and performs actions until there are none, since each may cause others. On rank 0 the server and
// its client exchange messages without a socket.
void Start::Deliver(TimePoint now) {
  for (;;) {
    const std::vector<AddressedMessage> messages = server_ ? server_->TakeOutgoing() : std::vector<AddressedMessage>();
    for (const AddressedMessage& addressed : messages) {
      if (addressed.rank == 0) {
        client_.OnMessage(addressed.message, now);
      } else {
        Send(addressed.rank, addressed.message);
      }
    }
    const std::vector<RendezvousClient::Action> actions = client_.TakeActions();
    for (const RendezvousClient::Action& action : actions) Perform(action, now);
    if (messages.empty() && actions.empty()) break;
  }
  if (!server_) return;
  for (const std::string& note : server_->TakeNotes()) Log(LogLevel::kWarning, note);
}

void Start::Perform(const RendezvousClient::Action& action, TimePoint now) {
  switch (action.kind) {
    case RendezvousClient::Action::kSend:
      if (server_) return server_->OnMessage(0, action.message, now);
      return Send(0, action.message);
    case RendezvousClient::Action::kSetUp:
      shm_setup_.Begin(now, &client_);
      return link_setup_.Begin(now, &client_);
    case RendezvousClient::Action::kHandOut:
      return shm_setup_.HandOut(&client_);
    case RendezvousClient::Action::kDone:
    case RendezvousClient::Action::kFail:
      return;
  }
}

void Start::Send(int rank, const RendezvousMessage& message) {
  MessageStream& stream = control_[static_cast<size_t>(rank)];
  if (!stream.open()) return;
  FRD_FAILPOINT("bootstrap.send");
  stream.Queue(message.Encode());
  (void)stream.Flush();  // reading the stream will report the error again
}

std::string Start::Detail() const {
  if (connector_) return connector_->last_refusal();
  const std::string of_links = link_setup_.detail();
  return of_links.empty() ? shm_setup_.detail() : of_links;
}

void Start::EndControl(const Status& why) {
  shm_setup_.WriteAbortWord(why, culprits().empty() ? -1 : culprits()[0]);
  std::move(refused_.begin(), refused_.end(), std::back_inserter(control_));
  CloseAll(&control_, kEndTimeoutMs);
}

void Start::MoveInto(World* world) {
  world->rank = spec_.rank;
  world->size = spec_.size;
  world->peers = client_.peers();
  world->layout = client_.layout();
  world->key = spec_.key;
  world->pidfds.resize(static_cast<size_t>(spec_.size));
  for (const MessageStream& stream : control_) {
    if (stream.open()) FailWhenUnanswered(stream.descriptor());
  }
  world->control = std::move(control_);
  shm_setup_.MoveInto(world);
  link_setup_.MoveInto(world);
}

}  // namespace

Status Bootstrap(const WorldSpec& spec, Deadline deadline, std::unique_ptr<World>* result, std::vector<int>* culprits) {
  if (spec.size > kMaxWorldSize)
    return Invalid("a job can have no more than ", kMaxWorldSize, " ranks, and this one has ", spec.size);
  FRD_RETURN_IF_ERROR(ProvideDescriptors(spec.size));
  Start start(spec, deadline);
  const Status status = start.Run();
  if (culprits != nullptr) *culprits = start.culprits();
  if (!status.ok()) {
    start.EndControl(status);
    return status;
  }
  auto world = std::make_unique<World>();
  start.MoveInto(world.get());
  *result = std::move(world);
  return Status::Ok();
}

}  // namespace farandole
