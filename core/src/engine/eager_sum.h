// One eager sum under way on this rank: its data, and how far they are folded. Eager (eager.h) moves the bytes.
//
//   this group has one member    leader   inputs ----------------------> partial
//   it has several               member   inputs -> its cell
//                                leader   all cells, folded -----------> partial
//   in both cases                leader   partials of all groups, folded as they come -> result
//   it has several               leader   result -> cells              members copy it from there
//
// Gives the same bits as the two-level path and the path of links: first the members of a group are folded in order R,
// then the groups.
//
// The driver alone uses it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/operation.h"
#include "engine/small.h"
#include "transport/shm/cells.h"

namespace farandole {

class EagerSum {
 public:
  // The leader of a group.
  struct Peer {
    static constexpr uint64_t kNotQueued = ~uint64_t{0};
    int rank = 0;
    uint64_t sent_at = kNotQueued;  // where this group's partial for it ends in the stream
    bool on_credit = false;
  };

  // REQUIRES: the operation has arrived, and its admission has an inbox.
  explicit EagerSum(OperationPtr operation);

  const OperationPtr& operation() const { return operation_; }
  const Admission& admission() const { return operation_->admission; }
  const ProcessSet& set() const { return *admission().set; }
  uint64_t use() const { return UsesIn(admission().stamp()); }
  size_t payload_bytes() const { return admission().inbox->payload_bytes(); }
  bool leads() const { return set().member() == 0; }
  bool collects() const { return admission().group_cells.has_value(); }  // this group has several members

  // ---- inside the group
  void PutInput() const;  // into this rank's cell. REQUIRES: collects()
  bool AllHavePut() const { return admission().group_cells->AllHavePut(admission().stamp()); }
  // Makes the group's partial. REQUIRES: leads(), and AllHavePut() if it collects.
  void MakePartial();
  bool has_partial() const { return has_partial_; }
  // Copies the result to the outputs if it is there. REQUIRES: collects(), not leads().
  bool TakeResult();
  bool HasResult() const { return admission().group_cells->HasResult(admission().stamp()); }
  void GiveUp() const { admission().group_cells->AnnounceResult(admission().stamp(), /*is_given_up=*/true); }
  bool HasGivenUp() const { return admission().group_cells->HasGivenUp(admission().stamp()); }

  // ---- between groups. REQUIRES: leads()
  std::vector<Peer>& peers() { return peers_; }  // by group
  const std::vector<Peer>& peers() const { return peers_; }
  bool IsMine(const Peer& peer) const { return peer.rank == mine_; }
  bool HasPeer(int rank) const {
    return std::any_of(peers_.begin(), peers_.end(), [rank](const Peer& peer) { return peer.rank == rank; });
  }
  // Visits the pieces of the partial, in order.
  template <typename Visit>
  void ForEachPiece(Visit visit) const {
    if (!own_.empty()) return visit(own_.data(), own_.size());
    for (const CellTensor& tensor : tensors_) visit(tensor.input, tensor.size_bytes());
  }
  // Folds the bytes before `available_bytes`, which have come from all groups and have been sent to all. With the last
  // of them the members of this group get the result. Returns whether it folded the last ones.
  bool FoldUpTo(size_t available_bytes);
  bool folded() const { return folded_tensors_ == tensors_.size(); }

 private:
  bool ScalesFirst(const CellTensor& tensor) const;
  bool NeedsOwn(const CellTensor& tensor) const;
  void FoldInputs();
  void FoldCellsOfGroup();
  void FoldElements(size_t count);
  std::byte* ResultOf(const CellTensor& tensor, size_t at) const;
  void CopyResult();

  const OperationPtr operation_;
  const Reduction reduction_;
  std::vector<CellTensor> tensors_;
  std::vector<Peer> peers_;
  int mine_ = 0;  // this rank
  bool has_partial_ = false;
  std::vector<std::byte> own_;                                  // the partial; empty: it is the inputs as they are
  size_t folded_tensors_ = 0, offset_bytes_ = 0, element_ = 0;  // folded up to here
  std::vector<const void*> inputs_;                             // of one fold
};

}  // namespace farandole
