// The scripts of the ranks of a simulated job: for each rank a list of calls, as a user's script makes them.
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "controller/signature.h"

namespace farandole {

// Labels stand for the ids of sets that are added in no fixed order: in `set` of a signature, and in a removal.
inline constexpr int kFirstLabel = 1 << 24;

struct Call {
  enum Kind { kOperation, kWait, kJoin, kLeave } kind = kOperation;
  uint64_t tag = 0;  // equal on the ranks that mean the same call by it; never 0
  Description description;
  bool unnamed = false;  // sequence number and name are given when it is made
  bool may_fail = false;
  int label = 0;  // of the set that the call adds
};

using Script = std::vector<Call>;
using Ranks = std::vector<int>;

inline Description Sum(const std::string& name, int64_t elements, int set = 0) {
  Description description;
  description.name = name;
  description.signature.set = set;
  description.signature.tensors = {{DType::kInt64, {elements}}};
  return description;
}
// Small where all ranks of the set share memory, early elsewhere. The elements say which ranks took part. There are
// several lines of memory of them, so that each rank has a share.
inline constexpr int64_t kSmallElements = 40;
inline Description Small(const std::string& name, int set = 0) { return Sum(name, kSmallElements, set); }
inline Description Large(const std::string& name, int set = 0) { return Sum(name, 1 << 17, set); }

inline Description Of(OpKind kind, const std::string& name, int set = 0) {
  Description description = Large(name, set);
  description.signature.kind = kind;
  if (!CarriesTensors(kind)) description.signature.tensors.clear();
  return description;
}
inline Description Broadcast(const std::string& name, int root, int set = 0) {
  Description description = Of(OpKind::kBroadcast, name, set);
  description.signature.root = root;
  return description;
}
inline Description Allgather(const std::string& name, int64_t rows, int set = 0) {
  Description description = Of(OpKind::kAllgather, name, set);
  description.signature.tensors[0].shape = {3};
  description.counts = {rows};
  return description;
}
inline Description Alltoall(const std::string& name, std::vector<int64_t> rows, int set = 0) {
  Description description = Of(OpKind::kAlltoall, name, set);
  description.signature.tensors[0].shape = {3};
  description.counts = std::move(rows);
  return description;
}

inline Ranks RanksBelow(int size) {
  Ranks ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class Scripts {
 public:
  using Make = std::function<Description(int rank)>;

  explicit Scripts(int size) : scripts_(static_cast<size_t>(size)) {}

  // One call on each of the ranks; the result of `make` may differ.
  void On(const Ranks& ranks, const Make& make, bool unnamed = false, bool may_fail = false) {
    const uint64_t tag = NextTag();
    for (int rank : ranks)
      scripts_[static_cast<size_t>(rank)].push_back({Call::kOperation, tag, make(rank), unnamed, may_fail});
  }
  void On(const Ranks& ranks, const Description& description) {
    On(ranks, [&](int) { return description; });
  }
  void All(const Description& description) { On(Everyone(), description); }
  void AllUnnamed(const Description& description) {
    On(Everyone(), [&](int) { return description; }, true);
  }

  // Has this rank refuse its last call.
  void RefuseLast(int rank) { scripts_[static_cast<size_t>(rank)].back().description.refusal = "it cannot"; }

  // Sets get the ids 1, 2, 3 ... in the order in which they are added. Called by all, or by those that have not joined.
  void AddSet(const Ranks& ranks, bool may_fail = false, const Ranks& callers = {}) {
    ChangeSets(OpKind::kAddProcessSet, {ranks.begin(), ranks.end()}, may_fail, callers);
  }
  void RemoveSet(int id, bool may_fail = false, const Ranks& callers = {}) {
    ChangeSets(OpKind::kRemoveProcessSet, {id}, may_fail, callers);
  }

  // Adds or removes the set that has this label: `callers` are all ranks, or by_members, the members alone.
  void ChangeLabelled(OpKind kind, int label, const Ranks& members, bool by_members, const Ranks& callers) {
    Description description = Of(kind, by_members ? "set " + std::to_string(label) : "");
    const bool adds = kind == OpKind::kAddProcessSet;
    if (adds) description.signature.ranks.assign(members.begin(), members.end());
    if (!adds) description.signature.ranks = {label};
    On(callers, [&](int) { return description; }, !by_members);
    for (int rank : callers) scripts_[static_cast<size_t>(rank)].back().label = adds ? label : 0;
  }

  // Waits until all calls of the rank are done.
  void Wait() {
    for (int rank : Everyone()) Plain(Call::kWait, rank);
  }
  void Join(int rank) { Plain(Call::kJoin, rank); }
  void Leave(int rank) { Plain(Call::kLeave, rank); }

  int size() const { return static_cast<int>(scripts_.size()); }
  Ranks Everyone() const { return RanksBelow(size()); }
  const Script& of(int rank) const { return scripts_[static_cast<size_t>(rank)]; }

 private:
  // Counts over all jobs of a test, so that no result of an earlier call can pass for a later one's.
  static uint64_t NextTag() {
    static uint64_t last = 0;
    return ++last;
  }
  void Plain(Call::Kind kind, int rank) { scripts_[static_cast<size_t>(rank)].push_back({kind, 0, {}, false, false}); }
  void ChangeSets(OpKind kind, const std::vector<int64_t>& ranks, bool may_fail, const Ranks& callers) {
    Description description = Of(kind, "");
    description.signature.ranks = ranks;
    On(callers.empty() ? Everyone() : callers, [&](int) { return description; }, true, may_fail);
  }

  std::vector<Script> scripts_;
};

}  // namespace farandole
