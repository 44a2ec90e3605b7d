#include "common/config.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include "common/text.h"

namespace farandole {
namespace {

// A unit in which users write numbers. One such unit is `factor` units of the setting.
struct Unit {
  const char* name;
  double factor;
  double least;
  double most;  // the largest number; sums with times and sizes then still fit into their types
};
constexpr Unit kBytes{"bytes", 1, 0, 1e18};
constexpr Unit kSeconds{"seconds", 1000, 0, 1e9};
constexpr Unit kSilence{"seconds", 1000, 1, 86'400};  // the kernel counts the probes of a connection in seconds

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

Status Refuse(const char* name, const std::string& value, const std::string& allowed) {
  return Invalid(name, "=", value, " is not understood; allowed: ", allowed);
}

std::string ShortNumber(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", number);
  return text;
}

Status ReadNumber(const char* name, const Unit& unit, int64_t* target) {
  const std::string text = Variable(name);
  if (text.empty()) return Status::Ok();
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (*end != '\0' || !(value >= unit.least && value <= unit.most)) {
    return Refuse(name, text,
                  std::string("a number of ") + unit.name + " from " + ShortNumber(unit.least) + " to " +
                      ShortNumber(unit.most) + ", without a unit");
  }
  *target = static_cast<int64_t>(value * unit.factor);
  return Status::Ok();
}

// *target becomes the position of the variable's value among `words`.
Status ReadWord(const char* name, std::initializer_list<const char*> words, int* target) {
  const std::string text = Variable(name);
  if (text.empty()) return Status::Ok();
  std::string allowed;
  int position = 0;
  for (const char* word : words) {
    if (text == word) {
      *target = position;
      return Status::Ok();
    }
    allowed += (position++ ? ", " : "") + std::string(word);
  }
  return Refuse(name, text, allowed);
}

// "one, two": the words between the commas. Blanks are dropped.
std::vector<std::string> ReadList(const char* name) {
  std::vector<std::string> words = Split(Variable(name), ',');
  for (std::string& word : words) {
    const auto blank = [](unsigned char letter) { return std::isspace(letter) != 0; };
    word.erase(std::remove_if(word.begin(), word.end(), blank), word.end());
  }
  return words;
}

// FARANDOLE_<NAME>_<WHAT>
std::string VariableOf(const std::string& name, const char* what) {
  std::string variable = "FARANDOLE_" + name + "_" + what;
  std::transform(variable.begin(), variable.end(), variable.begin(), [](unsigned char c) { return std::toupper(c); });
  return variable;
}

Status ReadNetworks(const std::vector<std::string>& names, std::set<std::string>* without) {
  for (const std::string& name : names) {
    int has = 1;
    FRD_RETURN_IF_ERROR(ReadWord(VariableOf(name, "NETWORK").c_str(), {"0", "1"}, &has));
    if (has == 0) without->insert(name);
  }
  return Status::Ok();
}

}  // namespace

std::map<std::string, std::string> ReadLibraries(const std::vector<std::string>& names) {
  std::map<std::string, std::string> libraries;
  for (const std::string& name : names) libraries[name] = Variable(VariableOf(name, "LIB").c_str());
  return libraries;
}

Status ReadSettings(Settings* settings) {
  *settings = Settings();
  int shares_memory = 1, order = 0, algorithm = 0;
  FRD_RETURN_IF_ERROR(ReadWord("FARANDOLE_ARENAS", {"0", "1"}, &shares_memory));
  FRD_RETURN_IF_ERROR(ReadWord("FARANDOLE_ORDER", {"fixed", "any"}, &order));
  FRD_RETURN_IF_ERROR(ReadWord("FARANDOLE_ALGORITHM", {"auto", "direct", "ring", "tree", "exchange"}, &algorithm));
  FRD_RETURN_IF_ERROR(ReadWord("FARANDOLE_LOG_LEVEL", {"error", "warning", "info", "debug"}, &settings->log_level));
  FRD_RETURN_IF_ERROR(ReadNumber("FARANDOLE_FUSION_THRESHOLD", kBytes, &settings->fusion_threshold_bytes));
  FRD_RETURN_IF_ERROR(ReadNumber("FARANDOLE_START_TIMEOUT", kSeconds, &settings->start_timeout_ms));
  FRD_RETURN_IF_ERROR(ReadNumber("FARANDOLE_WARN_AFTER", kSeconds, &settings->warn_after_ms));
  FRD_RETURN_IF_ERROR(ReadNumber("FARANDOLE_TIMEOUT", kSeconds, &settings->timeout_ms));
  FRD_RETURN_IF_ERROR(ReadNumber("FARANDOLE_SILENCE_TIMEOUT", kSilence, &settings->silence_timeout_ms));
  settings->shares_memory = shares_memory == 1;
  settings->any_order = order == 1;
  if (algorithm != 0) settings->algorithm = Variable("FARANDOLE_ALGORITHM");
  if (const std::string address = Variable("FARANDOLE_ADDRESS"); !address.empty())
    settings->interface_address = address;
  if (const std::string path = Variable("FARANDOLE_CUDA_DRIVER"); !path.empty()) settings->cuda_driver = path;
  // Nvidia's profilers set a variable of theirs while they record. FARANDOLE_NVTX=0 means no ranges even then.
  settings->nvtx = Variable("FARANDOLE_NVTX");
  if (settings->nvtx.empty() && !Variable("NVTX_INJECTION64_PATH").empty()) settings->nvtx = "libnvToolsExt.so.1";
  if (settings->nvtx == "0") settings->nvtx.clear();
  settings->backends = ReadList("FARANDOLE_BACKEND");
  settings->libraries = ReadLibraries(settings->backends);
  FRD_RETURN_IF_ERROR(ReadNetworks(settings->backends, &settings->without_network));
  if (!Variable("PMI_SIZE").empty()) settings->launcher = "mpich";
  if (!Variable("OMPI_COMM_WORLD_SIZE").empty()) settings->launcher = "openmpi";
  settings->failpoints = Variable("FARANDOLE_FAILPOINTS");
  return Status::Ok();
}

std::vector<std::pair<std::string, std::string>> SharedSettingsOf(const Settings& settings) {
  return {{"FARANDOLE_ALGORITHM", settings.algorithm},
          {"FARANDOLE_ORDER", settings.any_order ? "any" : "fixed"},
          {"FARANDOLE_FUSION_THRESHOLD", std::to_string(settings.fusion_threshold_bytes)},
          {"FARANDOLE_SILENCE_TIMEOUT", ShortNumber(static_cast<double>(settings.silence_timeout_ms) / 1000)}};
}

std::vector<std::pair<std::string, std::string>> NetworksOf(const Settings& settings) {
  std::vector<std::pair<std::string, std::string>> networks;
  for (const std::string& name : settings.backends)
    networks.emplace_back(VariableOf(name, "NETWORK"), settings.without_network.count(name) > 0 ? "0" : "1");
  return networks;
}

}  // namespace farandole
