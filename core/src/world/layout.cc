#include "world/layout.h"

#include <algorithm>
#include <map>

#include "common/bytes.h"

namespace farandole {
namespace {

constexpr const char* kVersion = "farandole 0.1";

}  // namespace

std::string Card::Encode() const {
  ByteWriter writer;
  writer.PutString(kVersion);
  writer.PutString(host);
  writer.PutString(machine);
  writer.Put(pid);
  writer.Put<uint8_t>(arenas);
  writer.PutString(meeting);
  const Bytes bytes = writer.Take();
  return {bytes.begin(), bytes.end()};
}

Status Card::Decode(const std::string& text, Card* card) {
  ByteReader reader(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  const std::string version = reader.GetString();
  card->host = reader.GetString();
  card->machine = reader.GetString();
  card->pid = reader.Get<int64_t>();
  card->arenas = reader.Get<uint8_t>() != 0;
  card->meeting = reader.GetString();
  if (version != kVersion) {
    return {Code::kMismatch, "host " + card->host + " runs " + (version.empty() ? "something else" : version) +
                                 ", this rank runs " + kVersion + "; install one version everywhere"};
  }
  return reader.AtEnd() ? Status::Ok() : Internal("a rank introduced itself with a card that cannot be read");
}

int Layout::lane_count() const {
  size_t most = 1;
  for (const auto& group : groups) most = std::max(most, group.size());
  return static_cast<int>(most);
}

Layout MakeLayout(const std::vector<Card>& cards, const std::vector<bool>& apart) {
  Layout layout;
  std::map<std::string, size_t> group_by_machine;
  for (size_t r = 0; r < cards.size(); ++r) {
    size_t group = layout.groups.size();
    if (cards[r].arenas && !apart[r]) group = group_by_machine.emplace(cards[r].machine, group).first->second;
    if (group == layout.groups.size()) layout.groups.emplace_back();
    layout.group_of.push_back(static_cast<int>(group));
    layout.member_of.push_back(static_cast<int>(layout.groups[group].size()));
    layout.groups[group].push_back(static_cast<int>(r));
  }
  return layout;
}

Layout Restrict(const Layout& layout, const std::vector<int>& ranks) {
  Layout restricted;
  std::map<int, size_t> group_by_old;
  for (size_t position = 0; position < ranks.size(); ++position) {
    const int old = layout.group_of[static_cast<size_t>(ranks[position])];
    const size_t group = group_by_old.emplace(old, restricted.groups.size()).first->second;
    if (group == restricted.groups.size()) restricted.groups.emplace_back();
    restricted.group_of.push_back(static_cast<int>(group));
    restricted.member_of.push_back(static_cast<int>(restricted.groups[group].size()));
    restricted.groups[group].push_back(static_cast<int>(position));
  }
  return restricted;
}

int LaneCarrier(int group_size, int lane, int lane_count) { return lane * group_size / lane_count; }

LaneRange LanesOf(int member, int group_size, int lane_count) {
  // The smallest lane with lane * group_size >= member * lane_count, and likewise for the next member.
  const auto first = [&](int m) { return (m * lane_count + group_size - 1) / group_size; };
  return {first(member), first(member + 1)};
}

std::vector<int> Counterparts(const Layout& layout, int rank) {
  std::vector<int> ranks;
  for (int other = 0; other < layout.size(); ++other) {
    const bool apart = layout.group_of[static_cast<size_t>(other)] != layout.group_of[static_cast<size_t>(rank)];
    if (apart) ranks.push_back(other);
  }
  return ranks;
}

}  // namespace farandole
