#include "world/registrar.h"

#include <algorithm>

#include "transport/socket.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTellAgain{500};
constexpr milliseconds kFirstWarning{10'000};
constexpr milliseconds kWarnAgain{60'000};

}  // namespace

Registrar::Registrar(int size, std::string place, TimePoint now, TimePoint deadline)
    : size_(size),
      place_(std::move(place)),
      deadline_(deadline),
      told_(now),
      warn_at_(now + kFirstWarning),
      began_(now),
      here_(static_cast<size_t>(size), false),
      said_(static_cast<size_t>(size), false),
      apart_(static_cast<size_t>(size), false),
      cards_(static_cast<size_t>(size)),
      outcomes_(static_cast<size_t>(size)) {
  for (Card& card : cards_) card.version.clear();
  here_[0] = true;
}

Status Registrar::Admit(int rank, TimePoint now) {
  if (rank < 1 || rank >= size_) {
    return Invalid("rank " + std::to_string(rank) + " does not belong to a job of " + std::to_string(size_) + " ranks");
  }
  const auto at = static_cast<size_t>(rank);
  if (here_[at])
    return Invalid(NameOfRank(cards_, rank) + " is there already; are two processes started with one rank?");
  if (over()) return {Code::kPeerLost, "the job is not starting any more"};
  here_[at] = true;
  told_ = now;
  letters_.push_back({rank, {StartMessage::kWaiting, 0, Code::kOk, Missing(), "", {}}});
  return Status::Ok();
}

void Registrar::OnMessage(int rank, const StartMessage& message, TimePoint now) {
  if (over()) return;
  if (message.kind == StartMessage::kGiveUp) {
    // Nobody is named: who is missed is known best here.
    if (message.ranks.empty()) return GiveUpWaiting(rank, message.text);
    GiveUp({message.code, message.text}, message.ranks);
  } else if (message.kind == StartMessage::kCard && phase_ == kCards) {
    OnCard(rank, message, now);
  } else if (message.kind == StartMessage::kOutcome && phase_ != kCards && message.round <= round_) {
    if (message.round == round_ && phase_ == kMeeting) OnOutcome(rank, message, now);
  } else if (message.kind == StartMessage::kReady && phase_ == kLinking) {
    said_[static_cast<size_t>(rank)] = true;
    if (Missing().empty()) {
      ToAll({StartMessage::kGo, round_, Code::kOk, {}, "", {}});
      phase_ = kOver;
    }
  } else {
    GiveUp(Internal(NameOfRank(cards_, rank) + " said something out of turn while the job started"), {rank});
  }
}

void Registrar::OnCard(int rank, const StartMessage& message, TimePoint now) {
  Card& card = cards_[static_cast<size_t>(rank)];
  if (const Status read = Card::Decode(message.text, &card); !read.ok()) return GiveUp(read, {rank});
  said_[static_cast<size_t>(rank)] = true;
  // A rank that expects another number of ranks need not be waited with: some will never come.
  const bool other_size = card.version == Card::CoreVersion() && card.size != size_;
  if (!other_size && !Missing().empty()) return;
  std::vector<int> odd;
  if (const Status same = CheckCards(cards_, &odd); !same.ok()) return GiveUp(same, odd);
  BeginRound(now);
}

void Registrar::BeginRound(TimePoint now) {
  layout_ = MakeLayout(cards_, apart_);
  Enter(kMeeting, now);
  StartMessage message{StartMessage::kLayout, round_, Code::kOk, {}, "", {}};
  for (int r = 0; r < size_; ++r) {
    if (apart_[static_cast<size_t>(r)]) message.ranks.push_back(r);
    if (round_ == 0) message.texts.push_back(cards_[static_cast<size_t>(r)].Encode());
  }
  ToAll(message);
}

void Registrar::OnOutcome(int rank, const StartMessage& message, TimePoint now) {
  outcomes_[static_cast<size_t>(rank)] = message;
  said_[static_cast<size_t>(rank)] = true;
  for (const auto& group : layout_.groups) {
    // One failure decides for its group: who still tries need not be waited for.
    const bool decided =
        std::all_of(group.begin(), group.end(), [&](int r) { return said_[static_cast<size_t>(r)]; }) ||
        std::any_of(group.begin(), group.end(),
                    [&](int r) { return !outcomes_[static_cast<size_t>(r)].ranks.empty(); });
    if (!decided) return;
  }
  EndRound(now);
}

void Registrar::EndRound(TimePoint now) {
  bool all_met = true;
  for (const auto& group : layout_.groups) {
    const auto failed = std::find_if(group.begin(), group.end(),
                                     [&](int r) { return !outcomes_[static_cast<size_t>(r)].ranks.empty(); });
    if (failed == group.end()) continue;
    const std::string& why = outcomes_[static_cast<size_t>(*failed)].text;
    // Alone it needs no meeting, so this is no matter of sharing.
    if (group.size() == 1) return GiveUp(Internal(NameOfRank(cards_, *failed) + ": " + why), {*failed});
    all_met = false;
    notes_.push_back(NamesOfRanks(cards_, outcomes_[static_cast<size_t>(*failed)].ranks) +
                     " cannot share memory, tcp is used: " + why);
    TakeApart(group);
  }
  if (!all_met) {
    ++round_;
    BeginRound(now);
  } else if (layout_.group_count() > 1) {
    BeginLinking(now);
  } else {
    ToAll({StartMessage::kGo, round_, Code::kOk, {}, "", {}});
    phase_ = kOver;
  }
}

void Registrar::TakeApart(const std::vector<int>& group) {
  for (int r : group) {
    if (round_ > 0) apart_[static_cast<size_t>(r)] = true;
    for (int blamed : outcomes_[static_cast<size_t>(r)].ranks) {
      if (std::find(group.begin(), group.end(), blamed) != group.end()) apart_[static_cast<size_t>(blamed)] = true;
    }
  }
}

void Registrar::BeginLinking(TimePoint now) {
  StartMessage message{StartMessage::kLinks, round_, Code::kOk, {}, "", {}};
  for (const StartMessage& outcome : outcomes_) message.texts.push_back(outcome.text);
  Enter(kLinking, now);
  ToAll(message);
}

void Registrar::Enter(Phase phase, TimePoint now) {
  phase_ = phase;
  told_ = now;
  told_missing_.clear();
  said_.assign(said_.size(), false);
  outcomes_.assign(outcomes_.size(), {});
}

void Registrar::OnLost(int rank, const std::string& how) {
  if (over()) return;
  GiveUp({Code::kPeerLost, NameOfRank(cards_, rank) + " " + how + " while the job started"}, {rank});
}

void Registrar::OnTime(TimePoint now) {
  if (over()) return;
  if (now >= deadline_) return GiveUpWaiting(0, std::to_string(MillisecondsBetween(began_, now) / 1000) + " s");
  if (now >= warn_at_) {
    notes_.push_back("rank 0 has waited " + std::to_string(MillisecondsBetween(began_, now) / 1000) + " s for " +
                     NamesOfRanks(cards_, Missing()) + AtEndpoint(place_) +
                     "; look at the output there: did it end, or not call init()? The job gives up after " +
                     std::to_string(MillisecondsBetween(began_, deadline_) / 1000) + " s (FARANDOLE_START_TIMEOUT)");
    warn_at_ = now + kWarnAgain;
  }
  if (now >= told_ + kTellAgain) TellWhoIsMissing(now);
}

void Registrar::TellWhoIsMissing(TimePoint now) {
  told_ = now;
  std::vector<int> missing = Missing();
  if (missing == told_missing_) return;
  ToAll({StartMessage::kWaiting, round_, Code::kOk, missing, "", {}});
  told_missing_ = std::move(missing);
}

TimePoint Registrar::next() const {
  return over() ? TimePoint::max() : std::min({deadline_, warn_at_, told_ + kTellAgain});
}

void Registrar::GiveUpWaiting(int rank, const std::string& how_long) {
  std::vector<int> odd;
  if (const Status same = CheckCards(cards_, &odd); !same.ok()) return GiveUp(same, odd);
  static constexpr const char* kNotYet[] = {"did not come", "did not meet the ranks that they share memory with",
                                            "did not get a data connection to every other group", ""};
  const std::vector<int> missing = Missing();
  std::string text = NameOfRank(cards_, rank) + " waited " + how_long + " for " + NamesOfRanks(cards_, missing) +
                     " of " + std::to_string(size_) + AtEndpoint(place_) + ": they " + kNotYet[phase_] +
                     " before the start timeout (FARANDOLE_START_TIMEOUT)";
  if (phase_ == kCards && !turned_away_.empty()) {
    text += "; connections were turned away, the last because " + turned_away_;
  }
  GiveUp({Code::kDeadline, text}, missing);
}

void Registrar::GiveUp(Status why, std::vector<int> culprits) {
  ToAll({StartMessage::kGiveUp, round_, why.code(), std::move(culprits), why.message(), {}});
  phase_ = kOver;
}

std::vector<int> Registrar::Missing() const {
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r) {
    if (!said_[static_cast<size_t>(r)]) ranks.push_back(r);
  }
  return ranks;
}

void Registrar::ToAll(const StartMessage& message) {
  for (int r = 0; r < size_; ++r) {
    if (here_[static_cast<size_t>(r)]) letters_.push_back({r, message});
  }
}

}  // namespace farandole
