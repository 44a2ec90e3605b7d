// The description of an operation by one rank, and the check that the descriptions of all ranks agree. Values without
// tensor data or pointers, and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "algorithms/plan.h"
#include "common/status.h"
#include "common/types.h"
#include "common/wire.h"
#include "world/process_set.h"

namespace farandole {

struct TensorSpec {
  DType dtype = DType::kFloat32;
  Shape shape;  // where rows differ: without the first dimension

  template <typename Visitor, typename... Self>
  static void Visit(Visitor&& visit, Self&... self) {
    visit("dtype", self.dtype...);
    visit("shape", self.shape...);
  }
  bool operator==(const TensorSpec& other) const { return AllEqual(*this, other); }
};

// The part of a description that must be equal on all ranks. A grouped call is one signature with several tensors.
struct Signature {
  int32_t set = 0;  // the process set's id
  OpKind kind = OpKind::kAllreduce;
  ReduceOp reduce = ReduceOp::kSum;
  int32_t root = 0;  // a rank of the world
  double prescale = 1.0;
  double postscale = 1.0;
  DeviceKind device = DeviceKind::kHost;  // where the tensors lie
  // The number of the backend that performs it; 0 is the engine's own, with its short cuts. All ranks derive it from
  // the other fields, so it is not compared.
  int32_t backend = 0;
  std::vector<TensorSpec> tensors;
  std::vector<int64_t> ranks;  // add_process_set: the ranks; remove_process_set: the id

  // Lists the fields in the order of comparison, with the names that messages use.
  template <typename Visitor, typename... Self>
  static void Visit(Visitor&& visit, Self&... self) {
    visit("operation", self.kind...);
    visit("process set", self.set...);
    visit("tensors", self.tensors...);
    visit("ranks", self.ranks...);
    visit("reduction", self.reduce...);
    visit("device", self.device...);
    visit("root rank", self.root...);
    visit("prescale factor", self.prescale...);
    visit("postscale factor", self.postscale...);
    visit(kNotCompared, self.backend...);
  }
  bool operator==(const Signature& other) const { return AllEqual(*this, other); }
  bool operator!=(const Signature& other) const { return !(*this == other); }
  int64_t TotalBytes() const;  // not for allgather and alltoall, whose first dimension is in the counts
  // How many counts each rank adds, which may differ between ranks: allgather one per tensor (its rows), alltoall one
  // per tensor and position (the rows for it).
  size_t CountsPerRank(int set_size) const;
};

// The facts for ChooseProtocol that every rank of the set knows.
OperationFacts FactsOf(const Signature& signature, const ProcessSet& set);

// "allreduce 'grad.w'" or "unnamed allreduce number 7". sequence_number: of unnamed operations; -1 for named ones.
std::string TitleOf(OpKind kind, int set, const std::string& name, int64_t sequence_number);
// True for the title of an operation of the set whose name is the prefix, alone or before a number or "#". In a graph
// of TensorFlow the names of functions and the kind come first: "allreduce 'call/allreduce.grad.0'".
bool IsTitleOf(const std::string& title, int set, const std::string& prefix);

struct Description {
  // The user's name, or for an unnamed operation "#<fingerprint of the signature>.<sequence number modulo the size of
  // the pool>".
  std::string name;
  int64_t sequence_number = -1;  // unnamed operations: how many this rank had submitted before; -1 for named ones
  Signature signature;
  std::vector<int64_t> counts;  // Signature::CountsPerRank of them, tensor by tensor
  std::string site;             // where the user's script called, "train.py:12"; "" when not known. For messages only
  bool awaited = false;         // the caller waits for it next, and probably for each of its name
  // Why the rank cannot make the call; "" when it can. A refusal is matched like a call: the others' call fails, and
  // the next ones match again. The refusing rank has nothing in flight, and knows no more of the call than its set,
  // except where a member refuses the removal of a set: that is a whole description.
  std::string refusal;
  uint32_t replaces = 0;  // the serial of the assignment that this rank gives up with its description; 0: of none

  bool named() const { return sequence_number < 0; }
  // A named change of process sets is called by the members of that set alone, an unnamed one by all ranks.
  bool IsByMembers() const { return named() && ChangesSets(signature.kind); }
  std::string Title() const { return TitleOf(signature.kind, signature.set, name, sequence_number); }

  // True when a rank may send it.
  bool IsValid() const;

  FRD_FIELDS(name, sequence_number, signature, counts, site, awaited, refusal, replaces)
};

// `name` is empty for an unnamed operation, which the sequence number identifies.
Description RefusalOf(int set, std::string name, int64_t sequence_number, std::string site, std::string why);

// True when its counts and ranks are such as a rank of a set of this size may send.
bool FitsSet(const Description& description, int set_size, int world_size);

// 64 bits that differ, in practice, when the signatures do; for names of unnamed operations, never for correctness.
uint64_t Fingerprint(const Signature& signature);

// Ok when all descriptions agree, else kMismatch: one sentence with the operation, and the rank that has refused it and
// why; or two ranks that differ, both their values, and how many agree with the first of the two: most ranks do.
// REQUIRES: some description is not a refusal.
Status FindMismatch(const std::map<int, Description>& descriptions);

// The bytes that the counts of all positions take in both buffers.
int64_t CountsBufferBytes(const Signature& signature, const ProcessSet& set);
// True when a node with several members collects their data in slots before its leader sends the partial.
inline bool CollectsInSlots(Protocol protocol, const Layout& set) {
  return protocol == Protocol::kEarly && set.node_count() < set.size();
}
// The bytes of both buffers that an operation needs under its protocol: for counts, or for the data in slots. 0: it
// needs none.
int64_t BufferBytesOf(const Signature& signature, const ProcessSet& set, Protocol protocol);

}  // namespace farandole
