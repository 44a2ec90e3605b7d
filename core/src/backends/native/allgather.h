// Allgather within one group: everybody puts its part chunk by chunk, everybody copies all the others' chunks.
#pragma once

#include "backends/backend.h"
#include "backends/native/staged.h"

namespace farandole {

class StagedAllgather final : public StagedOperation {
 public:
  StagedAllgather(const Staging* staging, uint64_t first_round, const Work* work);

 protected:
  void Put(uint64_t t) override;
  Status Combine(uint64_t t, bool* ready, bool* moved) override;
  bool Finish(uint64_t t) override;

 private:
  size_t ChunkOf(int member, uint64_t t) const;  // bytes of the member's part in round t

  const Work* work_;
  std::vector<size_t> offsets_;
};

}  // namespace farandole
