// Data connections to the ranks of other groups: carries out what an Applicant wants of it, and tells it the result.
// The higher rank connects to the lower one, twice where there are put streams: a link is there when all of it is. One
// thread.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "transport/connections.h"
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
  using Connection = std::pair<int, std::string>;  // a rank, and what it is for

  void LetIn(Applicant* applicant);
  void Keep(const Connection& which, Descriptor descriptor, Applicant* applicant);

  const WorldSpec& spec_;
  Lobby lobby_;
  std::map<Connection, Dialer> calls_;        // to lower ranks
  std::map<Connection, Descriptor> waiting_;  // higher ranks that were told earlier than this one that links are wanted
  std::map<Connection, Descriptor> made_;
};

}  // namespace farandole
