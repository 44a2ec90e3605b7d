// A schedule lists the sends, receives and reductions of one participant for one chunk of one collective. It is pure
// data: pure functions of (participants, me) make it, tests need neither threads nor sockets, and the loop in runner.h
// caches it and repeats it for every chunk. Values; any thread may read a schedule that is complete.
//
// A chunk is cut into `block_count` blocks; partition.h says where. Participants have the numbers 0 .. participants-1
// (shared-memory nodes by lowest rank, or ranks); the caller maps them to links.
//
//   data     [ block 0 | block 1 | ... ]      the caller's memory, reduced or filled in place
//   scratch  [ slot 0 ][ slot 1 ] ...         received partials, one block each, owned by the loop
//
// Phases are the software pipeline over the chunks: at tick k the loop takes phase 0 of chunk k, phase 1 of chunk k -
// lag, phase 2 of chunk k - 2 lag ... (partition.h), so that a link carries other chunks while this chunk waits for a
// reduction or a far rank.
//
//   tick           0           1           2           3           4          lag = 2, three chunks, three phases
//   chunk 0     phase 0                 phase 1                 phase 2
//   chunk 1                 phase 0                 phase 1                ...
//   chunk 2                             phase 0                 phase 1    ...
//
// Invariants of every schedule, which schedule_test.cc checks:
// - Sends to a peer stand in the order of that peer's receives from us, with the same block and phase each.
// - A step stands behind all steps in its `after`, and its phase is not lower than theirs.
// - `after` covers, directly or through others, every earlier step that touches the same block or slot, unless both
//   only read.
// - A slot is received and reduced in the same phase.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace farandole {

enum class StepKind : uint8_t {
  kSend,         // data block `block` -> participant `peer`
  kRecvData,     // participant `peer` -> data block `block`
  kRecvScratch,  // participant `peer` -> scratch slot `slot`, as long as block `block`
  kReduce,       // data block `block` = R(operands): scratch slots, or kOwnData for the data block itself, in order
};

inline constexpr int kOwnData = -1;
inline constexpr int kNone = -1;  // instead of a peer or a slot

struct Step {
  StepKind kind = StepKind::kSend;
  int phase = 0;
  int block = 0;
  int peer = kNone;
  int slot = kNone;
  bool scale = false;         // kReduce only: apply the operation's scale to this reduction (the last one of the block)
  std::vector<int> operands;  // kReduce only
  std::vector<int> after;     // indices of earlier steps that must be complete
};

struct Schedule {
  int block_count = 1;
  int phase_count = 1;  // the same for all participants, since it decides the lag
  int slot_count = 0;   // Append sets it
  std::vector<Step> steps;

  // Append a step and return its index.
  int Send(int phase, int block, int peer, std::vector<int> after);
  int RecvData(int phase, int block, int peer, std::vector<int> after);
  int RecvScratch(int phase, int block, int peer, int slot, std::vector<int> after);
  int Reduce(int phase, int block, std::vector<int> operands, bool scale, std::vector<int> after);

 private:
  int Append(Step step);
};

// A half-open range of elements or bytes.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// One cache line, so that no two participants reduce into the same line.
inline constexpr int64_t kBorderBytes = 64;

// Elements of `block` when `element_count` elements are cut into `block_count` blocks of nearly equal size. Borders
// fall on multiples of kBorderBytes; blocks may be empty. REQUIRES: element_bytes is 1, 2, 4 or 8.
Range BlockRange(int64_t element_count, size_t element_bytes, int block, int block_count);

// ---- The schedules, one function each. Pure; any thread. collectives/shard_exchange.cc calls them, see plan.h.
//
//   schedule                 data per participant and direction   hops                tree order (reduce.h)
//   DirectAllreduce          2 (n-1)/n                            2                   yes
//   ExchangeAll              n-1                                  1                   yes
//   RingAllreduce            2 (n-1)/n                            2 (n-1)             no
//   TreeAllreduce            1, at an inner node up to log2(n)    2 log2(n)           yes
//   PairwiseReduceScatter    (n-1)/n                              1                   yes
//   DirectAllgather          n-1 blocks                           1                   reduces nothing
//   RingAllgather            n-1 blocks                           n-1                 reduces nothing
//   PairwiseAlltoall         n-1 blocks                           1                   reduces nothing
//   TreeBroadcast            1, at an inner node up to log2(n)    log2(n)             reduces nothing
//
// Sources: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005
// (direct, pairwise, tree); P. Patarasuk, X. Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of
// Workstations", 2009 (ring).
//
// REQUIRES everywhere: 0 <= me, root < participants.

// ---- direct: every participant sends to every other, and none forwards
//
//   DirectAllreduce, three participants, block j owned by j:
//
//     phase 0                               reduction by the owner           phase 1
//     0 : sends block 1 -> 1, block 2 -> 2     0 : block 0 = R(of 0, 1, 2)      0 : sends block 0 -> 1, 2
//     1 : sends block 2 -> 2, block 0 -> 0     1 : block 1 = R(of 0, 1, 2)      1 : sends block 1 -> 2, 0
//     2 : sends block 0 -> 0, block 1 -> 1     2 : block 2 = R(of 0, 1, 2)      2 : sends block 2 -> 0, 1
//
// Direct moves the same bytes as a ring in two hops, and the owner has all contributions at once, so it can reduce in
// the fixed tree order. At distance d each participant sends to me + d and receives from me - d (modulo the number of
// participants), so that n participants send to n different receivers at any time.

// One block per participant; block j is reduced by participant j.
Schedule DirectAllreduce(int participants, int me);

// For small messages: one block, sent whole to all others; each participant reduces in the fixed tree order. One hop.
Schedule ExchangeAll(int participants, int me);

// One block per participant; the block of `me` is in place already.
Schedule DirectAllgather(int participants, int me);

// ---- pairwise: every participant has a different block for every other one, and none forwards
//
// The distances are those of direct. All steps may be under way at once; the links decide which of them move.

// Block j goes to participant j, block participants + j comes from it. Blocks differ in size, and a participant knows
// only the sizes of its own blocks. That is enough, because no step waits for another one.
Schedule PairwiseAlltoall(int participants, int me);

// One block per participant; block j is reduced by participant j. The others' blocks are only read.
Schedule PairwiseReduceScatter(int participants, int me);

// ---- ring: each participant sends to the next and receives from the previous one only
//
//      .--> 0 --> 1 --.        reduce-scatter, step t: participant i sends block i - t, reduces block i - t - 1
//      |              |        allgather, step t:      participant i sends block i + 1 - t, receives block i - t
//      '--- 3 <-- 2 <-'        (all modulo the number of participants)
//
//   blocks "sent, reduced"   participant 0       1        2        3
//   reduce-scatter  t = 0            0, 3     1, 0     2, 1     3, 2
//                   t = 1            3, 2     0, 3     1, 0     2, 1
//                   t = 2            2, 1     3, 2     0, 3     1, 0
//   complete                            1        2        3        0
//
// A participant needs only two links. The sum of block b starts at participant b and goes round, in an order that
// differs from the tree order and from block to block. So the ring is only for two participants, for integers, minimum
// and maximum, whose order cannot matter, or when the user allows any order.
//
// Every step has its own phase, so while a chunk waits for one step, the links carry other steps of other chunks.

// One block per participant.
Schedule RingAllreduce(int participants, int me);

// One block per participant; the block of `me` is in place already.
Schedule RingAllgather(int participants, int me);

// ---- tree: few messages, for data too small to fill the links, over any number of participants
//
// It is the binomial tree of Thakur et al. (above). The parent of participant i is i without its lowest set bit:
//
//   0 --+-- 1                      level 0: odd numbers send to their left neighbour
//       +-- 2 --- 3                level 1: 2, 6 send to 0, 4
//       +-- 4 --+-- 5              level 2: 4 sends to 0
//               +-- 6              (7 participants; 7 would hang below 6)
//
// The reduction up this tree is that of reduce.h: R(S) = R(first p) + R(rest), p the largest power of two below |S|.
// Claim: after level j, participant i (a multiple of 2^(j+1)) holds R(S), S = {i .. i+2^(j+1)-1} as far as these exist.
// Before level 0 it holds itself, R of one. At level j it holds R of the 2^j participants from i on, and its child
// i+2^j, if there is one, R of those from i+2^j on, which are between 1 and 2^j many. So |S| lies in (2^j, 2^(j+1)], p
// is 2^j, and the reduction (mine, child's) is R(first p) + R(rest). Without a child nothing is added and the claim
// holds as it stands.
//
// Each level has its own phase, so a long message flows through the tree chunk by chunk.

// One block, reduced up to participant 0 in the fixed tree order, then broadcast down the same tree, to the farthest
// child first.
Schedule TreeAllreduce(int participants, int me);

// One block, down the tree that starts at the root: number i of the tree is participant root + i, modulo participants.
Schedule TreeBroadcast(int participants, int me, int root);

}  // namespace farandole
