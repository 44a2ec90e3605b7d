// Makes a World: meets the others at the store, finds out who shares memory, hands arenas, bells and pidfds round,
// opens data links.
//
//   1  store      everyone meets at rank 0                         4  exchange  did the meeting work? who failed is on its own
//   2  exchange   cards -> layout, equal everywhere                5  exchange  where do I listen for data? (several groups only)
//   3  meeting    members connect to their group's lowest rank     6  links     higher ranks connect to lower ones
//
// Blocking, with a deadline; one thread.
#pragma once

#include <memory>
#include <string>

#include "common/status.h"
#include "transport/handshake.h"
#include "world/world.h"

namespace farandole {

struct WorldSpec {
  int rank = 0;
  int size = 1;
  std::string store;  // endpoint of rank 0, unused when size is 1
  Key key{};          // the job's secret
  bool arenas = true;
  std::string interface_address;  // where data links listen
  ArenaPlan plan;
};

Status Bootstrap(const WorldSpec& spec, Deadline deadline, std::unique_ptr<World>* world);

}  // namespace farandole
