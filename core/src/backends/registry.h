// The back ends of this build in order of preference: the first that supports a piece of work performs it. The
// driver alone uses it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "common/config.h"
#include "world/world.h"

namespace farandole {

class Registry {
 public:
  Registry(World* world, const Settings& settings);
  // Null when none supports the work.
  Backend* Find(const Work& work) const;
  void Forget(int set_id);
  // What they are called, the preferred one first.
  static std::vector<std::string> Names();
  // How much arena memory the back ends want for each member of a group.
  static size_t StagingBytesPerMember();
  // Among how many ranks an operation can be.
  static int MostRanks(OpKind kind);

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
};

}  // namespace farandole
