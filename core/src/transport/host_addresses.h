// The addresses by which other machines may reach this host.
//
// Pure but for the system's answer; any thread.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"

namespace farandole {

// Of the interfaces that are up, in their order, each with the length of its network's part: "10.0.0.7/24",
// "2001:db8::7/64". Without loopback and without addresses that mean something on one cable only.
Status HostAddresses(std::vector<std::string>* addresses);

}  // namespace farandole
