// The WorldSpecs of worlds that tests start with Bootstrap.
#pragma once

#include <unistd.h>

#include <random>
#include <string>
#include <vector>

#include "world/world.h"

namespace farandole {

inline Key KeyOf(uint8_t byte) {
  Key key;
  key.fill(byte);
  return key;
}

// An endpoint that no process has used yet.
inline std::string FreshEndpoint() {
  static std::random_device device;
  return "unix:farandole-test-" + std::to_string(getpid()) + "-" + std::to_string(device());
}

inline std::vector<WorldSpec> SpecsOf(int size, const std::string& endpoint) {
  std::vector<WorldSpec> specs;
  for (int r = 0; r < size; ++r) {
    WorldSpec spec;
    spec.rank = r;
    spec.size = size;
    spec.rendezvous_endpoint = endpoint;
    spec.key = KeyOf(7);
    spec.interface_address = "127.0.0.1";
    spec.plan = {8192, 4096};
    specs.push_back(spec);
  }
  return specs;
}

}  // namespace farandole
