// Coordinator: ranks that have no more data.
#include <algorithm>

#include "controller/coordinator.h"

namespace farandole {

Status Coordinator::OnJoin(int from, ByteReader* reader, std::vector<Outgoing>* out) {
  const auto joined = Decode<Joined>(reader);
  if (!reader->AtEnd() || HasJoined(from)) return Unreadable(from);
  joined_.insert(from);
  for (const auto& [set, turn] : joined.turns) joined_turns_[set] = std::max(joined_turns_[set], turn);
  if (joined_.size() == static_cast<size_t>(layout_.size())) {
    EndJoin(from, out);
    return Status::Ok();
  }
  out->push_back({from, EncodeIdMessage(MessageKind::kJoined, 0)});  // before any invitation
  DecideWithout(out);
  for (int id = 0; id < kMaxIds; ++id) OpenFor(id, out);
  return Status::Ok();
}

// Nobody has anything in flight. The result goes to every rank, the moment of going on stands in the logs: whatever is
// begun after it comes behind it.
void Coordinator::EndJoin(int last, std::vector<Outgoing>* out) {
  Flush(out);
  const Bytes result = Encode(JoinResult{{last, joined_turns_}});
  for (int rank = 0; rank < layout_.size(); ++rank) out->push_back({rank, result});
  for (const auto& group : layout_.groups) out->push_back({group[0], EncodeIdMessage(MessageKind::kJoinEnd, 0)});
  joined_.clear();
  joined_turns_.clear();
}

// What waited only for the rank that has now joined. One at a time: a decision may remove a set.
void Coordinator::DecideWithout(std::vector<Outgoing>* out) {
  const auto is_complete = [this](const auto& entry) {
    return IsComplete(entry.second, *sets_.Find(entry.first.first));
  };
  for (;;) {
    const auto found = std::find_if(gathering_.begin(), gathering_.end(), is_complete);
    if (found == gathering_.end()) return;
    const Gathering complete = std::move(found->second);
    gathering_.erase(found);
    Decide(complete, out);
  }
}

// Groups whose members in the set have all joined see nobody arrive; they are told that others wait.
void Coordinator::OpenFor(int number, std::vector<Outgoing>* out) const {
  const Id& id = ids_[static_cast<size_t>(number)];
  if (joined_.empty() || id.completed.empty()) return;
  for (int rank : id.set->ranks) {
    const bool waited_for = id.completed.count(layout_.group_of[static_cast<size_t>(rank)]) == 0;
    if (waited_for && HasJoined(rank)) out->push_back({rank, EncodeIdMessage(MessageKind::kOpen, number, id.sequence)});
  }
}

}  // namespace farandole
