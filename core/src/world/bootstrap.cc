#include "world/bootstrap.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "common/failpoint.h"
#include "common/log.h"
#include "transport/poll.h"
#include "world/linking.h"
#include "world/meeting.h"
#include "world/registrar.h"

namespace farandole {
namespace {

constexpr const char* kPurpose = "control";
constexpr int64_t kLastWordsMs = 200;

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

Card MyCard(const WorldSpec& spec, const std::string& meeting) {
  Card card{HostName(), MachineIdentity(), getpid(), spec.arenas && !meeting.empty(), meeting};
  card.size = spec.size;
  card.settings = spec.settings;
  return card;
}

class Start {
 public:
  Start(const WorldSpec& spec, Deadline deadline)
      : spec_(spec),
        meeting_(spec),
        linking_(spec),
        applicant_(spec.rank, MyCard(spec, meeting_.Open()), Now(), deadline),
        control_(static_cast<size_t>(spec.size)),
        pidfds_(static_cast<size_t>(spec.size)) {
    const TimePoint now = Now();
    if (spec.rank == 0) {
      registrar_.emplace(spec.size, spec.store, now, deadline);
    } else {
      call_.emplace(spec.store, spec.key, Hello{kPurpose, static_cast<uint32_t>(spec.rank), 0}, now);
    }
  }

  // Until the applicant is over.
  Status Run();
  void SayLastWords(const Status& why);
  void MoveInto(World* world);
  const std::vector<int>& culprits() const { return applicant_.culprits(); }
  // The word that ends the start is spoken. What comes now, ends of connections too, is for the engine to notice.
  bool decided() const { return registrar_ ? registrar_->over() : applicant_.over(); }

 private:
  void Step(TimePoint now);
  Status StepLobby(TimePoint now);
  Status StepCall(TimePoint now);
  void LetIn(Guest guest, TimePoint now);
  void Read(int rank, TimePoint now);
  void OnLost(int rank, const std::string& how);
  void Carry(TimePoint now);
  void Perform(const Applicant::Action& action, TimePoint now);
  void Send(int rank, const StartMessage& message);
  std::string Detail() const;
  void WatchAll();

  const WorldSpec& spec_;
  Meeting meeting_;
  Linking linking_;
  std::optional<Registrar> registrar_;  // on rank 0
  Applicant applicant_;
  Lobby lobby_;                         // on rank 0
  std::optional<Dialer> call_;          // elsewhere, until it is answered
  std::vector<MessageStream> control_;  // by rank
  std::vector<MessageStream> refused_;  // who must not come in reads why
  std::vector<Descriptor> pidfds_;      // of the other ends of control_, where the kernel says
  PollSet set_;
  Status broken_;
};

Status Start::Run() {
  if (registrar_) {
    Descriptor listener;
    if (spec_.listener) {
      listener = std::move(*spec_.listener);
    } else {
      FRD_RETURN_IF_ERROR(Listen(spec_.store, &listener));
    }
    lobby_.Open(std::move(listener), spec_.key, {kPurpose, 0, 0});
    applicant_.OnConnected(Now());
  }
  Carry(Now());
  while (!applicant_.over()) {
    WatchAll();
    FRD_FAILPOINT("bootstrap.wait");
    if (!set_.Wait()) applicant_.Interrupt();
    Step(Now());
    FRD_RETURN_IF_ERROR(broken_);
  }
  return applicant_.status();
}

void Start::WatchAll() {
  lobby_.Watch(&set_);
  if (call_) call_->Watch(&set_);
  for (const MessageStream& stream : control_) {
    if (stream.open()) set_.Add(stream.socket(), static_cast<short>(POLLIN | (stream.flushed() ? 0 : POLLOUT)));
  }
  for (const Descriptor& pidfd : pidfds_) set_.Add(pidfd, POLLIN);
  meeting_.Watch(&set_);
  linking_.Watch(&set_);
  set_.WakeAt(applicant_.next());
  if (registrar_) set_.WakeAt(registrar_->next());
}

void Start::Step(TimePoint now) {
  if (broken_.ok()) broken_ = registrar_ ? StepLobby(now) : StepCall(now);
  for (int r = 0; r < spec_.size && !decided(); ++r) {
    const auto at = static_cast<size_t>(r);
    if (control_[at].open() && set_.ready(control_[at].socket())) Read(r, now);
    if (!decided() && set_.ready(pidfds_[at])) OnLost(r, "died");  // last words first
  }
  meeting_.Step(set_, now, &applicant_);
  linking_.Step(set_, now, &applicant_);
  Carry(now);
  // What has come in time counts, so time is looked at last.
  if (registrar_) registrar_->OnTime(now);
  Carry(now);
  applicant_.OnTime(now, Detail());
  Carry(now);
}

Status Start::StepLobby(TimePoint now) {
  std::vector<Guest> arrived;
  FRD_RETURN_IF_ERROR(lobby_.Step(set_, now, &arrived));
  for (Guest& guest : arrived) LetIn(std::move(guest), now);
  if (lobby_.turned_away() > 0) registrar_->OnTurnedAway(lobby_.last_reason());
  return Status::Ok();
}

void Start::LetIn(Guest guest, TimePoint now) {
  FRD_FAILPOINT("bootstrap.admit");
  if (guest.hello.purpose != kPurpose) return lobby_.TurnAway("it came for another purpose: " + guest.hello.purpose);
  const auto at = static_cast<size_t>(guest.hello.rank);
  const Status admitted = registrar_->Admit(static_cast<int>(guest.hello.rank), now);
  if (admitted.ok()) {
    pidfds_[at] = PidfdOfPeer(guest.connection.get());
    control_[at] = MessageStream(std::move(guest.connection));
    return;
  }
  lobby_.TurnAway(admitted.message());
  refused_.emplace_back(std::move(guest.connection));
  refused_.back().Queue(StartMessage{StartMessage::kGiveUp, 0, admitted.code(), {}, admitted.message(), {}}.Encode());
  refused_.back().EndSending();
}

Status Start::StepCall(TimePoint now) {
  if (!call_) return Status::Ok();
  FRD_RETURN_IF_ERROR(call_->Step(now));
  if (!call_->done()) return Status::Ok();
  Descriptor connection = call_->Take();
  call_.reset();
  pidfds_[0] = PidfdOfPeer(connection.get());
  control_[0] = MessageStream(std::move(connection));
  FRD_FAILPOINT("bootstrap.connected");
  applicant_.OnConnected(now);
  return Status::Ok();
}

// One message after the other, and none after the word that ends the start: it is for the engine.
void Start::Read(int rank, TimePoint now) {
  MessageStream& stream = control_[static_cast<size_t>(rank)];
  for (;;) {
    std::vector<Bytes> messages;
    const Status status = stream.ReceiveOne(&messages);
    if (!status.ok()) return OnLost(rank, "died or closed its connection");
    if (messages.empty()) return;
    StartMessage message;
    if (!StartMessage::Decode(messages[0], &message).ok()) return OnLost(rank, "said something that cannot be read");
    if (registrar_) {
      registrar_->OnMessage(rank, message, now);
    } else {
      applicant_.OnMessage(message, now);
    }
    if (decided()) return;
  }
}

void Start::OnLost(int rank, const std::string& how) {
  const auto at = static_cast<size_t>(rank);
  if (!control_[at].open()) return;
  control_[at] = MessageStream();
  pidfds_[at].Reset();
  if (registrar_) {
    registrar_->OnLost(rank, how);
  } else {
    applicant_.OnRegistrarLost(how);
  }
}

// Letters and actions to where they belong, until there are none.
void Start::Carry(TimePoint now) {
  for (;;) {
    const std::vector<StartLetter> letters = registrar_ ? registrar_->TakeLetters() : std::vector<StartLetter>();
    for (const StartLetter& letter : letters) {
      if (letter.rank == 0) {
        applicant_.OnMessage(letter.message, now);
      } else {
        Send(letter.rank, letter.message);
      }
    }
    const std::vector<Applicant::Action> actions = applicant_.TakeActions();
    for (const Applicant::Action& action : actions) Perform(action, now);
    if (letters.empty() && actions.empty()) break;
  }
  if (!registrar_) return;
  for (const std::string& note : registrar_->TakeNotes()) Log(LogLevel::kWarning, note);
}

void Start::Perform(const Applicant::Action& action, TimePoint now) {
  switch (action.kind) {
    case Applicant::Action::kSend:
      if (registrar_) return registrar_->OnMessage(0, action.message, now);
      return Send(0, action.message);
    case Applicant::Action::kListen:
      return linking_.Open(&applicant_);
    case Applicant::Action::kMeet:
      return meeting_.Begin(now, &applicant_);
    case Applicant::Action::kHandOut:
      return meeting_.HandOut(&applicant_);
    case Applicant::Action::kLink:
      return linking_.Begin(now, &applicant_);
    case Applicant::Action::kDone:
    case Applicant::Action::kFail:
      return;
  }
}

void Start::Send(int rank, const StartMessage& message) {
  MessageStream& stream = control_[static_cast<size_t>(rank)];
  if (!stream.open()) return;
  FRD_FAILPOINT("bootstrap.send");
  stream.Queue(message.Encode());
  (void)stream.Flush();  // reading notices that it has ended
}

std::string Start::Detail() const {
  if (call_) return call_->last_refusal();
  const std::string linking = linking_.detail();
  return linking.empty() ? meeting_.detail() : linking;
}

// Closing with unread bytes would take back what was said last.
void Start::SayLastWords(const Status& why) {
  meeting_.TellGroup(why, culprits().empty() ? -1 : culprits()[0]);
  const TimePoint start = Now();
  for (auto* streams : {&control_, &refused_}) {
    for (MessageStream& stream : *streams) stream.EndSending();
  }
  for (MessageStream& stream : control_) {
    stream.CloseGently(static_cast<int>(std::max<int64_t>(0, kLastWordsMs - MillisecondsBetween(start, Now()))));
  }
}

void Start::MoveInto(World* world) {
  world->rank = spec_.rank;
  world->size = spec_.size;
  world->cards = applicant_.cards();
  world->layout = applicant_.layout();
  world->pidfds.resize(static_cast<size_t>(spec_.size));
  world->control = std::move(control_);
  meeting_.MoveInto(world);
  linking_.MoveInto(world);
}

}  // namespace

Status Bootstrap(const WorldSpec& spec, Deadline deadline, std::unique_ptr<World>* result, std::vector<int>* culprits) {
  Start start(spec, deadline);
  const Status status = start.Run();
  if (culprits != nullptr) *culprits = start.culprits();
  if (!status.ok()) {
    start.SayLastWords(status);
    return status;
  }
  auto world = std::make_unique<World>();
  start.MoveInto(world.get());
  *result = std::move(world);
  return Status::Ok();
}

}  // namespace farandole
