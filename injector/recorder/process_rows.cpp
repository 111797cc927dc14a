#include "injector/recorder/process_rows.h"

#include <unistd.h>

#include <charconv>
#include <cstdio>

#include "injector/process/process_facts.h"
#include "injector/recorder/recorder.h"
#include "proto/base/version.h"

namespace tidemark::injector {
namespace {

// As recorded at the start, when the driver must not be called yet. Written before the task thread
// gets its first task.
Process g_process{};

std::string_view host_name(char (&buffer)[256]) {
  if (gethostname(buffer, sizeof buffer) != 0) return {};
  buffer[sizeof buffer - 1] = '\0';
  return buffer;
}

uint32_t version_number() {
  uint32_t parts[3] = {};
  const char* at = kVersion.data();
  const char* end = at + kVersion.size();
  for (uint32_t& part : parts) {
    const auto [stop, error] = std::from_chars(at, end, part);
    if (error != std::errc()) break;
    at = stop != end ? stop + 1 : stop;
  }
  return parts[0] * 10000 + parts[1] * 100 + parts[2];
}

void record_setting(std::string_view key, std::string_view value, SettingScope scope) {
  constexpr size_t kLongest = 1024;
  Setting setting{};
  setting.key = recorder().intern_string(key);
  setting.value = recorder().intern_string(value.substr(0, kLongest));
  setting.scope = scope;
  recorder().record(setting);
}

// "2 %", "0.5 %", "off".
std::string_view overhead_text(uint32_t millionths, char (&out)[24]) {
  if (millionths == 0) return "off";
  const int size = std::snprintf(out, sizeof out, "%g %%", static_cast<double>(millionths) / 1e4);
  return {out, static_cast<size_t>(size)};
}

void record_variable(const char* entry, void*) {
  const std::string_view text = entry;
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return;
  const std::string_view name = text.substr(0, equals);
  const std::string_view value = text.substr(equals + 1);
  if (is_recorded_setting(name, value)) record_setting(name, value, SettingScope::kEnvironment);
}

}  // namespace

void record_process(const Options& options, int64_t start_ns) noexcept {
  Recorder& out = recorder();
  const JobPlace place = find_job_place(process_environment);
  char command[kLongestCommand];
  char host[256];
  char job[256];
  Process process{};
  process.start_ns = start_ns;
  process.pid = static_cast<uint64_t>(getpid());
  process.parent_pid = static_cast<uint64_t>(getppid());
  process.rank = place.rank;
  process.local_rank = place.local_rank;
  process.world_size = place.world_size;
  process.host = out.intern_string(host_name(host));
  process.command = out.intern_string(own_command(command, sizeof command));
  process.job = out.intern_string(find_job_id(process_environment, job, sizeof job));
  process.tool_version = version_number();
  process.source = Source::kCapture;
  out.record(process);
  g_process = process;
  record_tool_setting("version", kVersion);
  record_tool_setting("stacks", stack_mode_name(options.stacks));
  char share[24];
  record_tool_setting("overhead", overhead_text(options.overhead, share));
  each_variable(record_variable, nullptr);
}

void record_driver_version(uint32_t version) noexcept {
  g_process.driver_version = version;
  recorder().record(g_process);
}

void record_tool_setting(std::string_view key, std::string_view value) noexcept {
  record_setting(key, value, SettingScope::kTool);
}

}  // namespace tidemark::injector
