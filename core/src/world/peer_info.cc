#include "world/peer_info.h"

#include <algorithm>
#include <bitset>
#include <map>

namespace farandole {
namespace {

Status UnreadablePeerInfo() {
  return Internal(
      "a rank sent data about itself (PeerInfo) that cannot be read; install the same version of farandole on all "
      "hosts");
}

// "ranks 0, 1 (host a), 3 (host b)": a host is named once, after the last of its ranks in a row.
std::string Names(const std::vector<PeerInfo>& peers, const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    const std::string& host = peers[static_cast<size_t>(ranks[i])].host;
    const bool last_of_host = i + 1 == ranks.size() || peers[static_cast<size_t>(ranks[i + 1])].host != host;
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]) + (last_of_host ? " (host " + host + ")" : "");
  }
  return text;
}

// One row per value, with its ranks; "" when all PeerInfos that have arrived agree.
template <typename Value>
std::string Rows(const std::vector<PeerInfo>& peers, Value value, std::vector<int>* odd) {
  std::map<std::string, std::vector<int>> ranks_by_value;
  for (size_t r = 0; r < peers.size(); ++r) {
    if (!peers[r].version.empty()) ranks_by_value[value(peers[r])].push_back(static_cast<int>(r));
  }
  if (ranks_by_value.size() < 2) return "";
  const auto fewer = [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); };
  const auto most = std::max_element(ranks_by_value.begin(), ranks_by_value.end(), fewer);
  std::string rows;
  for (auto entry = ranks_by_value.begin(); entry != ranks_by_value.end(); ++entry) {
    rows += "\n  " + entry->first + ": " + Names(peers, entry->second);
    if (entry != most) odd->insert(odd->end(), entry->second.begin(), entry->second.end());
  }
  return rows;
}

std::string SettingOf(const PeerInfo& peer_info, const std::string& name) {
  for (const auto& [its_name, value] : peer_info.settings) {
    if (its_name == name) return name + "=" + value;
  }
  return name + " unknown";
}

}  // namespace

std::string PeerInfo::CoreVersion() { return "farandole 0.1"; }

std::string PeerInfo::Encode() const {
  ByteWriter writer;
  farandole::Encode(&writer, *this);
  const Bytes bytes = writer.Take();
  return {bytes.begin(), bytes.end()};
}

Status PeerInfo::Decode(const std::string& text, PeerInfo* peer_info) {
  const auto* const data = reinterpret_cast<const uint8_t*>(text.data());
  ByteReader start(data, text.size());
  peer_info->version = start.GetString();
  peer_info->host = start.GetString();
  if (!start.ok() || peer_info->version.empty()) {
    return UnreadablePeerInfo();
  }
  if (peer_info->version != CoreVersion()) return Status::Ok();  // its other fields may have another form
  ByteReader reader(data, text.size());
  *peer_info = farandole::Decode<PeerInfo>(&reader);
  return reader.AtEnd() ? Status::Ok() : UnreadablePeerInfo();
}

std::string NameOfRank(const std::vector<PeerInfo>& peers, int rank) {
  const auto at = static_cast<size_t>(rank);
  const std::string name = "rank " + std::to_string(rank);
  if (at >= peers.size() || peers[at].version.empty()) return name;
  return name + " (host " + peers[at].host + ", pid " + std::to_string(peers[at].pid) + ")";
}

std::string NamesOfRanks(const std::vector<PeerInfo>& peers, const std::vector<int>& ranks) {
  std::string names;
  for (int rank : ranks) names += (names.empty() ? "" : ", ") + NameOfRank(peers, rank);
  return names;
}

// Checks the version first, since different versions may have different settings.
Status CheckPeers(const std::vector<PeerInfo>& peers, std::vector<int>* odd) {
  odd->clear();
  const auto refuse = [](const std::string& what, const std::string& rows, const std::string& fix) {
    return Status(Code::kMismatch, what + rows + "\n" + fix);
  };
  std::string rows = Rows(peers, [](const PeerInfo& peer_info) { return peer_info.version; }, odd);
  if (!rows.empty()) return refuse("the ranks run different versions of farandole:", rows, "Install one everywhere.");
  rows = Rows(peers, [](const PeerInfo& peer_info) { return std::to_string(peer_info.size) + " ranks"; }, odd);
  if (!rows.empty()) {
    return refuse("the ranks were told different sizes of the job:", rows,
                  "Start all ranks of a job with the same number of ranks.");
  }
  for (const PeerInfo& peer_info : peers) {
    for (const auto& setting : peer_info.settings) {
      const std::string& name = setting.first;
      rows = Rows(peers, [&](const PeerInfo& each) { return SettingOf(each, name); }, odd);
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

bool SharesCores(const std::vector<PeerInfo>& peers, int rank) {
  std::vector<uint64_t> cores(kMaxCoreWords);
  size_t ranks = 0;
  for (const PeerInfo& peer : peers) {
    if (peer.machine != peers[static_cast<size_t>(rank)].machine) continue;
    if (peer.cores.empty()) return false;
    ++ranks;
    for (size_t word = 0; word < peer.cores.size(); ++word) cores[word] |= peer.cores[word];
  }
  size_t count = 0;
  for (uint64_t word : cores) count += std::bitset<64>(word).count();
  return ranks > count;
}

}  // namespace farandole
