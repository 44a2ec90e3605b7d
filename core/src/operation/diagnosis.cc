#include "operation/diagnosis.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

namespace farandole {
namespace {

constexpr size_t kMaxBytes = 16 << 10;  // of stacks, in an answer

struct StackSignal {
  int number = 0;  // 0: none
  int descriptor = -1;
  void (*handler)(int) = nullptr;
};
StackSignal g_stack_signal;
std::mutex g_stack_mutex;

}  // namespace

// ---- the diagnosis

bool DiagnosisChannel::Await(News* news) {
  std::unique_lock<std::mutex> lock(mutex_);
  is_attached_ = true;
  if (!HasNews()) busy_since_ = TimePoint();
  changed_.wait(lock, [this] { return HasNews() || is_closed_; });
  *news = std::exchange(news_, {});
  busy_since_ = Now();
  return !is_closed_;
}

void DiagnosisChannel::Ask(std::vector<int> ranks) {
  std::lock_guard<std::mutex> lock(mutex_);
  requests_.asks.push_back(std::move(ranks));
}

// Ignored if the core has replied meanwhile.
void DiagnosisChannel::Reply(int asker, std::string text) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto owed = std::find_if(owed_.begin(), owed_.end(), [asker](const auto& each) { return each.first == asker; });
  if (owed == owed_.end()) return;
  owed_.erase(owed);
  requests_.replies.emplace_back(asker, std::move(text));
}

void DiagnosisChannel::Decide(Decision decision) {
  std::lock_guard<std::mutex> lock(mutex_);
  decision_ = std::move(decision);
}

// ---- the core

void DiagnosisChannel::Publish(WaitReport report) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!is_attached_) return;
  news_.report = std::move(report);
  Wake(std::move(lock));
}

void DiagnosisChannel::OnAsked(int asker) {
  std::unique_lock<std::mutex> lock(mutex_);
  owed_.emplace_back(asker, is_attached_ ? Now() : TimePoint());
  if (!is_attached_) return;
  news_.askers.push_back(asker);
  Wake(std::move(lock));
}

void DiagnosisChannel::OnAnswered(RankAnswer answer) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!is_attached_) return;
  news_.answers.push_back(std::move(answer));
  Wake(std::move(lock));
}

void DiagnosisChannel::Wake(std::unique_lock<std::mutex> lock) {
  if (busy_since_ == TimePoint()) busy_since_ = Now();
  lock.unlock();
  changed_.notify_one();
}

DiagnosisChannel::Requests DiagnosisChannel::TakeRequests(TimePoint now) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string stacks;
  while (!owed_.empty() && now - owed_.front().second >= kReplyPatience) {
    if (is_attached_ && stacks.empty()) stacks = "no thread here gets Python's lock\n" + StacksBySignal();
    requests_.replies.emplace_back(owed_.front().first, stacks);
    owed_.erase(owed_.begin());
  }
  return std::exchange(requests_, {});
}

std::optional<Decision> DiagnosisChannel::TakeDecision() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(decision_, std::nullopt);
}

bool DiagnosisChannel::Responds(TimePoint now) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return is_attached_ && !is_closed_ && (busy_since_ == TimePoint() || now - busy_since_ < kPatience);
}

void DiagnosisChannel::Close() {
  std::unique_lock<std::mutex> lock(mutex_);
  is_closed_ = true;
  is_attached_ = false;
  Wake(std::move(lock));
}

// ---- stacks by a signal

void SetStackSignal(int signal, int descriptor) {
  std::lock_guard<std::mutex> lock(g_stack_mutex);
  struct sigaction action = {};
  if (sigaction(signal, nullptr, &action) == 0) g_stack_signal = {signal, descriptor, action.sa_handler};
}

// A signal that a thread sends itself is handled before pthread_kill returns.
std::string StacksBySignal() {
  std::lock_guard<std::mutex> lock(g_stack_mutex);
  const auto [number, file, handler] = g_stack_signal;
  struct sigaction action = {};
  if (number == 0 || sigaction(number, nullptr, &action) != 0 || action.sa_handler != handler) return "";
  if (ftruncate(file, 0) != 0 || lseek(file, 0, SEEK_SET) != 0) return "";
  sigset_t only, before;
  sigemptyset(&only);
  sigaddset(&only, number);
  pthread_sigmask(SIG_UNBLOCK, &only, &before);
  pthread_kill(pthread_self(), number);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const off_t size = lseek(file, 0, SEEK_END);
  const off_t begin = std::max<off_t>(0, size - static_cast<off_t>(kMaxBytes));  // the main thread comes last
  std::string text(static_cast<size_t>(std::max<off_t>(0, size - begin)), '\0');
  const ssize_t got = pread(file, text.data(), text.size(), begin);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

}  // namespace farandole
