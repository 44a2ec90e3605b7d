#include "backends/introduction.h"

namespace farandole {

Status Introduction::Start(const ProcessSet& set, std::string greeting) {
  const auto positions = static_cast<size_t>(set.size());
  greeting_ = std::move(greeting);
  all_.assign(positions * greeting_.size(), '\0');
  work_ = Work();
  work_.kind = OpKind::kAllgather;
  work_.set = &set;
  work_.dtype = DType::kUint8;
  work_.segments = {{greeting_.data(), all_.data(), greeting_.size()}};
  work_.rank_bytes.assign(positions, greeting_.size());
  return carrier_->Start(&work_);
}

std::vector<std::string> Introduction::greetings() const {
  std::vector<std::string> greetings;
  for (size_t at = 0; at < all_.size(); at += greeting_.size()) greetings.push_back(all_.substr(at, greeting_.size()));
  return greetings;
}

}  // namespace farandole
