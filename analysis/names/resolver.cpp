#include "analysis/names/resolver.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "analysis/names/elf_file.h"
#include "analysis/names/readable_name.h"
#include "analysis/names/source_lines.h"

namespace tidemark {

namespace {

// Larger debug information is not read: functions still have their names.
constexpr uint64_t kMaxDebugBytes = uint64_t{1} << 30;
constexpr size_t kMaxModules = 4096;

bool is_nameless(const Frame& frame) {
  return frame.function == 0 && frame.module != 0;
}

// The addresses of one object that need names.
struct Wanted {
  std::vector<uint64_t> addresses;  // in order, each once
  std::vector<std::pair<uint64_t, uint32_t>> frames;
};
using ObjectKey = std::pair<std::string, std::string>;  // path, build id

std::map<ObjectKey, Wanted> wanted_by_object(const Dictionary& names) {
  std::map<ObjectKey, Wanted> all;
  for (uint32_t id = 1; id < names.frame_count(); ++id) {
    const Frame& frame = names.frame(id);
    if (!is_nameless(frame)) continue;
    const Module& module = names.module(frame.module);
    const ObjectKey key(names.string(module.path), names.string(module.build_id));
    if (key.first.empty() || key.second.empty()) continue;
    if (all.size() == kMaxModules && !all.contains(key)) continue;
    all[key].frames.emplace_back(frame.offset, id);
  }
  for (auto& [key, wanted] : all) {
    std::sort(wanted.frames.begin(), wanted.frames.end());
    for (const auto& [address, id] : wanted.frames) {
      if (wanted.addresses.empty() || wanted.addresses.back() != address) {
        wanted.addresses.push_back(address);
      }
    }
  }
  return all;
}

// Where distributions keep what they stripped from their libraries.
std::optional<ElfFile> open_debug_file(const std::string& build_id) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (build_id.size() < 4 || !std::all_of(build_id.begin(), build_id.end(), is_digit)) {
    return std::nullopt;
  }
  return ElfFile::open(fmt::format("/usr/lib/debug/.build-id/{}/{}.debug", build_id.substr(0, 2),
                                   build_id.substr(2)),
                       build_id);
}

std::string_view last_part(std::string_view function) {
  const size_t end = function.find_first_of("<{ ");
  const size_t colons = function.substr(0, end).rfind("::");
  return colons == std::string_view::npos ? function : function.substr(colons + 2);
}

struct Place {
  std::string function;
  SourceLine source;
};

std::vector<Place> look_up(const ObjectKey& key, const std::vector<uint64_t>& addresses) {
  std::vector<Place> places(addresses.size());
  const auto& [path, build_id] = key;
  const std::optional<ElfFile> object = ElfFile::open(path, build_id);
  const bool complete = object && object->has_full_symbols();
  const std::optional<ElfFile> debug = complete ? std::nullopt : open_debug_file(build_id);
  const ElfFile* const files[] = {debug ? &*debug : nullptr, object ? &*object : nullptr};
  for (const ElfFile* file : files) {
    if (file == nullptr) continue;
    std::vector<std::string> functions = file->functions_at(addresses);
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i].function.empty()) places[i].function = std::move(functions[i]);
    }
  }
  const ElfFile* const source = files[0] != nullptr ? files[0] : files[1];
  if (source == nullptr) return places;
  const uint64_t debug_bytes = source->debug_bytes();
  if (debug_bytes == 0 || debug_bytes > kMaxDebugBytes) return places;
  const std::unique_ptr<SourceLines> lines = SourceLines::open(source->fd());
  for (size_t i = 0; lines != nullptr && i < places.size(); ++i) {
    lines->find(addresses[i], places[i].source);
  }
  return places;
}

// The function at the line. If it was inlined, also the function whose frame this is, without its
// namespaces and classes, which are usually the same.
std::string function_text(const Place& place) {
  if (place.source.inlined.empty()) return readable_name(place.function);
  const std::string inner = readable_name(place.source.inlined);
  if (place.function.empty()) return inner;
  const std::string host = readable_name(place.function);
  return fmt::format("{} [inlined in {}]", inner, last_part(host));
}

class Namer {
 public:
  explicit Namer(Dictionary& names) : names_(names) {}

  void name(uint32_t frame, const Place& place) {
    const std::string function = function_text(place);
    if (function.empty()) return;
    names_.name_frame(frame, string(function), string(place.source.file), place.source.line);
    named_.push_back(frame);
  }
  std::vector<uint32_t> take() { return std::move(named_); }

 private:
  uint32_t string(const std::string& text) {
    const auto [it, is_new] = strings_.try_emplace(text, 0);
    if (is_new) it->second = names_.add_string(text);
    return it->second;
  }

  Dictionary& names_;
  std::unordered_map<std::string, uint32_t> strings_;
  std::vector<uint32_t> named_;
};

}  // namespace

bool was_recorded_here(const Process& process, const Dictionary& names) {
  constexpr int64_t kSecond_ns = 1'000'000'000;
  char host[256] = {};
  timespec now{};
  timespec up{};
  if (::gethostname(host, sizeof host - 1) != 0 || names.string(process.host) != host ||
      ::clock_gettime(CLOCK_REALTIME, &now) != 0 || ::clock_gettime(CLOCK_BOOTTIME, &up) != 0) {
    return false;
  }
  // The clock may have been set since: allow for an hour.
  const int64_t boot_ns = (int64_t{now.tv_sec} - up.tv_sec - 3600) * kSecond_ns;
  return process.start_ns >= boot_ns && process.start_ns <= (now.tv_sec + 3600) * kSecond_ns;
}

std::vector<uint32_t> resolve_frames(Dictionary& names,
                                     const std::function<void(double)>& advance) {
  const std::map<ObjectKey, Wanted> objects = wanted_by_object(names);
  Namer namer(names);
  double done = 0;
  for (const auto& [key, wanted] : objects) {
    if (advance) advance(done++ / static_cast<double>(objects.size()));
    const std::vector<Place> places = look_up(key, wanted.addresses);
    for (const auto& [address, frame] : wanted.frames) {
      const auto at = std::lower_bound(wanted.addresses.begin(), wanted.addresses.end(), address);
      namer.name(frame, places[static_cast<size_t>(at - wanted.addresses.begin())]);
    }
  }
  return namer.take();
}

}  // namespace tidemark
