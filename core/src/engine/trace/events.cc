#include "engine/trace/events.h"

#include <algorithm>
#include <cctype>
#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace farandole {
namespace {

constexpr int kOperations = 0, kBackEnd = 1;  // "threads" of a rank

// Whether the second byte may follow the first: not where that is an overlong form, a surrogate, or beyond U+10FFFF.
bool MayFollow(unsigned char first, unsigned char second) {
  if (first == 0xE0) return second >= 0xA0;
  if (first == 0xED) return second < 0xA0;
  if (first == 0xF0) return second >= 0x90;
  return first != 0xF4 || second < 0x90;
}

// How many bytes the character at `text[i]` has in UTF-8; 0 when it is none.
size_t CharacterAt(const std::string& text, size_t i) {
  const auto first = static_cast<unsigned char>(text[i]);
  const size_t size = first < 0x80                    ? 1
                      : first >= 0xC2 && first < 0xE0 ? 2
                      : first >= 0xE0 && first < 0xF0 ? 3
                      : first >= 0xF0 && first < 0xF5 ? 4
                                                      : 0;
  if (i + size > text.size()) return 0;
  for (size_t k = 1; k < size; ++k) {
    if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return 0;
  }
  return size < 2 || MayFollow(first, static_cast<unsigned char>(text[i + 1])) ? size : 0;
}

// JSON must be UTF-8, and a name may be anything: bytes that are no character become question marks.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (size_t i = 0; i < text.size();) {
    const size_t size = CharacterAt(text, i);
    if (size == 0) {
      quoted += '?';
    } else if (static_cast<unsigned char>(text[i]) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", text[i]);
      quoted += code;
    } else {
      if (text[i] == '"' || text[i] == '\\') quoted += '\\';
      quoted += text.substr(i, size);
    }
    i += std::max<size_t>(size, 1);
  }
  return quoted + '"';
}

std::string Microseconds(int64_t ns) {
  char text[40];
  std::snprintf(text, sizeof text, "%s%" PRId64 ".%03d", ns < 0 ? "-" : "", std::abs(ns) / 1000,
                static_cast<int>(std::abs(ns) % 1000));
  return text;
}

struct Common {
  int rank, thread;
  int64_t offset_ns;

  std::string Event(const char* phase, const std::string& name, int64_t at_ns, const std::string& more) const {
    return std::string("{\"ph\":\"") + phase + "\",\"name\":" + Quoted(name) + ",\"pid\":" + std::to_string(rank) +
           ",\"tid\":" + std::to_string(thread) + ",\"ts\":" + Microseconds(at_ns - offset_ns) + more + "}";
  }
};

std::string Upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string Arguments(const TraceRecord& record) {
  return ",\"args\":{\"bytes\":" + std::to_string(record.bytes) + ",\"tensors\":" + std::to_string(record.tensors) +
         ",\"process_set\":" + std::to_string(record.process_set) + (record.failed ? ",\"failed\":true" : "") + "}";
}

std::string OperationEvents(const TraceRecord& record, const Common& common, uint64_t number) {
  const std::string kind = NameOf(record.kind);
  const std::string same = ",\"cat\":" + Quoted(kind) + ",\"id\":" + std::to_string(number);
  const std::string name = record.name[0] != '\0' ? record.name.data() : "unnamed " + kind;
  std::string events = common.Event("b", name, record.submitted, same + Arguments(record));
  const auto add_phase = [&](const std::string& phase, int64_t from, int64_t to) {
    if (from == 0) return;
    events += ",\n" + common.Event("b", phase, from, same) + ",\n" + common.Event("e", phase, to, same);
  };
  if (record.agreed != 0) add_phase("NEGOTIATE", record.submitted, record.agreed);
  if (record.started != 0) add_phase("QUEUE", record.agreed, record.started);
  add_phase(Upper(kind), record.started != 0 ? record.started : record.agreed, record.done);
  return events + ",\n" + common.Event("e", name, record.done, same);
}

std::string WorkEvent(const TraceRecord& record, const Common& common) {
  const std::string name = std::string(NameOf(record.kind)) +
                           (record.tensors > 1 ? " of " + std::to_string(record.tensors) + " tensors" : "");
  return common.Event("X", name, record.started,
                      ",\"dur\":" + Microseconds(record.done - record.started) + Arguments(record));
}

std::string Metadata(int rank, int thread, const char* name, const std::string& value) {
  return std::string("{\"ph\":\"M\",\"name\":\"") + name + "\",\"pid\":" + std::to_string(rank) +
         ",\"tid\":" + std::to_string(thread) + ",\"args\":{" + value + "}}";
}

}  // namespace

void TraceRecord::SetName(const std::string& whole) {
  size_t begin = whole.size() < kNameBytes ? 0 : whole.size() - (kNameBytes - 1);
  while (begin < whole.size() && (static_cast<unsigned char>(whole[begin]) & 0xC0) == 0x80) ++begin;
  const size_t size = whole.size() - begin;
  std::memcpy(name.data(), whole.data() + begin, size);
  name[size] = '\0';
}

std::string DescribeRank(int rank, const std::string& title) {
  return Metadata(rank, kOperations, "process_name", "\"name\":" + Quoted(title)) + ",\n" +
         Metadata(rank, kOperations, "process_sort_index", "\"sort_index\":" + std::to_string(rank)) + ",\n" +
         Metadata(rank, kOperations, "thread_name", "\"name\":\"operations\"") + ",\n" +
         Metadata(rank, kBackEnd, "thread_name", "\"name\":\"back end\"");
}

std::string EventsOf(const TraceRecord& record, int rank, int64_t offset_ns, uint64_t number) {
  switch (record.what) {
    case TraceRecord::What::kWork:
      return WorkEvent(record, {rank, kBackEnd, offset_ns});
    case TraceRecord::What::kCycle:
      return Common{rank, kBackEnd, offset_ns}.Event("i", "BATCH", record.started, ",\"s\":\"t\"" + Arguments(record));
    default:
      return OperationEvents(record, {rank, kOperations, offset_ns}, number);
  }
}

std::string EventOfLoss(uint64_t lost, int rank, int64_t at_ns) {
  return Common{rank, kOperations, 0}.Event(
      "i", std::to_string(lost) + " operations were not recorded: the file system is slower than they are", at_ns,
      ",\"s\":\"p\"");
}

}  // namespace farandole
