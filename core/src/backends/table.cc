#include "backends/table.h"

#include <algorithm>

namespace farandole {
namespace {

const BackendKind* const kKinds[] = {&kNative, &kGloo, &kMpi, &kNccl};
constexpr size_t kKindCount = std::size(kKinds);

const BackendKind& KindOf(int number) { return *kKinds[static_cast<size_t>(number)]; }

std::string Joined(const std::vector<std::string>& names, const char* separator = ",") {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : separator) + name;
  return all;
}

Status RefuseList(const std::vector<std::string>& names, const std::string& why) {
  return Invalid("FARANDOLE_BACKEND=", Joined(names), ": ", why,
                 "; allowed: a list of these, the preferred one first: ", Joined(BackendTable::Names(), ", "));
}

}  // namespace

// ---- BackendList

Status BackendList::Read(const std::vector<std::string>& names, BackendList* backend_list,
                         const std::set<std::string>& without_network) {
  std::vector<int> numbers;
  for (const std::string& name : names) {
    const auto same = [&name](const BackendKind* kind) { return kind->name == name; };
    const auto found = std::find_if(std::begin(kKinds), std::end(kKinds), same);
    if (found == std::end(kKinds)) return RefuseList(names, "'" + name + "' is no backend of this version");
    const auto number = static_cast<int>(found - std::begin(kKinds));
    if (std::count(numbers.begin(), numbers.end(), number) > 0) return RefuseList(names, name + " is listed twice");
    numbers.push_back(number);
    if (without_network.count(name) > 0) backend_list->without_network_.insert(number);
  }
  if (!numbers.empty()) backend_list->numbers_ = std::move(numbers);
  return Status::Ok();
}

int BackendList::Choose(const std::vector<OperationFacts>& facts) const {
  for (int number : numbers_) {
    const auto supports = [this, number](const OperationFacts& facts) { return Supports(number, facts); };
    if (std::all_of(facts.begin(), facts.end(), supports)) return number;
  }
  return -1;
}

// The user says for each backend whether its library has a network, so that is filled in here.
bool BackendList::Supports(int number, OperationFacts facts) const {
  facts.has_network = without_network_.count(number) == 0;
  return BackendTable::Supports(number, facts);
}

std::string BackendList::ToString() const {
  std::vector<std::string> names;
  for (int number : numbers_) names.push_back(KindOf(number).name);
  return Joined(names);
}

// ---- BackendTable

// Native is always there: others exchange addresses by it before their own library has connected.
BackendTable::BackendTable(World* world, const Settings& settings, const BackendList& backend_list)
    : backends_(kKindCount) {
  backends_[0] = kNative.make(world, settings, nullptr);
  for (int number : backend_list.numbers()) {
    if (number != 0) backends_[static_cast<size_t>(number)] = KindOf(number).make(world, settings, backends_[0].get());
  }
}

Status BackendTable::Open() {
  for (const auto& backend : backends_) {
    if (backend) FRD_RETURN_IF_ERROR(backend->Open());
  }
  return Status::Ok();
}

Backend* BackendTable::At(int number) const {
  const auto at = static_cast<size_t>(number);
  return at < backends_.size() ? backends_[at].get() : nullptr;
}

void BackendTable::Forget(int set_id) {
  for (const auto& backend : backends_) {
    if (backend) backend->Forget(set_id);
  }
}

// Destroys native last, since the others hold a pointer to it.
void BackendTable::Close() {
  for (auto backend = backends_.rbegin(); backend != backends_.rend(); ++backend) backend->reset();
}

std::vector<std::string> BackendTable::Names() {
  std::vector<std::string> names;
  for (const BackendKind* kind : kKinds) names.push_back(kind->name);
  return names;
}

Status BackendTable::Find(int number, const Settings& settings, std::string* library) {
  return KindOf(number).find(settings, library);
}

Status BackendTable::FindAll(const Settings& settings, const BackendList& backend_list) {
  for (int number : backend_list.numbers()) {
    std::string library;
    FRD_RETURN_IF_ERROR(Find(number, settings, &library));
  }
  return Status::Ok();
}

bool BackendTable::TakesDeviceMemory(int number) { return KindOf(number).takes_device_memory; }

bool BackendTable::Supports(int number, const OperationFacts& facts) {
  return (number == 0 || !facts.is_cut_off()) && KindOf(number).supports(facts);
}

bool BackendTable::AnyTakesDeviceMemory(const BackendList& backend_list) {
  return std::any_of(backend_list.numbers().begin(), backend_list.numbers().end(), TakesDeviceMemory);
}

// Names a missing library "none" rather than leaving it out, so that ranks of which only some have it do not agree.
std::vector<std::pair<std::string, std::string>> BackendTable::Libraries(const Settings& settings,
                                                                         const BackendList& backend_list) {
  std::vector<std::pair<std::string, std::string>> libraries;
  for (int number : backend_list.numbers()) {
    std::string library;
    const Status found = KindOf(number).find(settings, &library);
    if (!found.ok()) library = "none";
    if (!library.empty()) libraries.emplace_back("library of " + std::string(KindOf(number).name), library);
  }
  return libraries;
}

Status BackendTable::Exchange(const Settings& settings, int rank, int size, const std::string& mine,
                              std::vector<std::string>* all) {
  for (const BackendKind* kind : kKinds) {
    if (kind->exchange != nullptr) return kind->exchange(settings, rank, size, mine, all);
  }
  return Internal("no backend of this build can exchange addresses through its launcher");
}

}  // namespace farandole
