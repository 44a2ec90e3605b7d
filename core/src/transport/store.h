// Where the ranks of a job first meet: every rank reaches rank 0 at an endpoint that all know, proves that it knows the
// job's key, and exchanges bytes with all. The connections live on as the control connections of the epoch.
//
//   rank 1 --.            Exchange: everyone sends to rank 0, rank 0 sends all of it to everyone.
//   rank 2 ---> rank 0    Used a few times per init.
//   rank 3 --'
//
// Blocking, with a deadline; one thread.
#pragma once

#include <string>
#include <vector>

#include "common/descriptor.h"
#include "common/status.h"
#include "transport/handshake.h"
#include "transport/socket.h"

namespace farandole {

class Store {
 public:
  // Returns when all `size` ranks are connected (rank 0) or rank 0 is (others). kDeadline names the ranks that did not
  // come.
  Status Meet(const std::string& endpoint, const Key& key, int rank, int size, Deadline deadline);

  // all[r] is what rank r gave. Called by every rank equally often.
  Status Exchange(const std::string& mine, std::vector<std::string>* all, Deadline deadline);

  // connections[r] on rank 0, connections[0] on the others; the rest is empty. The store is of no further use.
  std::vector<Descriptor> TakeConnections() { return std::move(connections_); }

 private:
  Status Serve(const std::string& endpoint, const Key& key, Deadline deadline);
  Status Join(const std::string& endpoint, const Key& key, Deadline deadline);
  Status Admit(Descriptor connection, const Key& key, Deadline deadline);
  Status Collect(std::vector<std::string>* all, Deadline deadline);
  std::string Missing() const;

  int rank_ = 0;
  int size_ = 1;
  std::vector<Descriptor> connections_;
};

}  // namespace farandole
