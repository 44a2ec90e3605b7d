#include "world/card.h"

#include <algorithm>
#include <map>

namespace farandole {
namespace {

// "ranks 0, 1 (host a), 3 (host b)"
std::string Names(const std::vector<Card>& cards, const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    const std::string& host = cards[static_cast<size_t>(ranks[i])].host;
    const bool last_of_host = i + 1 == ranks.size() || cards[static_cast<size_t>(ranks[i + 1])].host != host;
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]) + (last_of_host ? " (host " + host + ")" : "");
  }
  return text;
}

// One row per value; nothing when all that have come agree.
template <typename Value>
std::string Rows(const std::vector<Card>& cards, Value value, std::vector<int>* odd) {
  std::map<std::string, std::vector<int>> ranks_by_value;
  for (size_t r = 0; r < cards.size(); ++r) {
    if (!cards[r].version.empty()) ranks_by_value[value(cards[r])].push_back(static_cast<int>(r));
  }
  if (ranks_by_value.size() < 2) return "";
  const auto fewer = [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); };
  const auto most = std::max_element(ranks_by_value.begin(), ranks_by_value.end(), fewer);
  std::string rows;
  for (auto entry = ranks_by_value.begin(); entry != ranks_by_value.end(); ++entry) {
    rows += "\n  " + entry->first + ": " + Names(cards, entry->second);
    if (entry != most) odd->insert(odd->end(), entry->second.begin(), entry->second.end());
  }
  return rows;
}

std::string SettingOf(const Card& card, const std::string& name) {
  for (const auto& [its_name, value] : card.settings) {
    if (its_name == name) return name + "=" + value;
  }
  return name + " unknown";
}

}  // namespace

std::string Card::CoreVersion() { return "farandole 0.1"; }

std::string Card::Encode() const {
  ByteWriter writer;
  farandole::Encode(&writer, *this);
  const Bytes bytes = writer.Take();
  return {bytes.begin(), bytes.end()};
}

Status Card::Decode(const std::string& text, Card* card) {
  const auto* const data = reinterpret_cast<const uint8_t*>(text.data());
  ByteReader start(data, text.size());
  card->version = start.GetString();
  card->host = start.GetString();
  if (!start.ok() || card->version.empty()) {
    return Internal("a rank introduced itself with a card that cannot be read");
  }
  if (card->version != CoreVersion()) return Status::Ok();
  ByteReader reader(data, text.size());
  *card = farandole::Decode<Card>(&reader);
  return reader.AtEnd() ? Status::Ok() : Internal("a rank introduced itself with a card that cannot be read");
}

std::string NameOfRank(const std::vector<Card>& cards, int rank) {
  const auto at = static_cast<size_t>(rank);
  const std::string name = "rank " + std::to_string(rank);
  if (at >= cards.size() || cards[at].version.empty()) return name;
  return name + " (host " + cards[at].host + ", pid " + std::to_string(cards[at].pid) + ")";
}

std::string NamesOfRanks(const std::vector<Card>& cards, const std::vector<int>& ranks) {
  std::string names;
  for (int rank : ranks) names += (names.empty() ? "" : ", ") + NameOfRank(cards, rank);
  return names;
}

Status CheckCards(const std::vector<Card>& cards, std::vector<int>* odd) {
  odd->clear();
  const auto refuse = [](const std::string& what, const std::string& rows, const std::string& mend) {
    return Status(Code::kMismatch, what + rows + "\n" + mend);
  };
  std::string rows = Rows(cards, [](const Card& card) { return card.version; }, odd);
  if (!rows.empty()) return refuse("the ranks run different versions of farandole:", rows, "Install one everywhere.");
  rows = Rows(cards, [](const Card& card) { return std::to_string(card.size) + " ranks"; }, odd);
  if (!rows.empty()) {
    return refuse("the ranks were told different sizes of the job:", rows,
                  "Start all ranks of a job with the same number of ranks.");
  }
  for (const Card& card : cards) {
    for (const auto& setting : card.settings) {
      const std::string& name = setting.first;
      rows = Rows(cards, [&](const Card& each) { return SettingOf(each, name); }, odd);
      if (!rows.empty()) {
        return refuse("the ranks have different settings, of which one must be the same everywhere:", rows,
                      name.rfind("FARANDOLE_", 0) == 0 ? "Set " + name + " to one value on all ranks, or on none."
                                                       : "Make the " + name +
                                                             " the same on every machine; `farandole doctor` says "
                                                             "there what is found and what is missing.");
      }
    }
  }
  return Status::Ok();
}

}  // namespace farandole
