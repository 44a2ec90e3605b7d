// For tests of a negotiation without an engine: an operation made of a given description, and a layout.
#pragma once

#include "controller/negotiation.h"

namespace farandole {

class ReadyDescription final : public DescribedOperation {
 public:
  explicit ReadyDescription(const Description& description) : description_(description) {}
  int set() const override { return description_.signature.set; }
  std::string_view name() const override { return description_.name; }
  int64_t sequence_number() const override { return description_.sequence_number; }
  std::string_view site() const override { return description_.site; }
  std::vector<int64_t> Counts() const override { return description_.counts; }
  bool Matches(const Signature& signature) const override { return description_.signature == signature; }
  Description Describe() const override { return description_; }

 private:
  const Description& description_;
};

// One rank for each machine in the list; a machine listed several times has several.
inline Layout LayoutOf(const std::vector<std::string>& machines) {
  std::vector<PeerInfo> peers;
  for (const std::string& machine : machines) peers.push_back({"h", machine, 1, true, ""});
  return MakeLayout(peers);
}

}  // namespace farandole
