// A description that is there already, as a proposal: what tests submit to an agreement that has no engine around it.
#pragma once

#include "controller/agreement.h"

namespace farandole {

class DescribedProposal final : public Proposal {
 public:
  explicit DescribedProposal(const Description& description) : description_(description) {}
  int set() const override { return description_.signature.set; }
  const std::string& name() const override { return description_.name; }
  int64_t turn() const override { return description_.turn; }
  const std::string& site() const override { return description_.site; }
  std::vector<int64_t> Extents() const override { return description_.extents; }
  bool Means(const Signature& signature) const override { return description_.signature == signature; }
  Description Describe() const override { return description_; }

 private:
  const Description& description_;
};

}  // namespace farandole
