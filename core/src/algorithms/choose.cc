#include "algorithms/choose.h"

namespace farandole {

Algorithm ChooseAllreduce(size_t size_bytes, int participants, bool order_matters, Algorithm forced) {
  if (forced != Algorithm::kAuto) return forced;
  if (size_bytes <= 4096) return Algorithm::kExchange;
  (void)participants;
  (void)order_matters;
  return Algorithm::kDirect;
}

}  // namespace farandole
