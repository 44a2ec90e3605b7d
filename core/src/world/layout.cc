#include "world/layout.h"

#include <algorithm>
#include <map>
#include <set>

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

int LaneCarrier(int group_size, int lane, int lane_count) { return lane * group_size / lane_count; }

LaneRange LanesOf(int member, int group_size, int lane_count) {
  // The smallest lane with lane * group_size >= member * lane_count, and likewise for the next member.
  const auto first = [&](int m) { return (m * lane_count + group_size - 1) / group_size; };
  return {first(member), first(member + 1)};
}

std::vector<int> Counterparts(const Layout& layout, int rank) {
  const auto group = static_cast<size_t>(layout.group_of[static_cast<size_t>(rank)]);
  const int lane_count = layout.lane_count();
  const LaneRange lanes =
      LanesOf(layout.member_of[static_cast<size_t>(rank)], static_cast<int>(layout.groups[group].size()), lane_count);
  std::set<int> ranks;
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    if (g == group) continue;
    for (int lane = lanes.begin; lane < lanes.end; ++lane) {
      const int member = LaneCarrier(static_cast<int>(layout.groups[g].size()), lane, lane_count);
      ranks.insert(layout.RankOf(static_cast<int>(g), member));
    }
  }
  return {ranks.begin(), ranks.end()};
}

}  // namespace farandole
