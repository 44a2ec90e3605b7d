#include "common/config.h"

#include <cstdlib>
#include <initializer_list>
#include <limits>

namespace farandole {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

Status Refuse(const char* name, const std::string& value, const std::string& allowed) {
  return Invalid(std::string(name) + "=" + value + " is not understood; allowed: " + allowed);
}

Status ReadInteger(const char* name, int64_t unit, int64_t* target) {
  const std::string text = Variable(name);
  if (text.empty()) return Status::Ok();
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const double limit = static_cast<double>(std::numeric_limits<int64_t>::max()) / 2;
  if (*end != '\0' || !(value >= 0) || value * static_cast<double>(unit) > limit) {
    return Refuse(name, text, "a number that is not negative");
  }
  *target = static_cast<int64_t>(value * static_cast<double>(unit));
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

}  // namespace

Status ReadSettings(Settings* settings) {
  *settings = Settings();
  int arenas = 1, order = 0, algorithm = 0;
  FRD_RETURN_IF_ERROR(ReadWord("FARANDOLE_ARENAS", {"0", "1"}, &arenas));
  FRD_RETURN_IF_ERROR(ReadWord("FARANDOLE_ORDER", {"fixed", "any"}, &order));
  FRD_RETURN_IF_ERROR(
      ReadWord("FARANDOLE_ALGORITHM", {"auto", "direct", "ring", "tree", "exchange", "halving"}, &algorithm));
  FRD_RETURN_IF_ERROR(ReadWord("FARANDOLE_LOG_LEVEL", {"error", "warning", "info", "debug"}, &settings->log_level));
  FRD_RETURN_IF_ERROR(ReadInteger("FARANDOLE_FUSION_THRESHOLD", 1, &settings->fusion_threshold_bytes));
  FRD_RETURN_IF_ERROR(ReadInteger("FARANDOLE_START_TIMEOUT", 1000, &settings->start_timeout_ms));
  FRD_RETURN_IF_ERROR(ReadInteger("FARANDOLE_WARN_AFTER", 1000, &settings->warn_after_ms));
  FRD_RETURN_IF_ERROR(ReadInteger("FARANDOLE_TIMEOUT", 1000, &settings->timeout_ms));
  settings->arenas = arenas == 1;
  settings->any_order = order == 1;
  if (algorithm != 0) settings->algorithm = Variable("FARANDOLE_ALGORITHM");
  if (const std::string address = Variable("FARANDOLE_ADDRESS"); !address.empty())
    settings->interface_address = address;
  if (const std::string path = Variable("FARANDOLE_CUDA_DRIVER"); !path.empty()) settings->cuda_driver = path;
  settings->failpoints = Variable("FARANDOLE_FAILPOINTS");
  return Status::Ok();
}

std::vector<std::pair<std::string, std::string>> SharedSettingsOf(const Settings& settings) {
  return {{"FARANDOLE_ALGORITHM", settings.algorithm},
          {"FARANDOLE_ORDER", settings.any_order ? "any" : "fixed"},
          {"FARANDOLE_FUSION_THRESHOLD", std::to_string(settings.fusion_threshold_bytes)}};
}

}  // namespace farandole
