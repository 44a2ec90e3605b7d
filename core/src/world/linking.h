// Data connections to the ranks of other groups: carries out what an Applicant wants of it, and tells it the result. The
// higher rank connects to the lower one. One thread.
#pragma once

#include <map>
#include <string>

#include "transport/dialer.h"
#include "transport/lobby.h"
#include "world/applicant.h"
#include "world/bootstrap.h"

namespace farandole {

class Linking {
 public:
  explicit Linking(const WorldSpec& spec) : spec_(spec) {}

  void Open(Applicant* applicant);                  // kListen
  void Begin(TimePoint now, Applicant* applicant);  // kLink
  void Watch(PollSet* set) const;
  void Step(const PollSet& set, TimePoint now, Applicant* applicant);
  // Which rank refuses what, if so.
  std::string detail() const;

  // REQUIRES: the applicant is done.
  void MoveInto(World* world);

 private:
  void LetIn(Applicant* applicant);

  const WorldSpec& spec_;
  Lobby lobby_;
  std::map<int, Dialer> calls_;        // to lower ranks
  std::map<int, Descriptor> waiting_;  // higher ranks that were told earlier than this one that links are wanted
  std::map<int, Descriptor> links_;
};

}  // namespace farandole
