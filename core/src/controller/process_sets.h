// The process sets of a job, kept alike by every rank and by the coordinator: ids are given in the order of the log.
//
// A set keeps its id for good; an id that was removed is not given out again. Channels (world/process_set.h) are: a new
// set takes the lowest that no living set with a common rank has. A value; one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "world/process_set.h"

namespace farandole {

using ProcessSetPtr = std::shared_ptr<const ProcessSet>;

Status NoProcessSet(int id, int my_rank);                     // for who wants to use one
Status InUse(int id, const std::string& title, int my_rank);  // for who wants to remove one

// How far one rank can be behind another: every set asks all ranks.
inline constexpr int kMaxSetsAhead = 4096;

class ProcessSets {
 public:
  // Set 0, all ranks, is there from the start.
  ProcessSets(const Layout& world, int my_rank);

  // Null when there is no such set, or no longer.
  ProcessSetPtr Find(int id) const;
  // The same on every rank, so whoever is asked answers for all. kInvalid: its ranks are in as many sets as there are
  // channels, or the job has made a million. REQUIRES: ranks ascend.
  Status CanAdd(const std::vector<int>& ranks) const;
  Status CanRemove(int id) const;  // kInvalid: there is none
  // The new set's id, or -1 when it cannot be added.
  int Add(std::vector<int> ranks);
  void Remove(int id);
  bool IsFuture(int id) const { return id >= next_id_ && id <= next_id_ + kMaxSetsAhead; }

 private:
  int FreeChannel(const std::vector<int>& ranks) const;  // -1: none

  Layout world_;
  int my_rank_;
  std::map<int, ProcessSetPtr> sets_;
  int next_id_ = 1;
};

}  // namespace farandole
