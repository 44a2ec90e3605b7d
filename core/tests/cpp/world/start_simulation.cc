#include "world/start_simulation.h"

#include <algorithm>

namespace farandole {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kMostEvents = 200'000;

}  // namespace

StartSimulation::StartSimulation(uint64_t seed, Planted planted) : planted_(planted), random_(seed) {
  now_ = TimePoint(std::chrono::hours(1));
  Plan();
}

// Most runs have one or two troubles, some none: several at once would hide what each of them does.
void StartSimulation::Plan() {
  size_ = 2 + static_cast<int>(random_() % 6);
  ranks_.resize(static_cast<size_t>(size_));
  cards_.resize(static_cast<size_t>(size_));
  percent_slow_ = Chance(30) ? 20 : 0;
  const milliseconds patience(Chance(50) ? 3'000 : 40'000);
  const int machines = 1 + static_cast<int>(random_() % 3);
  for (int r = 0; r < size_; ++r) {
    Rank& each = rank(r);
    each.start = now_ + milliseconds(random_() % 400);
    each.deadline = each.start + patience;
    Card& card = cards_[static_cast<size_t>(r)];
    card.host = "host" + std::to_string(random_() % static_cast<uint64_t>(machines));
    card.machine = card.host;
    card.pid = 1000 + r;
    card.arenas = !Chance(10);
    card.size = size_;
    card.settings = {{"FARANDOLE_ORDER", "fixed"}};
  }
  const auto somebody = [&]() -> Rank& { return rank(static_cast<int>(random_() % static_cast<uint64_t>(size_))); };
  for (int trouble = static_cast<int>(random_() % 3); trouble > 0; --trouble) {
    Rank& victim = somebody();
    switch (random_() % 12) {
      case 0:
        victim.dies_at_step = static_cast<int>(random_() % 25);
        break;
      case 1:
        victim.dies_at_step = static_cast<int>(random_() % 8);
        break;
      case 2:
        victim.start += patience * 2;
        victim.deadline = victim.start + patience;
        break;
      case 3: {
        const TimePoint until = Chance(50) ? TimePoint::max() : now_ + milliseconds(random_() % 1500);
        At(victim.start + microseconds(random_() % 30'000), -1,
           [&victim, until] { victim.paused_until = std::max(victim.paused_until, until); });
        break;
      }
      case 4:
        victim.cannot_make_arena = true;
        break;
      case 5:
        victim.cannot_reach_leader = true;
        break;
      case 6:
        victim.cannot_attach = true;
        break;
      case 7:
        victim.cannot_listen = true;
        break;
      case 8: {
        const int a = static_cast<int>(random_() % static_cast<uint64_t>(size_));
        const int b = static_cast<int>(random_() % static_cast<uint64_t>(size_));
        if (a != b) blocked_.insert({std::min(a, b), std::max(a, b)});
        break;
      }
      case 9:
        rank(0).dies_at_letter = static_cast<int>(random_() % static_cast<uint64_t>(4 * size_));
        break;
      case 10:
        victim.dies_at = victim.start + microseconds(random_() % 30'000);
        break;
      default:
        // One among three or more: of two values either may be the odd one.
        victim.other_setting = size_ > 2 && std::none_of(ranks_.begin(), ranks_.end(),
                                                         [](const Rank& each) { return each.other_setting; });
        break;
    }
  }
  for (int r = 0; r < size_; ++r) {
    if (rank(r).other_setting) cards_[static_cast<size_t>(r)].settings[0].second = "any" + std::to_string(r);
    At(rank(r).start, r, [this, r] { StartRank(r); });
    if (rank(r).dies_at < TimePoint::max()) At(rank(r).dies_at, r, [this, r] { Die(r); });
  }
}

void StartSimulation::At(TimePoint time, int r, std::function<void()> happen) {
  events_.push({std::max(time, now_), order_++, r, std::move(happen)});
}

TimePoint::duration StartSimulation::Delay() {
  return microseconds(100 + random_() % 3'000) +
         (Chance(percent_slow_) ? milliseconds(random_() % 60) : milliseconds(0));
}

// Connections keep their order.
TimePoint StartSimulation::Arrival(int from, int to) {
  TimePoint& last = last_arrival_[{from, to}];
  last = std::max(last, now_ + Delay());
  return last;
}

void StartSimulation::Run() {
  for (int count = 0; count < kMostEvents && !events_.empty(); ++count) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    if (event.rank < 0) {
      event.happen();
      continue;
    }
    Rank& each = rank(event.rank);
    if (each.dead || Stopped(each)) continue;
    if (each.paused_until > now_) {
      events_.push({each.paused_until, event.order, event.rank, event.happen});
      continue;
    }
    const bool running = !each.applicant || !each.applicant->over();
    if (running && each.steps++ == each.dies_at_step) {
      Die(event.rank);
      continue;
    }
    event.happen();
    if (!each.dead) After(event.rank);
  }
}

void StartSimulation::StartRank(int r) {
  Rank& each = rank(r);
  each.applicant = std::make_unique<Applicant>(r, cards_[static_cast<size_t>(r)], now_, each.deadline);
  if (r != 0) return Knock(r);
  registrar_ = std::make_unique<Registrar>(size_, "the store", now_, each.deadline);
  each.connected = true;
  each.applicant->OnConnected(now_);
  for (int strangers = static_cast<int>(random_() % 3); strangers > 0; --strangers) {
    At(now_ + milliseconds(random_() % 500), 0, [this] { registrar_->OnTurnedAway("it does not speak our protocol"); });
  }
}

void StartSimulation::Knock(int r) {
  if (rank(r).applicant->over()) return;
  if (!listens() || rank(0).paused_until > now_) return At(now_ + milliseconds(50), r, [this, r] { Knock(r); });
  At(now_ + Delay(), 0, [this, r] {
    Rank& each = rank(r);
    if (each.dead || each.applicant->over()) return;
    if (!registrar_->Admit(r, now_).ok()) return At(now_ + milliseconds(50), r, [this, r] { Knock(r); });
    each.connected = true;
    At(Arrival(0, r), r, [this, r] { rank(r).applicant->OnConnected(now_); });
    // A second process with the same rank, or a rank that there is not: refused, whoever it says it is.
    if (!Chance(10)) return;
    if (registrar_->Admit(Chance(50) ? r : size_ + 3, now_).ok()) std::abort();
    if (planted_ != Planted::kSkippedValidation) return;
    registrar_->OnMessage(r, {StartMessage::kOutcome, 0, Code::kOk, {}, "", {}}, now_);
  });
}

void StartSimulation::Die(int r) {
  rank(r).dead = true;
  LoseControl(r);
  ShowEnd(r);
}

// The end of a process ends its connections, after what it said before.
void StartSimulation::LoseControl(int r) {
  if (r != 0) {
    if (rank(r).connected) At(Arrival(r, 0), 0, [this, r] { registrar_->OnLost(r, "died"); });
    return;
  }
  for (int other = 1; other < size_; ++other) {
    if (!rank(other).connected) continue;
    At(Arrival(0, other), other, [this, other] { rank(other).applicant->OnRegistrarLost("died"); });
  }
}

// What an event leads to on the rank where it happened.
void StartSimulation::After(int r) {
  Rank& each = rank(r);
  const bool was_over = each.over_at != TimePoint();
  for (bool again = true; again;) {
    again = false;
    if (r == 0 && registrar_) {
      for (const StartLetter& letter : registrar_->TakeLetters()) {
        if (each.letters++ == each.dies_at_letter) return Die(0);
        Deliver(letter);
        again = true;
      }
    }
    if (!each.applicant) return;
    for (const Applicant::Action& action : each.applicant->TakeActions()) {
      Perform(r, action);
      again = true;
    }
  }
  if (each.applicant->over() && !was_over) {
    each.over_at = now_;
    if (!each.done) {
      LoseControl(r);
      EndLater(r, each.applicant->culprits().empty() ? r : each.applicant->culprits()[0]);
    }
  }
  SetTimer(r);
}

void StartSimulation::SetTimer(int r) {
  Rank& each = rank(r);
  TimePoint next = each.applicant->next();
  if (r == 0) next = std::min(next, registrar_->next());
  if (next == TimePoint::max() || next == each.timer) return;
  each.timer = next;
  At(next, r, [this, r] {
    rank(r).timer = {};
    if (r == 0) registrar_->OnTime(now_);
    if (r == 0) After(0);
    rank(r).applicant->OnTime(now_, "");
  });
}

void StartSimulation::Deliver(const StartLetter& letter) {
  StartMessage message = letter.message;
  const int r = letter.rank;
  if (planted_ == Planted::kDroppedRank && message.kind == StartMessage::kLayout && r == size_ - 1)
    message.ranks.clear();
  if (planted_ == Planted::kSwappedOrder && message.kind == StartMessage::kLinks && r == size_ - 1)
    message.kind = StartMessage::kGo;
  if (r == 0) return Tell(0, message);
  // Through the wire's form and back.
  StartMessage read;
  if (!StartMessage::Decode(message.Encode(), &read).ok()) std::abort();
  At(Arrival(0, r), r, [this, r, read] { Tell(r, read); });
}

void StartSimulation::Tell(int r, const StartMessage& message) { rank(r).applicant->OnMessage(message, now_); }

void StartSimulation::Perform(int r, const Applicant::Action& action) {
  Applicant& applicant = *rank(r).applicant;
  switch (action.kind) {
    case Applicant::Action::kSend: {
      const StartMessage message = action.message;
      if (r == 0) return registrar_->OnMessage(0, message, now_);
      return At(Arrival(r, 0), 0, [this, r, message] { registrar_->OnMessage(r, message, now_); });
    }
    case Applicant::Action::kListen:
      return rank(r).cannot_listen ? applicant.OnListening(Internal("no port"), "")
                                   : applicant.OnListening(Status::Ok(), "data" + std::to_string(r));
    case Applicant::Action::kMeet:
      return Meet(r);
    case Applicant::Action::kHandOut:
      return HandOut(r);
    case Applicant::Action::kLink:
      return Link(r);
    case Applicant::Action::kDone:
      rank(r).done = true;
      return At(now_ + Delay(), r, [this, r] { Look(r); });
    case Applicant::Action::kFail:
      return;
  }
}

void StartSimulation::Meet(int r) {
  Rank& each = rank(r);
  Applicant& applicant = *each.applicant;
  ++each.attempt;
  each.entered.clear();
  each.arena = 0;
  if (applicant.leader() != r) return Come(r, each.attempt, applicant.round());
  // Alone, a rank needs little memory.
  if (each.cannot_make_arena && applicant.group().size() > 1) return applicant.OnNotMet(r, "no memory");
  each.arena = next_arena_++;
  if (applicant.group().size() == 1) applicant.OnMet();
}

void StartSimulation::Come(int r, int attempt, int round) {
  if (rank(r).cannot_reach_leader) return;
  const int leader = rank(r).applicant->leader();
  At(now_ + Delay(), leader, [this, r, attempt, round, leader] {
    Rank& host = rank(leader);
    if (!host.applicant || rank(r).dead) return;
    const bool may = !host.applicant->layout().groups.empty() && host.applicant->MayEnter(r, round);
    if (may) {
      host.entered[r] = attempt;
      return host.applicant->OnEntered(r);
    }
    At(now_ + milliseconds(20), r, [this, r, attempt, round] {
      if (rank(r).attempt == attempt && !rank(r).applicant->over()) Come(r, attempt, round);
    });
  });
}

void StartSimulation::HandOut(int r) {
  Rank& host = rank(r);
  for (const auto& [member, attempt] : host.entered) {
    if (rank(member).dead && Chance(50)) return host.applicant->OnNotMet(member, "it has hung up");
    const int arena = host.arena;
    const int to = member, its_attempt = attempt;
    At(now_ + Delay(), to, [this, to, its_attempt, arena] {
      Rank& each = rank(to);
      // What comes over a connection that was given up is never read.
      if (each.attempt != its_attempt) return;
      if (each.cannot_attach) return each.applicant->OnNotMet(to, "no address space");
      each.arena = arena;
      each.applicant->OnMet();
    });
  }
  host.applicant->OnMet();
}

void StartSimulation::Link(int r) {
  LetIn(r);
  for (int peer : rank(r).applicant->links_to_open()) Reach(r, peer);
}

void StartSimulation::Reach(int r, int peer) {
  At(now_ + Delay(), peer, [this, r, peer] {
    if (rank(r).dead || !rank(r).applicant || rank(r).applicant->over()) return;
    if (Blocked(r, peer) || rank(peer).applicant->over()) {
      return At(now_ + milliseconds(100), r, [this, r, peer] { Reach(r, peer); });
    }
    rank(peer).waiting.insert(r);
    LetIn(peer);
    At(now_ + Delay(), r, [this, r, peer] {
      rank(r).linked.insert(peer);
      rank(r).applicant->OnLink(peer);
    });
  });
}

void StartSimulation::LetIn(int r) {
  Rank& each = rank(r);
  for (auto guest = each.waiting.begin(); guest != each.waiting.end();) {
    if (!each.applicant->MayLink(*guest)) {
      ++guest;
      continue;
    }
    each.linked.insert(*guest);
    each.applicant->OnLink(*guest);
    guest = each.waiting.erase(guest);
  }
}

std::string StartSimulation::Story() const {
  std::string text;
  for (int r = 0; r < size_; ++r) {
    const Rank& each = ranks_[static_cast<size_t>(r)];
    const bool over = each.applicant && each.applicant->over();
    const bool paused = each.paused_until != TimePoint();
    const std::string end = each.dead   ? "died"
                            : each.done ? "ready"
                            : over      ? "failed: " + each.applicant->status().message()
                                        : "waits";
    text += "\n  rank " + std::to_string(r) + (paused ? " (stopped)" : "") + " after " +
            std::to_string(MillisecondsBetween(each.start, each.over_at)) + " ms " + end;
  }
  return text;
}

}  // namespace farandole
