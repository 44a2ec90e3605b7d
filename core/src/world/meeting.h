// The meeting of a group around its leader's arena: carries out what an Applicant wants of it, and tells it the result.
//
//   member                                            leader
//     connects to the endpoint on the leader's card     lets those in whom the applicant wants
//     its event, its pidfd ------------------------>    ... until all are there
//     <------------------------ the arena, all events, all pidfds
//
// A member whose leader is not in the same round yet is sent away and comes again. One thread.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "transport/connections.h"
#include "world/applicant.h"
#include "world/bootstrap.h"

namespace farandole {

class Meeting {
 public:
  explicit Meeting(const WorldSpec& spec) : spec_(spec) {}

  // Where members would come; empty when this machine does not let us listen.
  std::string Open();

  void Begin(TimePoint now, Applicant* applicant);  // kMeet
  void HandOut(Applicant* applicant);               // kHandOut
  void Watch(PollSet* set) const;
  void Step(const PollSet& set, TimePoint now, Applicant* applicant);
  // Why the leader cannot be reached, if so.
  std::string detail() const { return call_ ? call_->last_refusal() : ""; }

  // REQUIRES: the applicant is done.
  void MoveInto(World* world);
  // The start has failed for this rank. Others of its group may be on their way already: they find here because of whom
  // when they see that this process ends. The last call.
  void TellGroup(const Status& why, int culprit);

 private:
  void LetIn(Guest guest, Applicant* applicant);
  void TakeHandles(int rank, Applicant* applicant);
  void StepMember(const PollSet& set, TimePoint now, Applicant* applicant);
  Status Enter();
  Status TakeShared();
  Hello MyHello() const;

  const WorldSpec& spec_;
  Lobby lobby_;
  std::vector<int> ranks_;
  size_t member_ = 0;
  int round_ = 0;
  Arena arena_;
  std::vector<Descriptor> events_, pidfds_;  // by member
  std::map<int, Descriptor> guests_;         // of the leader, by rank
  std::optional<Dialer> call_;               // of a member
  Descriptor leader_;
};

}  // namespace farandole
